"""Quotients of indices and sizes by multiplication: right for every int32 that is not negative."""

from __future__ import annotations

import halide as hl
import numpy as np
import pytest

from halide_backend.kernel_library import memory as portable
from halide_backend.kernel_library.cuda import memory

LIMIT = 1 << 31
SIZES = [*range(1, 12), 37, 63, 64, 65, 641, 1023, 1024, 1025, 65_535, 65_536, 65_537]
SIZES += [2**30 - 1, 2**30, 2**30 + 1, 2**31 - 1, *np.random.default_rng(5).integers(1, LIMIT, 50).tolist()]


@pytest.fixture(scope="module")
def divide():
    """divide(numbers, size): quotients and remainders."""
    x, size, given = hl.Var("x"), hl.Param(hl.Int(32), "size"), hl.ImageParam(hl.Int(32), 1)
    quotients, remainders = hl.Func("quotients"), hl.Func("remainders")
    quotients[x], remainders[x] = memory.quotient(given[x], size), memory.remainder(given[x], size)
    pipeline = hl.Pipeline([quotients, remainders])

    def run(numbers: np.ndarray, by: int) -> tuple[np.ndarray, np.ndarray]:
        given.set(hl.Buffer(numbers))
        size.set(by)
        results = [hl.Buffer(hl.Int(32), [len(numbers)]) for _ in range(2)]
        pipeline.realize(results)
        return tuple(map(np.array, results))

    return run


@pytest.mark.parametrize("size", SIZES)
def test_quotients(divide, size: int) -> None:
    multiples = np.arange(0, LIMIT // size + 1, max(1, LIMIT // size // 3000), dtype=np.int64) * size
    edges = np.concatenate([np.arange(3000), LIMIT - 1 - np.arange(3000), multiples, multiples - 1])
    numbers = edges[(edges >= 0) & (edges < LIMIT)].astype(np.int32)
    quotients, remainders = divide(numbers, size)
    assert np.array_equal(quotients, numbers // size)
    assert np.array_equal(remainders, numbers % size)


def test_quotients_by_products_are_those_by_one_after_another() -> None:
    x, a, b = hl.Var("x"), hl.Param(hl.Int(32), "a"), hl.Param(hl.Int(32), "b")
    numbers = np.random.default_rng(6).integers(0, LIMIT, 3000).astype(np.int32)
    for library in (memory, portable):
        given = hl.ImageParam(hl.Int(32), 1)
        quotients, remainders = hl.Func("quotients"), hl.Func("remainders")
        quotients[x], remainders[x] = (f(given[x], a, b, b, 6) for f in (library.quotient, library.remainder))
        pipeline = hl.Pipeline([quotients, remainders])
        given.set(hl.Buffer(numbers))
        for sizes in ((1, 1), (3, 7), (64, 1000), (5, 4096)):
            a.set(sizes[0]), b.set(sizes[1])
            results = [hl.Buffer(hl.Int(32), [len(numbers)]) for _ in range(2)]
            pipeline.realize(results)
            part = sizes[0] * sizes[1] ** 2 * 6
            assert np.array_equal(np.array(results[0]), numbers // part)
            assert np.array_equal(np.array(results[1]), numbers % part)
