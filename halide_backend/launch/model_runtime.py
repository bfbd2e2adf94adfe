"""C++20 sources that become part of a model which runs without Python."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def model_runtime() -> str:
    """What kernels call (docs/reference/c-interface.md), to be compiled into the library that has them, once."""
    return Path(__file__).with_name("model_runtime.cpp").read_text()


@cache
def model_processor() -> str:
    """What chooses among kernels by what the processor has; it is to follow a definition of HALIDE_BACKEND_TARGETS."""
    return Path(__file__).with_name("model_processor.cpp").read_text()
