"""C++20 sources that become part of a model which runs without Python."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path


@cache
def model_runtime() -> str:
    """What kernels call (docs/reference/c-interface.md), to be compiled into the library that has them, once."""
    return _text("model_runtime.cpp")


@cache
def runtime_functions() -> frozenset[str]:
    """The names of the functions that `model_runtime` defines for kernels."""
    return frozenset(re.findall(r"^\S+ (halide_\w+)\(", model_runtime(), re.MULTILINE))


@cache
def model_processor() -> str:
    """What chooses among kernels by what the processor has; it is to follow a definition of HALIDE_BACKEND_TARGETS."""
    return _text("model_processor.cpp")


@cache
def gpu_runtime(targets: tuple[tuple[int, bool], ...]) -> str:
    """What kernels for a GPU call besides, to follow `model_runtime`.

    `targets` are the compute capabilities that there are kernels for, 90 for 9.0, and whether these are PTX.
    """
    table = ", ".join(f"{{{capability}, {str(is_ptx).lower()}}}" for capability, is_ptx in targets)
    return f"""#include <dlfcn.h>
#include <pthread.h>
#include <iterator>
using halide_backend_runtime::fail;
struct GpuTarget {{
  int capability;
  bool is_ptx;
}};
static constexpr GpuTarget gpu_targets[] = {{{table}}};
{_text("gpu_module.inc")}{_text("model_gpu.cpp")}"""


def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text()
