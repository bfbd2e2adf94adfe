"""Launches on a GPU, as far as they show on a machine without one."""

from __future__ import annotations

import ctypes.util
from collections.abc import Callable
from typing import Any

import pytest

from halide_backend.errors import KernelRuntimeError
from halide_backend.launch.launcher import Pipeline, make_launcher, native

#: A kernel that launches a grid of so many blocks as its argument says, without arguments of its own.
_LAUNCH = """
declare i32 @halide_cuda_run(ptr, ptr, ptr, i32, i32, i32, i32, i32, i32, i32, ptr, ptr, ptr)
@name = constant [2 x i8] c"k\\00"
@sizes = constant [1 x i64] zeroinitializer
define i32 @kernel(ptr %arguments) {
  %place = load ptr, ptr %arguments
  %blocks = load i32, ptr %place
  %code = call i32 @halide_cuda_run(ptr null, ptr null, ptr @name, i32 %blocks, i32 1, i32 1, i32 1, i32 1, i32 1,
                                    i32 0, ptr @sizes, ptr null, ptr null)
  ret i32 %code
}
"""


@pytest.mark.skipif(ctypes.util.find_library("cuda") is not None, reason="there is a driver")
def test_a_grid_without_blocks_is_no_launch(link_ir: Callable[[str, str], tuple[int, Any]]) -> None:
    """A dynamic size may be 0, and the driver refuses an empty grid; here it would be missing already."""
    address, code = link_ir(_LAUNCH, "kernel")
    sizes = [{"kind": "int32", "name": "n0"}]
    pipeline = Pipeline(address, sizes, (0,), (), False, code, native().CudaModule(b"\0"))
    kernel = make_launcher("launches", [pipeline], 2)
    assert kernel(0, 0) is None
    with pytest.raises(KernelRuntimeError, match="no CUDA driver"):
        kernel(1, 0)
