"""What the launching half of a GPU kernel may need."""

from __future__ import annotations

import pytest
from llvmlite import binding as llvm

from halide_backend.build.device_code import block_threads, check_calls, check_shared_memory
from halide_backend.build.llvm.code_generation import emit_object
from halide_backend.build.target import Target
from halide_backend.errors import HalideCompileError


def launch(threads: tuple[int, int, int], shared: str) -> str:
    """As Halide's IR has it."""
    sizes = ", ".join(f"i32 {n}" for n in (8, 1, 1, *threads))
    return f"  %1 = call i32 @halide_cuda_run(ptr null, ptr %state, ptr @name, {sizes}, i32 {shared}, ptr %types)\n"


def test_the_threads_of_a_block_are_known_where_all_launches_have_the_same() -> None:
    same = launch((128, 2, 1), "0")
    assert block_threads(same) == (128, 2, 1)
    assert block_threads(same + same) == (128, 2, 1)
    assert block_threads(same + launch((64, 2, 1), "0")) == ()


def test_a_block_has_so_much_shared_memory_and_no_more() -> None:
    check_shared_memory(launch((128, 1, 1), "49152"), "k")
    with pytest.raises(HalideCompileError, match=r"kernel k.*49168 bytes of shared memory, more than 49152"):
        check_shared_memory(launch((128, 1, 1), "1024") + launch((128, 1, 1), "49168"), "k")
    with pytest.raises(HalideCompileError, match=r"computed when it is launched .%size"):
        check_shared_memory(launch((128, 1, 1), "%size"), "k")


def test_a_launch_allocates_nothing() -> None:
    def calling(function: str) -> bytes:
        ir = f"declare i32 @{function}()\ndefine i32 @k() {{\n  %1 = call i32 @{function}()\n  ret i32 %1\n}}\n"
        return emit_object(f'target triple = "{llvm.get_process_triple()}"\n{ir}', Target.host(), "k")

    check_calls(calling("halide_cuda_run"), "k")
    with pytest.raises(HalideCompileError, match=r"kernel k.*its launch needs halide_device_malloc"):
        check_calls(calling("halide_device_malloc"), "k")
