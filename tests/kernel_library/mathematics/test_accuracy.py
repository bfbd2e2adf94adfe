"""Every function against an independent truth: largest error in ulps, special values, no call to anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from arguments import (
    STRIDE_32,
    Floats,
    arguments,
    padded,
    pairs,
    specials,
)
from special_truth import PAIRS, SPECIALS
from truth import LONG_DOUBLE, float64_truth, long_double_truth, mpmath_truth, torch_function
from ulps import errors_in_ulps, ulp_64
from vector_kernel import HOST, WITHOUT_FMA, VectorKernel, vector_kernel

from halide_backend.build.target import Target
from halide_backend.kernel_library import mathematics
from halide_backend.program.operation_names import RECURRENCES


@dataclass(frozen=True)
class Bound:
    """Largest error in ulps. without_fma: of binary32 where the target has no FMA, if larger.

    floor: below this size of the result the ulp of the floor counts (see gamma.py).
    """

    binary32: float
    binary64: float
    arity: int = 1
    floor: float = 0.0
    without_fma: float = 0.0


BOUNDS = {
    "acos": Bound(0.51, 0.7),
    "acosh": Bound(0.51, 2.0),
    "asin": Bound(0.51, 0.75),
    "asinh": Bound(0.51, 1.5),
    "atan": Bound(0.51, 1.0),
    "atan2": Bound(0.51, 0.9, arity=2),
    "atanh": Bound(0.51, 1.5),
    "cos": Bound(1.6, 0.6),
    "cosh": Bound(1.6, 1.5),
    "digamma": Bound(0.6, 1.6, floor=1.0),
    "erf": Bound(1.3, 0.86),
    "erfc": Bound(0.7, 0.85),
    "erfcx": Bound(0.51, 2.0),  # torch: 440
    "erfinv": Bound(0.51, 1.5),  # torch: 0.5, by two steps of Newton's method with the C library's erf
    "exp": Bound(0.95, 0.75),
    "exp2": Bound(1.1, 1.0),
    "expm1": Bound(1.5, 1.5),
    "fmod": Bound(0.0, 0.0, arity=2),
    "hypot": Bound(0.51, 0.51, arity=2),
    "lgamma": Bound(0.6, 0.53, floor=1.0),
    "log": Bound(0.67, 0.8),
    "log1p": Bound(0.75, 0.8),
    "log2": Bound(0.61, 0.6, without_fma=0.77),
    "log10": Bound(0.59, 0.6, without_fma=0.7),
    "pow": Bound(0.51, 0.95, arity=2),
    "rsqrt": Bound(1.5, 1.5),
    "sigmoid": Bound(2.0, 2.0),
    "silu": Bound(2.1, 2.0, floor=1e-29),
    "sin": Bound(1.6, 0.6),
    "sinh": Bound(1.7, 1.6),
    "sqrt": Bound(0.51, 0.51),
    "tan": Bound(0.51, 0.65),
    "tanh": Bound(1.2, 0.8),
}
#: float64: what sixteen million arguments find beyond the bound above.
OF_VERY_MANY = {"sinh": 1.65}
#: torch.fmod yields NaN for large quotients, torch.log1p yields 0 for denormals; numpy asks the C library.
EAGER_IS_WRONG: dict[str, Callable[..., Floats]] = {"fmod": np.fmod, "log1p": np.log1p}
TARGETS = {"host": HOST, "without_fma": WITHOUT_FMA}


@cache
def kernel(name: str, bits: int, target: Target) -> VectorKernel:
    return vector_kernel(name, BOUNDS[name].arity, bits, target)


def inputs_of(name: str, bits: int, count: int, stride: int = 0, seed: int = 0) -> tuple[Floats, ...]:
    if BOUNDS[name].arity == 2:
        return pairs(bits, 4 * count if stride else count, seed)
    return (arguments(bits, count, stride, seed * 257),)


def assert_within(bound: float, errors: Floats, values: Floats, *inputs: Floats) -> None:
    worst = int(np.argmax(errors))
    at = ", ".join(repr(a[worst]) for a in inputs)
    assert errors[worst] <= bound, f"{errors[worst]:.4g} ulps at ({at}): {values[worst]!r}"


def test_the_table_is_complete() -> None:
    assert set(BOUNDS) | set(SPECIALS) | RECURRENCES | {"power_of_number"} == set(mathematics.__all__)


@pytest.mark.parametrize("number", [2.0**-149, 1e-30, 0.9, 0.99999994, 1.0000001, 1.7, 10.0, 3.4e38])
def test_powers_of_a_number(number: float) -> None:
    """Of every number above 0 but 1, as float32 has it: its logarithm is known when the kernel is written."""
    base = float(np.float32(number))
    y = arguments(32, 1 << 16, 16 * STRIDE_32)
    values = vector_kernel("power_of_number", 1, 32, number=base)(y)
    with np.errstate(all="ignore"):
        truth = np.float_power(base, y.astype(np.float64))
    assert_within(BOUNDS["pow"].binary32, errors_in_ulps(values, truth, 0.0), values, y)


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("target", TARGETS)
def test_binary32(name: str, target: str) -> None:
    stride = STRIDE_32 if target == "host" else 16 * STRIDE_32
    x = inputs_of(name, 32, 1 << (18 if target == "host" else 14), stride)
    values = kernel(name, 32, TARGETS[target])(*x)
    bound = BOUNDS[name]
    largest = bound.binary32 if target == "host" else max(bound.binary32, bound.without_fma)
    assert_within(largest, errors_in_ulps(values, float64_truth(name, *x), bound.floor), values, *x)


@pytest.mark.long
@pytest.mark.parametrize("name", BOUNDS)
def test_binary32_of_many(name: str) -> None:
    """Twenty million arguments, a million at a time."""
    for seed in range(16):
        x = inputs_of(name, 32, 1 << 18, STRIDE_32, seed)
        values = kernel(name, 32, HOST)(*x)
        errors = errors_in_ulps(values, float64_truth(name, *x), BOUNDS[name].floor)
        assert_within(BOUNDS[name].binary32, errors, values, *x)


def truth_64(name: str, count: int) -> tuple[tuple[Floats, ...], list[object]]:
    x = inputs_of(name, 64, count)
    return x, mpmath_truth(name, *x)


short_truth_64 = cache(truth_64)  # for both targets


def assert_within_64(name: str, target: Target, x: tuple[Floats, ...], truth: list[object]) -> None:
    values = kernel(name, 64, target)(*x)
    bound = BOUNDS[name]
    errors = np.array([ulp_64(v, t, bound.floor) for v, t in zip(values.tolist(), truth, strict=True)])
    assert_within(bound.binary64, errors, values, *x)


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("target", TARGETS)
def test_binary64(name: str, target: str) -> None:
    assert_within_64(name, TARGETS[target], *short_truth_64(name, 700))


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in BOUNDS if name not in LONG_DOUBLE])
def test_binary64_of_many(name: str) -> None:
    assert_within_64(name, HOST, *truth_64(name, 20_000))


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="long double is no wider than double here")
@pytest.mark.parametrize("name", LONG_DOUBLE)
def test_long_double_is_exact_enough(name: str) -> None:
    x, truth = short_truth_64(name, 700)
    with np.errstate(all="ignore"):
        values = long_double_truth(name, *x).astype(np.float64)
    assert max(ulp_64(v, t) for v, t in zip(values.tolist(), truth, strict=True)) < 0.502


@pytest.mark.long
@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="long double is no wider than double here")
@pytest.mark.parametrize("name", LONG_DOUBLE)
def test_binary64_of_very_many(name: str) -> None:
    """Sixteen million arguments, a million at a time."""
    for seed in range(16):
        x = inputs_of(name, 64, 1 << 19, seed=seed)
        values = kernel(name, 64, HOST)(*x)
        errors = errors_in_ulps(values, long_double_truth(name, *x))
        assert_within(OF_VERY_MANY.get(name, BOUNDS[name].binary64), errors, values, *x)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", BOUNDS)
def test_special_values_are_eager(name: str, bits: int) -> None:
    """NaN, infinities and signed zeros come for exactly the same arguments as in torch, of the same sign."""
    x = (padded(specials(bits)),)
    if BOUNDS[name].arity == 2:
        x = tuple(padded(a.ravel()) for a in np.meshgrid(*x, *x))
    values = kernel(name, bits, HOST)(*x)
    if name in EAGER_IS_WRONG:
        with np.errstate(all="ignore"):
            eager = EAGER_IS_WRONG[name](*x)
    else:
        eager = torch_function(name)(*(torch.from_numpy(a) for a in x)).numpy()
    for what in (np.isnan, np.isinf, lambda v: v == 0, lambda v: np.signbit(v) & ~np.isnan(v)):
        differ = what(values) != what(eager)
        assert not differ.any(), [(*(a[i] for a in x), values[i], eager[i]) for i in np.flatnonzero(differ)[:8]]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", [*BOUNDS, *SPECIALS])
def test_arguments_may_be_a_constant_zero(name: str, bits: int) -> None:
    """Halide refuses to divide by one, and in lanes that a predicate switches off every load is one."""
    arity = 2 if name in PAIRS else BOUNDS[name].arity if name in BOUNDS else 1
    zeros = np.zeros(16, np.float32 if bits == 32 else np.float64)
    values = vector_kernel(name, arity, bits, leaf="hl.cast(parameter.type(), 0)")(*[zeros] * arity)
    expected = torch_function(name)(*[torch.from_numpy(zeros)] * arity).numpy()
    np.testing.assert_allclose(values, expected, rtol=1e-6)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", BOUNDS)
def test_nothing_is_called(name: str, bits: int) -> None:
    """No libm, no table: the object is complete in itself."""
    for target in TARGETS.values():
        assert kernel(name, bits, target).imports <= {"memset", "memcpy"}
