"""Every reduction: kinds x dtypes x which axes x extents around the widths of vectors.

The truth for integers and bools is Python's own arithmetic through torch.int64 with wrap-around, for the positions and
extrema eager, for sums and products float64.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import sympy
import torch
from kernel import Builder, name_of

from halide_backend.program.loop_program import Reduction

EXTENTS = (1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 65, 127, 129, 255, 257, 1000)
FEW = (1, 7, 16, 33, 129, 1000)
KINDS = ("sum", "prod", "max", "min", "any", "argmax", "argmin")
DTYPES = (
    torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8,
    torch.bool,
)  # fmt: skip

#: shape for extent n, and which of its axes are reduced
FORMS: dict[str, Any] = {
    "row": (lambda n: (5, n), (1,)),
    "column": (lambda n: (n, 19), (0,)),
    "full": (lambda n: (n,), (0,)),
    "middle": (lambda n: (3, n, 17), (1,)),
    "first and last": (lambda n: (4, 9, n), (0, 2)),
    "two inner": (lambda n: (3, 5, n), (1, 2)),
    "all of three": (lambda n: (2, 3, n), (0, 1, 2)),
}


def values(shape: tuple[int, ...], dtype: torch.dtype, special: bool, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.rand(shape, generator=generator) < 0.7
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        # Few different values, so that there are ties, and the extremes.
        low = torch.randint(-3 if info.min else 0, 4, shape, generator=generator)
        extreme = torch.tensor([info.min, info.max])[torch.randint(0, 2, shape, generator=generator)]
        return torch.where(torch.rand(shape, generator=generator) < 0.05, extreme, low).to(dtype)
    made = torch.randint(-8, 9, shape, generator=generator).double() / 8 + 1.0 / 16
    if special:
        place = torch.rand(shape, generator=generator)
        made = torch.where(place < 0.02, torch.full((), math.nan).double(), made)
        made = torch.where((place > 0.02) & (place < 0.04), torch.full((), math.inf).double(), made)
        made = torch.where((place > 0.04) & (place < 0.06), torch.full((), -math.inf).double(), made)
    return made.to(dtype)


def run_all(
    x: torch.Tensor, over: tuple[int, ...], kinds: tuple[str, ...], knobs: dict[str, Any] | None = None
) -> dict[str, torch.Tensor]:
    """All reductions in one kernel, as Inductor would fuse them."""
    builder = Builder(tuple(x.shape))
    dtype = x.dtype
    load = builder.load(dtype)
    axes = tuple(builder.axes[k] for k in over)
    position = sympy.Integer(0)
    for axis in axes:
        position = sympy.expand(position * axis.extent + axis.symbol)
    for kind in kinds:
        operand, out = load, dtype
        if kind == "any":
            out = torch.bool
            operand = load if dtype is torch.bool else builder.value("to_dtype", torch.bool, [load])
        elif kind in ("argmax", "argmin"):
            out = torch.int64
        elif kind in ("sum", "prod") and not dtype.is_floating_point:
            out = torch.int64  # as torch's own promotion
            operand = builder.value("to_dtype", torch.int64, [load])
        place = position if kind.startswith("arg") else None
        builder.store(builder.value("reduction", out, [operand], Reduction(kind, axes, place)), out)
    return dict(zip(kinds, builder.run(x, knobs=knobs)))


def expected(kind: str, x: torch.Tensor, over: tuple[int, ...]) -> torch.Tensor:
    wide = x.double() if x.is_floating_point() else x
    if kind == "sum":
        return wide.sum(over)
    if kind == "any":
        return x.ne(0).to(torch.int64).sum(over) > 0
    if kind in ("max", "min"):
        return x.amax(over) if kind == "max" else x.amin(over)
    kept = [k for k in range(x.dim()) if k not in over]
    flat = wide.permute(*kept, *over).reshape([x.shape[k] for k in kept] + [-1])
    if kind == "prod":
        return flat.prod(-1)
    return flat.to(torch.int64 if x.dtype is torch.bool else flat.dtype).__getattribute__(kind)(-1)


def assert_right(kind: str, got: torch.Tensor, x: torch.Tensor, over: tuple[int, ...]) -> None:
    truth = expected(kind, x, over)
    if kind in ("sum", "prod") and x.is_floating_point():
        torch.testing.assert_close(got, truth.to(x.dtype), equal_nan=True)
    elif got.is_floating_point():
        same = (got == truth) | (got.isnan() & truth.isnan())
        assert bool(same.all()), (kind, got, truth)
    else:
        assert torch.equal(got, truth), (kind, got, truth)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("extent", EXTENTS)
def test_float32(extent: int, form: str) -> None:
    shape, over = FORMS[form][0](extent), FORMS[form][1]
    for special in (False, True):
        x = values(shape, torch.float32, special, extent)
        got = run_all(x, over, KINDS)
        for kind in KINDS:
            assert_right(kind, got[kind], x, over)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", ["row", "column", "full"])
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_other_dtypes(dtype: torch.dtype, form: str) -> None:
    kinds = KINDS if dtype is not torch.bool else ("sum", "any")
    for extent in FEW:
        shape, over = FORMS[form][0](extent), FORMS[form][1]
        x = values(shape, dtype, extent > 7, extent)
        got = run_all(x, over, kinds)
        for kind in kinds:
            if kind == "prod" and dtype in (torch.float16, torch.bfloat16):
                continue  # the products underflow these types; float32 shows the same code
            assert_right(kind, got[kind], x, over)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=name_of)
def test_several_in_one_loop(dtype: torch.dtype, form: str) -> None:
    """Sum and extremes are values of one Func; the argmax between them is none."""
    kinds = ("sum", "max", "argmax", "min")
    for extent in (*FEW, 70_000 if form == "full" else 700):
        shape, over = FORMS[form][0](extent), FORMS[form][1]
        x = values(shape, dtype, extent > 7, extent)
        got = run_all(x, over, kinds, {"reductions.tuples": True})
        for kind in kinds:
            assert_right(kind, got[kind], x, over)


@pytest.mark.parametrize("extent", FEW)
def test_all_equal(extent: int) -> None:
    """The first of equals wins, whatever lane it falls into."""
    x = torch.full((4, extent), -3.0)
    got = run_all(x, (1,), ("argmax", "argmin"))
    assert got["argmax"].tolist() == [0] * 4
    assert got["argmin"].tolist() == [0] * 4


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zeros_of_both_signs_are_equal(zero: float) -> None:
    x = torch.tensor([[zero, -zero] * 20])
    got = run_all(x, (1,), ("max", "min", "argmax", "argmin"))
    assert (float(got["max"]), float(got["min"])) == (0.0, 0.0)
    assert (int(got["argmax"]), int(got["argmin"])) == (0, 0)


@pytest.mark.parametrize("extent", FEW)
def test_all_infinite(extent: int) -> None:
    for number in (math.inf, -math.inf):
        x = torch.full((3, extent), number)
        got = run_all(x, (1,), ("max", "min", "sum"))
        for kind in ("max", "min", "sum"):
            assert got[kind].tolist() == [number] * 3


def test_integer_sums_wrap() -> None:
    x = torch.full((2, 1000), 2**62)
    got = run_all(x, (1,), ("sum", "prod"))
    assert got["sum"].tolist() == [(1000 * 2**62 + 2**63) % 2**64 - 2**63] * 2
    assert got["prod"].tolist() == [0, 0]


@pytest.mark.parametrize("shape", [(1 << 24,), (4096, 4096)])
def test_a_sum_of_16_million_is_as_accurate_as_eager(shape: tuple[int, ...]) -> None:
    x = torch.rand(shape, generator=torch.Generator().manual_seed(5))
    truth = float(x.double().sum())
    got = run_all(x, tuple(range(len(shape))), ("sum",))["sum"]
    error, eager = abs(float(got) - truth), abs(float(x.sum()) - truth)
    spacing = math.ulp(truth) * 2**29
    assert error <= max(2 * eager, spacing), (error, eager)


@pytest.mark.parametrize("over", [(0,), (1,)])
def test_long_rows_and_columns_are_as_accurate_as_eager(over: tuple[int, ...]) -> None:
    x = torch.rand((64, 1 << 17) if over == (1,) else (1 << 17, 64), generator=torch.Generator().manual_seed(6))
    truth = x.double().sum(over)
    got = run_all(x, over, ("sum",))["sum"]
    error, eager = (got - truth).abs().max(), (x.sum(over) - truth).abs().max()
    assert float(error) <= max(2 * float(eager), math.ulp(float(truth.max())) * 2**29), (error, eager)


@pytest.mark.parametrize(
    ("shape", "over"),
    [((32767,), (0,)), ((257, 127), (0, 1)), ((15, 15, 15, 15), (0, 1, 2, 3)), ((3, 30000), (1,)), ((8192, 64), (0,))],
)
@pytest.mark.parametrize("term", [0.1, 1 / 3])
def test_a_sum_of_equal_terms_errs_by_a_few_units(shape: tuple[int, ...], over: tuple[int, ...], term: float) -> None:
    """Every addition to a long running sum rounds the same way: 35 units of 32,767 terms in 64 accumulators."""
    x = torch.full(shape, term)
    truth = x.double().sum(over)
    error = ((run_all(x, over, ("sum",))["sum"] - truth).abs() / truth).max()
    assert float(error) <= 4 * torch.finfo(torch.float32).eps
