"""The runtime of kernels in models that run without Python, as C++20 source."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def model_runtime() -> str:
    """What kernels call (docs/reference/c-interface.md), to be compiled into the library that has them, once."""
    return Path(__file__).with_name("model_runtime.cpp").read_text()
