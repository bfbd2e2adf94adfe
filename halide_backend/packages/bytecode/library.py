"""The library in a package that was made without a compiler: where it is, and how it is built, which needs g++.

    python -m halide_backend.packages.bytecode.library

builds it for the installed version of torch, beside its sources: torch's container of models and the interpreter of
bytecode. What makes packages only copies it. `--torch FOLDER` names another torch, the folder `torch` of a wheel, which
need not be one for this Python, nor start; CXX, CXXFLAGS and LDFLAGS are the compiler and what it is told besides.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from halide_backend import versions
from halide_backend.errors import PackageError
from halide_backend.launch.model_runtime import runtime_functions
from halide_backend.packages.bytecode.instructions import FORMAT

_HERE = Path(__file__).parent
#: As far as torch's version of the C functions goes: those of the CPU, and those of ATen for all devices.
_HEADERS = ("c_shim_cpu.h", "c_shim_aten.h")
_DECLARATION = re.compile(r"AOTITorchError (aoti_torch_\w+)\(([^)]*)\)")


def library() -> Path:
    """The library for the installed torch.

    Raises:
        PackageError: it was not built for this version of torch, or cannot be.
    """
    if not versions.loads_packages_of_bytecode():
        raise PackageError(
            "a package without a compiler needs torch 2.13 or newer",
            where=f"torch {versions.installed_version('torch')}",
            cure="Update torch, or make the package with torch._inductor.aoti_compile_and_package.",
        )
    path = _path()
    if not path.is_file():
        raise PackageError(
            f"there is no library of bytecode for torch {_version(_installed())} on {platform.machine()}",
            where=str(path),
            cure="Build it once, with g++: python -m halide_backend.packages.bytecode.library",
        )
    return path


def build(torch: Path | None = None) -> Path:
    """Compile the library for the torch in a folder, or the installed one; where it is.

    Raises:
        PackageError: there is no torch, or the compiler, $CXX or g++, is not there or fails.
    """
    torch = torch or _installed()
    path = _path(torch)
    unfinished = path.with_name(f"{path.stem}.{os.getpid()}.so")
    command = _command(torch, str(unfinished))
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PackageError(
                f"the compiler fails: {done.stderr[-4000:]}", where=command[0], cure="Try another one: CXX."
            )
        os.replace(unfinished, path)
    except OSError as error:
        raise PackageError(
            f"it cannot be built: {error}", where=str(path), cure="Install g++, or set CXX to another compiler."
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def is_current() -> bool:
    """Whether the library is there, and newer than its sources."""
    path = _path()
    sources = [*_HERE.glob("*.?pp"), *(_HERE.parents[1] / "launch").glob("model_*.cpp"), _HERE / "instructions.py"]
    return path.is_file() and path.stat().st_mtime > max(source.stat().st_mtime for source in sources)


def declared() -> dict[str, tuple[tuple[str, str], ...]]:
    """The installed torch's C functions by their names; of each the parameters, as pairs of C type and name."""
    return _declared(_installed())


@cache
def _declared(torch: Path) -> dict[str, tuple[tuple[str, str], ...]]:
    folder = torch / "include/torch/csrc/inductor/aoti_torch/generated"
    functions = {}
    for header in _HEADERS:
        for name, parameters in _DECLARATION.findall((folder / header).read_text()):
            pairs = (parameter.strip().rpartition(" ") for parameter in parameters.split(",") if parameter.strip())
            functions[name] = tuple((kind, parameter) for kind, _, parameter in pairs)
    return functions


def _command(torch: Path, path: str) -> Sequence[str]:
    interface = torch / "_inductor/codegen/aoti_runtime/interface.cpp"
    defined = {
        "HALIDE_BACKEND_BYTECODE_FORMAT": str(FORMAT),
        "HALIDE_BACKEND_SHIMS": " ".join(f"HALIDE_BACKEND_SHIM({name})" for name in _declared(torch)),
        "HALIDE_BACKEND_RUNTIME": " ".join(f"HALIDE_BACKEND_RUNTIME_FUNCTION({name})" for name in runtime_functions()),
        "HALIDE_BACKEND_TORCH_INTERFACE": f'"{interface}"',
        "USE_MMAP_EXTERNAL": "1",
    }
    flags, link = (shlex.split(os.environ.get(name, "")) for name in ("CXXFLAGS", "LDFLAGS"))
    return (
        os.environ.get("CXX", "g++"),
        *("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-plt", "-Wall", "-Wextra"),
        *(f"-D{name}={value}" for name, value in defined.items()),
        *("-isystem", str(torch / "include"), *flags),
        *(str(_HERE / name) for name in ("model.cpp", "program.cpp")),
        *(f"-Wl,--version-script={_HERE / 'model.map'}", *link, "-Wl,--no-as-needed"),
        *("-L", str(torch / "lib"), "-ltorch_cpu", "-ldl", "-lm", "-Wl,--as-needed", "-Wl,-s", "-o", path),
    )


def _path(torch: Path | None = None) -> Path:
    version = ".".join(_version(torch or _installed()).split(".")[:2])
    return _HERE / f"model-torch{version}-{platform.machine()}.so"


def _version(torch: Path) -> str:
    """What the torch in a folder says that it is, without starting it.

    Raises:
        PackageError: there is no torch.
    """
    try:
        found = re.search(r"^__version__ = ['\"](.+)['\"]", (torch / "version.py").read_text(), re.MULTILINE)
    except OSError:
        found = None
    if not found:
        raise PackageError("there is no torch", where=str(torch), cure="Name the folder `torch` of an installation.")
    return found[1]


def _installed() -> Path:
    import torch

    return Path(torch.__file__).parent


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--torch", type=Path, help="the folder `torch` of a wheel; otherwise the installed one's")
    sys.stdout.write(f"{build(parser.parse_args().torch)}\n")
