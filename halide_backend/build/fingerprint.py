"""What decides the machine code of a kernel, as the fields of its cache key.

Everything is found without importing halide, which only workers do.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
from functools import cache
from pathlib import Path

from halide_backend.build import elf
from halide_backend.build.ptx import ptxas
from halide_backend.build.target import Target
from halide_backend.errors import UnsupportedVersionError
from halide_backend.sources import sources_digest
from kernels_cache.canonical import Json

#: The sources that decide what a text compiles to: what texts import, and the build. What writes texts is not among
#: them: its work stands in the text.
SOURCES = (
    "build",
    "kernel_library",
    "program/dtypes.py",
    *(f"schedule/{part}" for part in ("apply.py", "legality", "stage.py", "steps.py", "tiling.py")),
)


def key_fields(text: str, target: Target) -> dict[str, Json]:
    """Return the fields of a kernel's key, plain JSON.

    Raises:
        UnsupportedVersionError: halide or llvmlite is not installed.
        MissingNativeExtensionError: the launcher's compiled part is absent.
    """
    return {
        "text": text,
        "target": {**target.to_json()},
        **({"ptxas": ptxas.version(), "intrinsics": _intrinsics()} if target.capability else {}),
        **toolchain(),
    }


@cache
def _intrinsics() -> str:
    """SHA-256 of the extension that texts for a GPU import, as hexadecimal digits; "" where it is absent."""
    folder = Path(__file__).parents[1] / "kernel_library" / "cuda"
    return "".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("_intrinsics*.so"))


@cache
def toolchain() -> dict[str, Json]:
    """Return the fields that are the same for every kernel of this process (~10 ms once)."""
    from llvmlite import binding as llvm

    from halide_backend.launch import launcher

    return {
        "halide": library_identity("halide", "lib64/libHalide.so"),
        "llvmlite": library_identity("llvmlite", "binding/libllvmlite.so"),
        "llvm": ".".join(map(str, llvm.llvm_version_info)),
        "abi": launcher.native().ABI,
        "sources": sources_digest(SOURCES),
    }


def library_identity(package: str, library: str) -> str:
    """Return version and build id of an installed package's shared library.

    Two builds of one version differ in the id; a library that was linked without one has its
    version only.

    Raises:
        UnsupportedVersionError: the package is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UnsupportedVersionError(
            f"{package} is not installed",
            where=package,
            cure=f"Run `pip install {package}` in this environment.",
        )
    version = importlib.metadata.version(package)
    for location in spec.submodule_search_locations:
        path = Path(location, library)
        if path.is_file():
            return f"{version} {elf.build_id(str(path)) or ''}".strip()
    return version
