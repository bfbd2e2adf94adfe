"""AOTInductor packages with kernels of this backend: made in one process, loaded in others that know nothing of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from halide_backend.build.target import Target

Run = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler (g++), as AOTInductor does")

#: Nothing is compiled to see which vector instructions a compiler knows, which would take most of the time.
NO_PROBES = {"TORCHINDUCTOR_VEC_ISA_OK": "0"}

#: Models, their inputs, and `package(name, model, inputs, shapes, **settings)`.
MODELS = """
import sys, threading, torch
from torch import nn
class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.table = nn.Linear(64, 64), nn.LayerNorm(64), nn.Embedding(10, 64)
    def forward(self, x, index, absent, scale=None):
        hidden = torch.softmax(self.norm(nn.functional.gelu(self.linear(x))) + self.table(index), -1)
        return hidden, None, torch.tanh(hidden.sum(0)), hidden[:, 0] * x.shape[0]
class Folded(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(32, 32)), nn.Parameter(torch.randn(32))
    def forward(self, x):
        return x @ (torch.exp(self.weight) + 1).t() + torch.sin(self.bias) * 2
def made(kind, seed=0):
    torch.manual_seed(seed)
    return kind().eval()
def embedded_inputs(n):
    return torch.randn(n, 64), torch.arange(n) % 10, None
torch.set_grad_enabled(False)
FAST = {"cpu_backend": "halide_backend", "aot_inductor.precompile_headers": False,
        "aot_inductor.compile_wrapper_opt_level": "O0"}
def package(name, model, inputs, shapes=None, **settings):
    exported = torch.export.export(model, inputs, dynamic_shapes=shapes)
    return torch._inductor.aoti_compile_and_package(exported, package_path=name, inductor_configs={**FAST, **settings})
BATCH = torch.export.Dim("batch", min=2, max=512)
SHAPES = {"x": {0: BATCH}, "index": {0: BATCH}, "absent": None}
"""

CHECKS = """
def largest_error(got, wanted):
    assert [g is None for g in got] == [w is None for w in wanted]
    return max(float((g - w).abs().max() / w.abs().max()) for g, w in zip(got, wanted) if w is not None)
"""


def test_packages_run_without_this_package(run: Run, tmp_path: Path) -> None:
    """A model of dynamic sizes with a check, absent inputs and outputs, and a kernel of Inductor's own; and one that
    folds constants when it is loaded. Between the two a compilation fails."""
    made = run(
        MODELS
        + """
import os
from torch._inductor.codecache import CUDACodeCache
import halide_backend
from halide_backend.capture.scheduling import HalideScheduling
from halide_backend.errors import Unsupported
codegen = HalideScheduling._codegen
def all_but_tanh(self, nodes):
    if any("tanh" in str(origin.target) for node in nodes for origin in node.node.get_origins()):
        raise Unsupported("not-a-loop-node", "a test")
    return codegen(self, nodes)
HalideScheduling._codegen = all_but_tanh
package("embedded.pt2", made(Embedded), embedded_inputs(8), SHAPES)
HalideScheduling._codegen = codegen
counts = halide_backend.stats()
path, os.environ["PATH"] = os.environ["PATH"], ""
without_compiler = failure(lambda: package("failed.pt2", made(Embedded), embedded_inputs(4)))
os.environ["PATH"] = path
package("folded.pt2", made(Folded), (torch.randn(5, 32),), **{"aot_inductor.use_runtime_constant_folding": True})
report(native=counts["native_kernels"], delegated=counts["delegated_kernels"], failed=without_compiler[0],
       left=CUDACodeCache.aot_kernels_o)
""",
        **NO_PROBES,
    )
    assert made["native"] >= 1 and made["delegated"] == 1
    assert made["failed"] and made["left"] == []

    found = run(
        MODELS
        + CHECKS
        + """
from torch._inductor.package.package import AOTICompiledModel
loader = torch._C._aoti.AOTIModelPackageLoader("embedded.pt2", "model", False, 3, -1)  # 3 runners
embedded, folded = AOTICompiledModel(loader), torch._inductor.aoti_load_package("folded.pt2")
model = made(Embedded)
errors = [largest_error(embedded(*inputs), model(*inputs)) for inputs in map(embedded_inputs, (8, 2, 33, 512))]
x, index, _ = embedded_inputs(8)
out_of_range = failure(lambda: embedded(x, index + 10, None))
errors.append(largest_error(embedded(x, index, None), model(x, index, None)))
def work():
    for _ in range(50):
        inputs = embedded_inputs(40)
        errors.append(largest_error(embedded(*inputs), model(*inputs)))
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
other = made(Embedded, seed=1)
embedded.load_constants(other.state_dict(), check_full_update=True)
swapped = largest_error(embedded(x, index, None), other(x, index, None))
x = torch.randn(5, 32)
def folding_error(seed):
    return float((folded(x) / made(Folded, seed)(x) - 1).abs().max())
folding = [folding_error(0)]
folded.load_constants(made(Folded, seed=1).state_dict(), check_full_update=True)
folding.append(folding_error(1))
with open("/proc/self/maps") as maps: libraries = maps.read()
report(errors=errors, out_of_range=out_of_range, swapped=swapped, folding=folding,
       ours="halide_backend" in sys.modules, library="libHalide" in libraries)
""",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
        **NO_PROBES,
    )
    assert len(found["errors"]) == 5 + 4 * 50
    assert max(found["errors"]) < 1e-5 and found["swapped"] < 1e-5
    assert max(found["folding"]) < 1e-4
    assert found["out_of_range"][0] == "RuntimeError"
    assert "_0: index out of range: a dimension of size 10" in found["out_of_range"][2]
    assert not found["ours"] and not found["library"]
    assert_hidden(tmp_path / "embedded.pt2", tmp_path)


#: The target that a loaded model runs on, by its number, read from the memory of its library.
CHOSEN = """
import ctypes, os, subprocess
def chosen():
    with open("/proc/self/maps") as maps:
        line = next(line for line in maps if line.rstrip().endswith(".wrapper.so"))
    table = subprocess.run(["nm", line.split()[-1]], capture_output=True, text=True, check=True).stdout
    (place,) = (each.split()[0] for each in table.splitlines() if each.endswith("6chosenEvE6choice") and "_ZZ" in each)
    return ctypes.c_int.from_address(int(line.partition("-")[0], 16) + int(place, 16)).value
"""


def test_kernels_for_several_targets_are_chosen_when_a_package_is_loaded(run: Run, tmp_path: Path) -> None:
    made = run(
        MODELS
        + """
import halide_backend
from halide_backend import config
config.aot_targets = "avx2, sse41,avx512"
inputs = torch.randn(8, 64), torch.arange(8), None
wrong = {"cpp.march": "x86-64-v3", "cpp.simdlen": 0}
refused = failure(lambda: package("refused.pt2", made(Embedded), inputs))
refused += failure(lambda: package("refused.pt2", made(Embedded), inputs, **wrong))
package("fat.pt2", made(Embedded), inputs, SHAPES, **halide_backend.aot_configs())
configs = halide_backend.aot_configs()
report(refused=refused, configs=configs, unknown=failure(lambda: setattr(config, "aot_targets", "avx")))
""",
        **NO_PROBES,
    )
    backends = dict.fromkeys(("cpu_backend", "cuda_backend"), "halide_backend")
    assert made["configs"] == {**backends, "cpp.march": "x86-64-v2", "cpp.simdlen": 0}
    assert made["unknown"][1] == "HalideBackendError" and "some of 'sse41', 'avx2', 'avx512'" in made["unknown"][2]
    assert "TargetError" in made["refused"][1] + made["refused"][2]
    assert "cpp.march is None" in made["refused"][2] and "aot_configs()" in made["refused"][2]
    assert "cpp.march is 'x86-64-v3'" in made["refused"][5]

    script = (
        MODELS
        + CHECKS
        + CHOSEN
        + """
x, index, _ = embedded_inputs(40)
def load():
    global fat
    fat = torch._inductor.aoti_load_package("fat.pt2")
failed = failure(load)
if not failed[0]:
    got = fat(x, index, None)
    report(error=largest_error(got, made(Embedded)(x, index, None)), chosen=chosen())
report(failed=failed)
"""
    )
    here = [
        name for name in ("sse41", "avx2", "avx512") if not Target.named(name).requires() - Target.host().requires()
    ]
    for number, name in enumerate((*here, "")):
        found = run(script, HALIDE_BACKEND_MODEL_TARGET=name, **NO_PROBES)
        assert found["error"] < 1e-5
        assert found["chosen"] == (number if name else len(here) - 1)
    found = run(script, HALIDE_BACKEND_MODEL_TARGET="riscv", **NO_PROBES)
    assert found["failed"][0] == "RuntimeError"
    assert "HALIDE_BACKEND_MODEL_TARGET is 'riscv', for which this model has no kernels" in found["log"]
    assert_hidden(tmp_path / "fat.pt2", tmp_path)


#: A C++ program: `program PACKAGE` prints 0 or the first thing that is wrong.
PROGRAM = r"""
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/torch.h>
#include <cstdio>
#include <string>
#include <thread>
static torch::Tensor loaded(const char* name) {
  std::vector<char> bytes;
  FILE* file = fopen(name, "rb");
  for (int c; (c = fgetc(file)) != EOF;) bytes.push_back(static_cast<char>(c));
  fclose(file);
  return torch::pickle_load(bytes).toTensor();
}
int main(int, char** arguments) {
  c10::InferenceMode mode;
  torch::inductor::AOTIModelPackageLoader loader(arguments[1], "model", false, 2);
  torch::Tensor x = loaded("x"), wanted = loaded("wanted"), index = torch::arange(8);
  int wrong = 0;
  auto work = [&] {
    for (int k = 0; k < 200; k++) wrong += !torch::allclose(loader.run({x, index})[0], wanted, 1e-5, 1e-6);
  };
  std::thread other(work);
  work();
  other.join();
  if (wrong) return printf("%d results differ\n", wrong), 1;
  try {
    loader.run({x, index + 3});
    return puts("no exception"), 2;
  } catch (const std::exception& error) {
    if (std::string(error.what()).find("index out of range: a dimension of size 10") == std::string::npos) {
      return puts(error.what()), 3;
    }
  }
  return torch::allclose(loader.run({x, index})[0], wanted, 1e-5, 1e-6) ? 0 : 4;
}
"""


@pytest.mark.long
def test_a_program_in_cpp_runs_a_package_and_what_is_built_from_its_sources(run: Run, tmp_path: Path) -> None:
    """The sources of `package_cpp_only` are built by their own CMakeLists.txt, and loaded as they are."""
    run(
        MODELS
        + """
x, index, _ = embedded_inputs(8)
model = made(Embedded)
package("whole.pt2", model, (x, index, None), SHAPES)
package("sources.pt2", model, (x, index, None), SHAPES, **{"aot_inductor.package_cpp_only": True})
for name, tensor in (("x", x), ("wanted", model(x, index, None)[0])):
    with open(name, "wb") as file: file.write(torch._C._pickle_save(tensor))
""",
        **NO_PROBES,
    )
    (tmp_path / "program.cpp").write_text(PROGRAM)
    home = Path(torch.__file__).parent
    include = [f"-I{home / 'include'}", f"-I{home / 'include/torch/csrc/api/include'}"]
    link = [f"-L{home / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{home / 'lib'}"]
    command = ["g++", "-std=c++20", "-O1", "program.cpp", "-o", "program", *include, *link, "-pthread"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(["./program", "whole.pt2"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")

    with zipfile.ZipFile(tmp_path / "sources.pt2") as files:
        files.extractall(tmp_path / "sources")
        assert not [name for name in files.namelist() if name.endswith(".so")]
    (project,) = (tmp_path / "sources").rglob("CMakeLists.txt")
    # torch asks for a newer CMake than it needs for this.
    project.write_text(re.sub(r"(cmake_minimum_required\(VERSION) [\d.]+", r"\1 3.20", project.read_text()))
    environment = {**os.environ, "CMAKE_PREFIX_PATH": str(home)}
    for step in (["cmake", "."], ["cmake", "--build", "."]):
        built = subprocess.run(step, cwd=project.parent, env=environment, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stdout + built.stderr
    (library,) = project.parent.glob("*.so")
    found = run(
        MODELS
        + f"""
runner = torch._C._aoti.AOTIModelContainerRunnerCpu({str(library)!r}, 1)
x, index, _ = embedded_inputs(8)
report(error=float((runner.run([x, index])[0] - made(Embedded)(x, index, None)[0]).abs().max()))
""",
        **NO_PROBES,
    )
    assert found["error"] < 1e-6


@pytest.mark.long
@pytest.mark.parametrize("minimal", [False, True])
def test_stack_allocation(run: Run, minimal: bool) -> None:
    """Kernels write to arrays on the wrapper's stack; with the minimal interface torch has more in them."""
    found = run(
        MODELS
        + CHECKS
        + f"""
class Small(nn.Module):
    def forward(self, x):
        y = torch.softmax(x * 2, -1)
        return y.flip(0) * y.sum(), y.t().contiguous()
from torch._inductor import config
config.aot_inductor.allow_stack_allocation = True
config.aot_inductor.use_minimal_arrayref_interface = {minimal}
x = torch.randn(5, 6)
name = package("small.pt2", Small(), (x,), **{{"aot_inductor.allow_stack_allocation": True}})
import zipfile
with zipfile.ZipFile(name) as files:
    source = next(files.read(n).decode() for n in files.namelist() if n.endswith(".wrapper.cpp"))
model = torch._inductor.aoti_load_package(name)
report(error=max(largest_error(model(x), Small()(x)) for _ in range(3)), on_stack="ArrayRefTensor<float> buf" in source)
""",
        **NO_PROBES,
    )
    assert found["error"] < 1e-5
    assert found["on_stack"]


def test_values_printed_around_a_kernel(run: Run) -> None:
    """`aot_inductor.debug_intermediate_value_printer` knows this backend's kernels: what PyTorch's own
    test_aoti_debug_printer_cpp_kernel asks of Inductor's kernel, whose name it looks for. Nothing is printed around
    kernels that `filtered_kernel_names` leaves out."""
    found = run(
        MODELS
        + """
import subprocess
class Scaled(nn.Module):
    def forward(self, x):
        return x * torch.sqrt(torch.tensor(x.size(-1), dtype=torch.float) * 3)
def printed(**settings):
    settings["aot_inductor.debug_intermediate_value_printer"] = "2"
    package("scaled.pt2", Scaled(), (torch.ones(4, 4),), **settings)
    load = "import torch; torch._inductor.aoti_load_package('scaled.pt2')(torch.ones(4, 4))"
    return subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, check=True).stdout
report(printed=printed(), other=printed(**{"aot_inductor.filtered_kernel_names": "another_kernel"}))
""",
        **NO_PROBES,
    )
    titles = re.findall(r"\[  ((?:before|after)_launch - \S+ - \w+?)\d+", found["printed"])
    assert titles == [
        f"{when}_launch - halide_fused_mul_sqrt_0 - {what}" for when in ("before", "after") for what in ("arg", "buf")
    ]
    before, after = found["printed"].split("after_launch - halide_fused_mul_sqrt_0 - buf0")
    assert "Mean value: 3.4641" in after and "Mean value: 3.4641" not in before
    assert "_launch" not in found["other"] and "aoti_model_inputs" in found["other"]


def test_a_kernel_that_is_called_twice_is_defined_once(run: Run) -> None:
    """PyTorch's own test_reuse_kernel asks it of Triton's kernel, whose name it looks for."""
    found = run(
        MODELS
        + CHECKS
        + """
import zipfile
class Sines(nn.Module):
    def forward(self, x, y):
        a = torch.sin(x)
        b = a @ y
        return b @ torch.sin(b)
x, y = torch.randn(87, 87), torch.randn(87, 87)
name = package("sines.pt2", Sines(), (x, y))
with zipfile.ZipFile(name) as files:
    source = next(files.read(n).decode() for n in files.namelist() if n.endswith(".wrapper.cpp"))
report(error=largest_error([torch._inductor.aoti_load_package(name)(x, y)], [Sines()(x, y)]),
       defined=source.count("static inline void halide_fused_"), called=source.count(" halide_fused_sin_0((void*)"))
""",
        **NO_PROBES,
    )
    assert found["error"] < 1e-5
    assert (found["defined"], found["called"]) == (1, 2)


def assert_hidden(package: Path, folder: Path) -> None:
    """The model's library exports torch's entry points and nothing of kernels and runtime."""
    with zipfile.ZipFile(package) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".so"))
        library = files.extract(name, folder)
    dynamic = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    assert "AOTInductorModelContainerRun" in dynamic
    assert not [line for line in dynamic.splitlines() if "halide" in line or "kernel_" in line or "hb1_" in line]


def test_products_by_onednn_run_without_this_package(run: Run) -> None:
    """A product of dynamic size with a bias, and one whose weight is not transposed."""
    run(
        MODELS
        + """
import halide_backend
halide_backend.config.product_library = "onednn"
class Products(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.weight = nn.Linear(48, 40), nn.Parameter(torch.randn(40, 24))
    def forward(self, x):
        return torch.tanh(self.linear(x)) @ self.weight
package("products.pt2", made(Products), (torch.randn(8, 48),), {"x": {0: BATCH}})
made_model, x = made(Products), torch.randn(33, 48)
torch.save((x, made_model.double()(x.double())), "wanted.pt")
""",
        **NO_PROBES,
    )
    found = run(
        """
import torch, zipfile
x, wanted = torch.load("wanted.pt")
got = torch._inductor.aoti_load_package("products.pt2")(x)
package = zipfile.ZipFile("products.pt2")
(text,) = (package.read(name).decode() for name in package.namelist() if name.endswith("wrapper.cpp"))
report(error=float((got.double() - wanted).abs().max() / wanted.abs().max()),
       calls=text.count("aoti_torch_cpu__linear_pointwise("))
""",
        **NO_PROBES,
    )
    assert found["error"] < 2e-6
    assert found["calls"] == 2
