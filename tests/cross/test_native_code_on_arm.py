"""The native code of a wheel, built for 64-bit ARM: that it compiles, and that the launcher launches."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import halide
import pybind11
import pytest
import torch
from launcher_on_arm import ARM, ROOT, LauncherOnArm, debian_python, missing
from torch._inductor import config as inductor

from halide_backend.build import elf

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = pytest.mark.skipif(bool(ARM.missing), reason=ARM.missing)


def declared() -> dict[str, Any]:
    """The extension that pyproject.toml describes."""
    (extension,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    return dict(extension)


def built(tmp_path: Path, *arguments: str) -> Path:
    """A library for ARM of C or C++ sources of this repository, made as packaging/wheels.sh makes it."""
    compiler = ARM.compiler if any(argument.endswith(".cpp") for argument in arguments) else "aarch64-linux-gnu-gcc"
    library = tmp_path / "built.so"
    include = ["-include", "packaging/glibc_2_28.h", "-I", sysconfig.get_path("include")]
    link = ["-Wl,--no-as-needed", "-l:libdl.so.2", "-l:libpthread.so.0"]
    command = [compiler, *include, *arguments, "-fPIC", "-shared", *link, "-o", str(library)]
    subprocess.run(command, cwd=ROOT, check=True)
    assert elf.machine(library.read_bytes()) == elf.AARCH64
    return library


def newest(library: Path, version: str) -> tuple[int, ...]:
    """The newest version of the C or C++ library that a library needs."""
    command = ["aarch64-linux-gnu-objdump", "-T", str(library)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return max(tuple(map(int, found.split("."))) for found in re.findall(rf"\b{version}_([\d.]+)\b", said))


def test_the_launcher_compiles_without_warnings_for_an_old_c_library(tmp_path: Path) -> None:
    extension = declared()
    library = built(tmp_path, *extension["extra-compile-args"], "-Werror", *extension["sources"])
    assert newest(library, "GLIBC") <= (2, 28)


def test_the_binding_to_halide_compiles_with_the_headers_of_its_wheel(tmp_path: Path) -> None:
    include = (f"-I{Path(module.__file__).parent / 'include'}" for module in (halide, pybind11))
    flags = ["-std=c++17", "-O1", "-fvisibility=hidden"]
    library = built(tmp_path, *flags, *include, "halide_backend/kernel_library/cuda/intrinsics.cpp")
    # What manylinux_2_28 allows.
    assert newest(library, "GLIBC") <= (2, 28) and newest(library, "GLIBCXX") <= (3, 4, 24)


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> LauncherOnArm:
    if missing():
        pytest.skip(missing())
    folder = tmp_path_factory.mktemp("arm")
    try:
        version = debian_python(folder / "debian")
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"Debian's Python for ARM cannot be had: {error}")
    return LauncherOnArm(folder, version, declared()["sources"])


def function(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return torch.softmax(torch.sin(x[index]) * 2, -1)


def launched(arm: LauncherOnArm, *arguments: torch.Tensor) -> torch.Tensor:
    torch._dynamo.reset()
    with arm.launched(), inductor.patch(force_disable_caches=True):
        return torch.compile(function, backend="halide_backend")(*arguments)


def test_the_launcher_runs_kernels_on_threads(arm: LauncherOnArm) -> None:
    x, index = torch.randn(700, 130), torch.randint(-700, 700, (900,))
    before = len(arm.launches)
    got = launched(arm, x, index)
    torch.testing.assert_close(got, function(x.double(), index).float(), rtol=2e-6, atol=1e-7)
    assert "halide_do_par_for" in set().union(*arm.launches[before:])


def test_the_launcher_raises_what_a_kernel_finds(arm: LauncherOnArm) -> None:
    x, index = torch.randn(700, 130), torch.full((900,), 700)
    with pytest.raises(RuntimeError, match="index out of range"):
        launched(arm, x, index)
