"""C++ that Inductor writes for a GPU that is not there: compiled as far as CUDA's headers go, and read."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import sysconfig
from pathlib import Path

import cuda_graphs
import pytest
import torch
from torch import Tensor

import halide_backend
from halide_backend.build.entry_names import LENGTH
from halide_backend.build.ptx import ptxas

CUDA_HEADERS = Path("/usr/local/cuda/include")

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler (g++), as the C++ wrapper does")


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda_graphs.pretend(monkeypatch)
    halide_backend.reset_stats()


def two_kernels(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return torch.softmax(x * 2 + y, -1).sum(0), torch.relu(x) - y


TWO = [((64, 128), torch.float32)] * 2


def scaled(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return torch.softmax(x * scale, -1) + shift


SCALED = [((30, 70), torch.float32), ((), torch.float64), ((), torch.int64)]


def compiled(source: str, folder: Path, syntax_only: bool = True) -> Path:
    """`source` as the compiler takes it, with every warning of ours an error; an object unless `syntax_only`."""
    home, file = Path(torch.__file__).parent, folder / "source.cpp"
    file.write_text(source)
    headers = [
        home / "include",
        home / "include/torch/csrc/api/include",
        sysconfig.get_paths()["include"],
        CUDA_HEADERS,
    ]
    include = [flag for path in headers for flag in ("-isystem", str(path))]
    what = ["-fsyntax-only"] if syntax_only else ["-c", "-O1", "-o", str(folder / "object.o")]
    flags = ["-std=c++20", "-fPIC", "-DUSE_CUDA", *include, *what]
    done = subprocess.run(["g++", *flags, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "object.o"


def cpp_text(module: str) -> str:
    """The C++ in a Python module that Inductor's C++ wrapper is."""
    return "".join(re.findall(r'r"""(.*?)"""', module, re.DOTALL))


@pytest.mark.skipif(not (CUDA_HEADERS / "cuda.h").exists(), reason="needs CUDA's headers")
@pytest.mark.parametrize("in_package", [True, False])
@pytest.mark.parametrize(("function", "arguments"), [(two_kernels, TWO), (scaled, SCALED)])
def test_the_wrapper_compiles(function, arguments, in_package: bool, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    wrapper, kernels = cuda_graphs.cpp_of(function, arguments, "halide_backend", in_package)
    assert halide_backend.stats()["native_kernels"] and not halide_backend.stats()["delegated_kernels"]
    compiled(wrapper if in_package else cpp_text(wrapper), tmp_path)
    assert bool(kernels) == in_package


def test_a_package_has_images_and_hidden_functions(tmp_path: Path) -> None:
    """Its object defines the C functions, the modules and the images, and asks for nothing of this package's."""
    wrapper, kernels = cuda_graphs.cpp_of(two_kernels, TWO, "halide_backend", in_package=True)
    assert "halide_backend_on_gpu" not in wrapper
    lines = subprocess.run(
        ["readelf", "-sW", compiled(kernels, tmp_path, syntax_only=False)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    symbols = [line.split() for line in lines if re.match(r" +\d+:", line)]
    ours = {s[7]: s for s in symbols if len(s) > 7 and s[7].startswith("hb1_")}
    functions = [name for name in ours if not name.endswith(("_module", "_image"))]
    assert len(functions) == 2
    for name in functions:
        for symbol in (name, f"{name}_module", f"{name}_image"):
            assert ours[symbol][5] == "HIDDEN" and ours[symbol][6] != "UND"
    undefined = {s[7] for s in symbols if len(s) > 7 and s[6] == "UND"}
    assert not [name for name in undefined if "halide" in name or "hb1" in name]
    assert {"dlopen", "dlsym"} <= undefined
    # Profilers show the names of the wrapper.
    image = (tmp_path / "object.o").read_bytes()
    assert b"halide_fused_0__0" in image and b"halide_entry_0000".ljust(LENGTH, b"_") not in image


def test_a_second_pass_has_its_own_kernels() -> None:
    """AOTInductor may write and run a graph in Python before it is written in C++."""
    python, _ = cuda_graphs.code_of(two_kernels, TWO, "halide_backend")
    wrapper, kernels = cuda_graphs.cpp_of(two_kernels, TWO, "halide_backend", in_package=True)
    assert "load_kernel(" in python and "load_kernel(" not in wrapper
    assert kernels.count("__asm__") == 6  # for each kernel the launching half, the image, the note of the package


@pytest.mark.parametrize(
    ("in_package", "device"), [(True, "this->device_idx_, stream"), (False, "0, halide_backend_stream(0)")]
)
def test_a_scalar_on_the_cpu_is_an_argument_of_the_drivers(in_package: bool, device: str) -> None:
    """Kernels have pointers to the GPU's memory alone."""
    wrapper, _ = cuda_graphs.cpp_of(scaled, SCALED, "halide_backend", in_package)
    calls = re.findall(r"halide_backend_on_gpu\((\w+), cached_torch_dtype_(\w+), (\d), ([^)]*\)?)\)", wrapper)
    assert calls == [("arg1_1", "float64", "8", device), ("arg2_1", "int64", "8", device)]
    assert wrapper.count("RAIIAtenTensorHandle halide_backend_on_gpu(") == 1


def images_of(object_file: bytes) -> list[str]:
    """For which GPUs the images in an object are: of machine code the architecture in its header, of PTX its target."""
    found = {}
    for place in (match.start() for match in re.finditer(rb"\x7fELF\x02\x01", object_file)):
        machine, flags = struct.unpack_from("<18xH28xI", object_file, place)
        if machine == 190:  # EM_CUDA
            found[place] = f"sm_{flags >> 8 & 0xFF if flags >> 8 & 0xFF else flags & 0xFF}"
    for match in re.finditer(
        rb"//\n// Generated by LLVM NVPTX[^\0]*?\.target (sm_\d+)[^\0]*?halide_fused_", object_file
    ):
        found[match.start()] = f"PTX of {match[1].decode()}"
    return [found[place] for place in sorted(found)]


@pytest.mark.skipif(not ptxas.find(), reason="needs ptxas")
def test_a_package_for_several_gpus(tmp_path: Path) -> None:
    """Each kernel has an image for each of them, which the table of the runtime lists in that order."""
    with halide_backend.config.patch(aot_targets="ptx,sm_90,avx2,sm_80"):
        wrapper, kernels = cuda_graphs.cpp_of(two_kernels, TWO, "halide_backend", in_package=True)
    assert "gpu_targets[] = {{80, false}, {90, false}, {90, true}};" in kernels
    assert len(re.findall(r"kernels\[\] = \{(\{\w+, &\w+\}(, )?){3}\};", wrapper)) == 2
    images = images_of(compiled(kernels, tmp_path, syntax_only=False).read_bytes())
    # Which waits for the kernel before it, as only GPUs from sm_90 on can.
    assert images == ["sm_80", "sm_90", "PTX of sm_90"] * 2
