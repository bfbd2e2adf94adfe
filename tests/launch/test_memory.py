"""Scratch memory and locks of kernels, called the way compiled code calls them."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np
import pytest
import torch
from launch_manifests import buffer

from halide_backend import errors
from halide_backend.launch.launcher import Pipeline, make_launcher, native

Build = Callable[..., Any]
MIB = 1 << 20

malloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(native().symbols()["halide_malloc"])
free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(native().symbols()["halide_free"])


class Usage(ctypes.Structure):
    """`struct mallinfo2` of glibc's malloc.h."""

    _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = tuple((name, ctypes.c_size_t) for name in _names)


def allocated() -> int:
    """Bytes that this process got from malloc and has not given back; what malloc itself keeps is not among them."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Usage
    usage = mallinfo2()
    return int(usage.uordblks + usage.hblkhd)


def test_blocks_are_aligned_and_apart() -> None:
    sizes = [0, 1, 63, 64, 65, 127, 128, 129, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, 5 * MIB]
    blocks = []
    for round_number in range(2):
        for size in sizes:
            block = malloc(None, size)
            assert block is not None
            assert block % 64 == 0
            ctypes.memset(block - 8, 0, 0)
            ctypes.memset(block, (size + round_number) % 251, size)
            # Halide reads up to 8 bytes before and behind.
            ctypes.string_at(block - 8, 8)
            ctypes.string_at(block + size, 8)
            blocks.append((block, size, (size + round_number) % 251))
    for block, size, value in blocks:
        assert ctypes.string_at(block, size) == bytes([value]) * size
        free(None, block)
    free(None, None)


def test_a_freed_block_is_used_again() -> None:
    pairs: list[tuple[int, int]] = []

    def work() -> None:
        for size in (100, 5000, 300_000):
            block = malloc(None, size)
            free(None, block)
            pairs.append((block, malloc(None, size)))
            free(None, block)

    # The cache of a thread that other tests have used may be full.
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(pairs) == 3 and all(first == second for first, second in pairs)


def test_cache_is_bounded() -> None:
    before = allocated()
    blocks = [malloc(None, MIB) for _ in range(100)]
    assert allocated() > before + 80 * MIB  # the cache of this thread may have held some
    for block in blocks:
        free(None, block)
    assert allocated() < before + 16 * MIB


def test_cache_goes_with_its_thread() -> None:
    def work() -> None:
        blocks = [malloc(None, MIB) for _ in range(3)]
        for block in blocks:
            ctypes.memset(block, 1, MIB)
        for block in blocks:
            free(None, block)

    work()
    before = allocated()
    for _ in range(100):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert allocated() < before + 40 * MIB


ALLOCATE_AND_FAIL = """
declare ptr @halide_malloc(ptr, i64)
declare void @halide_free(ptr, ptr)
declare ptr @memset(ptr, i32, i64)
define i32 @kernel(ptr %arguments) {
  %a = call ptr @halide_malloc(ptr null, i64 3000000)
  %1 = call ptr @memset(ptr %a, i32 1, i64 3000000)
  %b = call ptr @halide_malloc(ptr null, i64 1000)
  %c = call ptr @halide_malloc(ptr null, i64 500000)
  call void @halide_free(ptr null, ptr %b)
  %d = call ptr @halide_malloc(ptr null, i64 -64)
  store i32 1, ptr %d
  ret i32 0
}
"""


def test_out_of_memory_is_an_error_and_leaks_nothing(kernel_of_ir: Build) -> None:
    kernel = kernel_of_ir(ALLOCATE_AND_FAIL, [], name="halide_big_0")

    def fail() -> None:
        with pytest.raises(errors.KernelRuntimeError, match=r"halide_big_0: not enough memory"):
            kernel()

    fail()
    gc.collect()
    before = allocated()
    for _ in range(100):
        fail()
    assert allocated() < before + 50 * MIB


def test_scratch_that_does_not_fit_in_a_halide_kernel(compile_halide: Build) -> None:
    """With no_asserts Halide does not test the result of halide_malloc, so the runtime must."""
    n = hl.Param(hl.Int(32), "n")
    x, y, scratch, out = hl.Var("x"), hl.Var("y"), hl.Func("scratch"), hl.Func("out")
    r = hl.RDom([(0, n), (0, n)], "r")
    scratch[x, y] = hl.f32(x + y)
    out[x] = hl.f32(0)
    out[x] += scratch[r.x, r.y]
    scratch.compute_root()
    address, code, _ = compile_halide([n], [out])
    arguments = [{"kind": "int32", "name": "n"}, buffer("out", 1)]
    kernel = make_launcher("square", [Pipeline(address, arguments, (0, 1), (), True, code)], 2)
    result = torch.zeros(1)
    kernel(10, result)
    assert result.item() == sum(i + j for i in range(10) for j in range(10))
    with pytest.raises(errors.KernelRuntimeError, match="kernel square: not enough memory"):
        kernel(2**30, result)
    kernel(3, result)
    assert result.item() == 18


def test_rows_with_scratch(compile_halide: Build) -> None:
    rows, columns = 300, 700
    a, x, y = hl.ImageParam(hl.Float(32), 1, "a"), hl.Var("x"), hl.Var("y")
    scratch, out = hl.Func("scratch"), hl.Func("out")
    scratch[x, y] = a[x + y * columns] * 3
    out[x, y] = scratch[x, y] - scratch[columns - 1 - x, y]
    out.parallel(y).bound(x, 0, columns)
    scratch.compute_at(out, y).store_in(hl.MemoryType.Heap)
    address, code, image = compile_halide([a], [out])
    assert b"halide_malloc" in image
    arguments = [buffer("a", rows * columns), buffer("out", columns, (rows, columns))]
    kernel = make_launcher("rows", [Pipeline(address, arguments, (0, 1), (), True, code)], 2)
    source = torch.randn(rows, columns)
    for _ in range(20):
        result = torch.full((rows, columns), torch.nan)
        kernel(source, result)
        assert torch.equal(result, source * 3 - source.flip(1) * 3)


def test_atomic_update_that_needs_a_lock(compile_halide: Build) -> None:
    """An update of two values that depend on each other takes a lock per element."""
    n, bins = 5000, 16
    value = hl.ImageParam(hl.Int(32), 1, "value")
    place = hl.ImageParam(hl.Int(32), 1, "place")
    x, best, r = hl.Var("x"), hl.Func("best"), hl.RDom([(0, n)], "r")
    at = hl.unsafe_promise_clamped(place[r.x], 0, bins - 1)
    best[x] = (hl.i32(-1), hl.i32(-1))
    better = value[r.x] > best[at][0]
    best[at] = (
        hl.select(better, value[r.x], best[at][0]),
        hl.select(better, r.x, best[at][1]),
    )
    best.update(0).atomic(True).parallel(r.x)
    address, code, image = compile_halide([value, place], [best])
    assert b"halide_mutex_array_lock" in image
    arguments = [buffer(name, n, code=0) for name in ("value", "place")]
    arguments += [buffer(name, bins, code=0) for name in ("best", "where")]
    kernel = make_launcher("best", [Pipeline(address, arguments, range(4), (), True, code)], 4)
    torch.set_num_threads(2)
    values = torch.randperm(n, dtype=torch.int32)
    places = torch.randint(0, bins, (n,), dtype=torch.int32)
    for _ in range(20):
        found = torch.zeros(bins, dtype=torch.int32), torch.zeros(bins, dtype=torch.int32)
        kernel(values, places, *found)
        for k in range(bins):
            chosen = np.where(places.numpy() == k, values.numpy(), -1)
            assert found[0][k] == chosen.max()
            assert found[1][k] == chosen.argmax()


def test_lock_excludes_other_threads() -> None:
    known = native().symbols()
    pointer, number = ctypes.c_void_p, ctypes.c_int
    create = ctypes.CFUNCTYPE(pointer, ctypes.c_uint64)(known["halide_mutex_array_create"])
    destroy = ctypes.CFUNCTYPE(None, pointer, pointer)(known["halide_mutex_array_destroy"])
    lock = ctypes.CFUNCTYPE(number, pointer, number)(known["halide_mutex_array_lock"])
    unlock = ctypes.CFUNCTYPE(number, pointer, number)(known["halide_mutex_array_unlock"])
    locks = create(1000)
    assert lock(locks, 3) == 0
    assert lock(locks, 4) == 0  # one does not hold the other
    entered = threading.Event()

    def enter() -> None:
        lock(locks, 3)
        entered.set()
        unlock(locks, 3)

    thread = threading.Thread(target=enter)
    thread.start()
    assert not entered.wait(0.1)
    assert unlock(locks, 3) == 0
    assert entered.wait(20)
    thread.join()
    destroy(None, locks)
