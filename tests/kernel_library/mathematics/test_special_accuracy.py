"""The special functions against mpmath, in ulps, beside torch's own error; special values against torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from arguments import Floats
from special_truth import PAIRS, SPECIALS, special_arguments, special_truth, special_values
from truth import Number, torch_function
from ulps import ulp_64
from vector_kernel import HOST, WITHOUT_FMA, VectorKernel, vector_kernel

from halide_backend.build.target import Target

TARGETS = {"host": HOST, "without_fma": WITHOUT_FMA}
#: Where torch has NaN.
AT_INFINITY: dict[str, Callable[[Floats], Floats]] = {"i0": np.abs, "i1": lambda x: x}
#: Bytes that the object of one function may have, eight or sixteen lanes wide, since compiling takes as long as it is
#: large: a quarter more than the largest, `gammaincc` of AVX2.
LARGEST = 96 << 10


@cache
def kernel(name: str, bits: int, target: Target) -> VectorKernel:
    return vector_kernel(name, 2 if name in PAIRS else 1, bits, target)


@cache
def problem(name: str, bits: int, count: int) -> tuple[tuple[Floats, ...], list[Number]]:
    x = special_arguments(name, bits, count)
    wrong = SPECIALS[name].error_32 if bits == 32 else SPECIALS[name].error_64
    x = tuple(np.where(wrong(a), a.dtype.type(1), a) for a in x)
    return x, special_truth(name, *x)


def errors(name: str, values: Floats, x: tuple[Floats, ...], truth: list[Number]) -> Floats:
    """In ulps of the values' own type."""
    floors = [SPECIALS[name].floor(*row) for row in zip(*(a.tolist() for a in x), strict=True)]
    single = values.dtype == np.float32
    scale = 2.0**-29 if single else 1.0
    found = [ulp_64(float(v), t, f) * scale for v, t, f in zip(values, truth, floors, strict=True)]
    if single:  # below the normal numbers, and above the largest, binary32's ulp is another one
        size = np.abs(np.array([float(t) for t in truth]))
        with np.errstate(all="ignore"):
            right = values == np.array([float(t) for t in truth]).astype(np.float32)
        ordinary = (size > np.finfo(np.float32).tiny) & (size < np.finfo(np.float32).max)
        found = [0.0 if exact and not usual else e for e, exact, usual in zip(found, right, ordinary, strict=True)]
    return np.array(found)


def eager(name: str, x: tuple[Floats, ...]) -> Floats:
    return np.asarray(torch_function(name)(*(torch.from_numpy(a) for a in x)).numpy())


def check(name: str, bits: int, count: int, target: Target) -> None:
    x, truth = problem(name, bits, count)
    values = kernel(name, bits, target)(*x)
    found = errors(name, values, x, truth)
    worst = int(found.argmax())
    bound = SPECIALS[name].binary32 if bits == 32 else SPECIALS[name].binary64
    assert found[worst] <= bound, f"{found[worst]:.4g} at {[a[worst] for a in x]}: {values[worst]!r}"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", SPECIALS)
def test_accuracy(name: str, bits: int, target: str) -> None:
    check(name, bits, 200, TARGETS[target])


@pytest.mark.long
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", SPECIALS)
def test_accuracy_of_many(name: str, bits: int) -> None:
    check(name, bits, 5000, HOST)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", [name for name in SPECIALS if name.startswith("shifted")])
def test_a_shifted_polynomial_grows_from_an_argument_that_is_not_rounded(name: str, target: str) -> None:
    x, truth = problem(name, 64, 400)
    found = errors(name, kernel(name, 64, TARGETS[target])(*x), x, truth)
    assert found[(x[0] < 0) | (x[0] > 1)].max() <= 12


@pytest.mark.parametrize("name", [name for name in SPECIALS if name.startswith(("airy", "bessel"))])
def test_binary64_has_the_error_of_torch(name: str) -> None:
    """To the tolerance of torch's own operator tests, which is finer than that error."""
    x = np.concatenate([np.linspace(-100, 100, 4000), np.linspace(-6, 6, 4000)])
    values, expected = kernel(name, 64, HOST)(x), eager(name, (x,))
    np.testing.assert_allclose(values, expected, rtol=1e-7, atol=1e-7)
    rough = SPECIALS[name].error_64(x) & ~np.isnan(expected)
    truth = np.array([float(t) for t in special_truth(name, x[rough])])
    assert np.abs(expected[rough] - truth).max() > 2e-7


def test_binary32_trigamma_has_the_error_of_torch() -> None:
    x = np.linspace(-20, 0, 8000, dtype=np.float32)
    values, expected = kernel("trigamma", 32, HOST)(x), eager("trigamma", (x,))
    np.testing.assert_allclose(values, expected, rtol=1.3e-5, atol=1.5e-5)
    assert (np.abs(expected - eager("trigamma", (x.astype(np.float64),))) > 2e-5 * expected).any()


@pytest.mark.parametrize("name", [name for name, special in SPECIALS.items() if special.binary64 > 2])
def test_not_worse_than_torch(name: str) -> None:
    """Where 2 ulps are not kept, torch's own largest error over the same arguments is no smaller."""
    x, truth = problem(name, 64, 200)
    own = errors(name, kernel(name, 64, HOST)(*x), x, truth)
    other = errors(name, eager(name, x), x, truth)
    assert own.max() <= max(2.0, other.max()), (own.max(), other.max())


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", SPECIALS)
def test_nan_and_infinity_are_eager(name: str, bits: int) -> None:
    """They come for exactly the same zeros, infinities, NaN and extreme numbers as in torch, of the same sign."""
    x = special_values(name, bits)
    values, expected = kernel(name, bits, HOST)(*x), eager(name, x)
    if name in AT_INFINITY:
        expected = np.where(np.isinf(x[0]), AT_INFINITY[name](x[0]), expected)
    for what in (np.isnan, lambda v: v == np.inf, lambda v: v == -np.inf):
        differ = what(values) != what(expected)
        assert not differ.any(), [(*(a[i] for a in x), values[i], expected[i]) for i in np.flatnonzero(differ)[:8]]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", SPECIALS)
def test_nothing_is_called_and_little_is_compiled(name: str, bits: int) -> None:
    for target in TARGETS.values():
        assert kernel(name, bits, target).imports <= {"memset", "memcpy"}
    assert kernel(name, bits, HOST).size <= LARGEST
