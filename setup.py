"""The extension that needs Halide's C++ headers; everything else stands in pyproject.toml.

It serves kernels on CUDA alone, so an installation without a C++ compiler or without Halide at build time goes on
without it.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from setuptools import Extension, setup


def intrinsics() -> list[Extension]:
    """The extension, if its headers are there."""
    halide, pybind11 = (importlib.util.find_spec(name) for name in ("halide", "pybind11"))
    if not (halide and halide.origin and pybind11 and pybind11.origin):
        return []
    root = Path(halide.origin).parent
    return [
        Extension(
            "halide_backend.kernel_library.cuda._intrinsics",
            ["halide_backend/kernel_library/cuda/intrinsics.cpp"],
            include_dirs=[str(root / "include"), str(Path(pybind11.origin).parent / "include")],
            # The library is the one that `import halide` has loaded by then, found by its name.
            extra_compile_args=["-std=c++17", "-O1", "-fvisibility=hidden"],
            library_dirs=[str(root / "lib64")],
            libraries=["Halide"],
            optional=True,
        )
    ]


setup(ext_modules=intrinsics())
