"""What Inductor's own experimental Halide backend gets wrong in torch 2.13 is right here, and native.

Each test names the defect as it was observed; the truth is eager, and where eager may be doubted, a number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

Check = Callable[..., Any]
INF, NAN = float("inf"), float("nan")


def floats(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The values, repeated to a length that has whole vectors and a tail."""
    return torch.tensor(values, dtype=dtype).repeat(37)[:107]


@pytest.mark.parametrize("shape", [(2, 4, 16, 40), (3, 17, 17), (5, 1)])
def test_softmax_of_masked_scores_is_finite(check: Check, shape: tuple[int, ...]) -> None:
    """Every row came out as NaN as soon as one score was -inf."""
    torch.manual_seed(0)
    mask = torch.rand(shape) < 0.4
    mask[..., 0] = False
    outcome = check(lambda x, m: torch.softmax(x.masked_fill(m, -INF), -1), torch.randn(shape), mask)
    assert bool(torch.isfinite(outcome.results[0]).all())
    assert bool((outcome.results[0][mask] == 0).all())


def test_softmax_of_a_row_of_minus_infinity_is_nan(check: Check) -> None:
    scores = torch.randn(4, 33)
    scores[2] = -INF
    outcome = check(lambda x: torch.softmax(x, -1), scores)
    assert outcome.results[0].isnan().any(dim=1).tolist() == [False, False, True, False]


def test_masked_softmax_has_a_gradient(check: Check) -> None:
    mask = torch.rand(6, 33) < 0.4
    mask[:, 3] = False
    check(lambda x: torch.softmax(x.masked_fill(mask, -INF), -1).square(), torch.randn(6, 33), gradients=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_relu_keeps_nan(check: Check, dtype: torch.dtype) -> None:
    """relu(NaN) was 0."""
    outcome = check(torch.relu, floats(NAN, -1.0, 2.0, -0.0, INF, -INF, dtype=dtype))
    assert bool(outcome.results[0][::6].isnan().all())


def test_log_of_infinity_is_infinity(check: Check) -> None:
    """log(inf) was 88.72."""
    outcome = check(torch.log, floats(INF, 0.0, -1.0, NAN, 1.0, 1e-40))
    assert outcome.results[0][0] == INF


def test_exp_at_both_ends(check: Check) -> None:
    """fast_exp was wrong by 18 units in the last place, and at -inf."""
    outcome = check(torch.exp, floats(-INF, INF, NAN, 0.0, -87.5, 88.5, -103.9, 1.0, -1e-8))
    assert outcome.results[0][:2].tolist() == [0.0, INF]


def test_isinf_of_large_doubles(check: Check) -> None:
    """isinf(1e300) was True: the test went through float32."""
    values = floats(1e300, INF, -INF, NAN, -1e308, 0.0, dtype=torch.float64)
    outcome = check(lambda x: (x.isinf(), x.isnan(), x.isfinite()), values)
    assert outcome.results[0][:4].tolist() == [False, True, True, False]


@pytest.mark.parametrize("shape", [(33, 65), (64, 64), (1, 17), (129, 8)])
def test_in_place_addition_to_a_transposed_tensor(check: Check, shape: tuple[int, int]) -> None:
    """pytorch/pytorch#140344: parts of the result were added twice or not at all."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.t().add_(y)
        return x + 1

    check(function, torch.randn(shape), torch.randn(shape).t().contiguous())


def test_in_place_addition_of_its_own_transpose(check: Check) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.add_(x.t().clone())
        return x * 2

    check(function, torch.randn(65, 65))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_integer_remainders_have_the_right_sign(check: Check, dtype: torch.dtype) -> None:
    """fmod(-7, 3) was 2: Halide's remainder is Euclidean."""
    a = torch.arange(-60, 61).to(dtype)
    b = torch.tensor([3, -3, 7, -7, 1, -1, 120, 2, -2, 11, -11]).repeat(11).to(dtype)
    outcome = check(lambda x, y: (torch.fmod(x, y), torch.remainder(x, y), x % y), a, b)
    assert outcome.results[0].tolist() == [int(x - y * int(x / y)) for x, y in zip(a.tolist(), b.tolist())]
    assert outcome.results[1].tolist() == [x % y for x, y in zip(a.tolist(), b.tolist())]


@pytest.mark.parametrize(
    ("dtype", "large"), [(torch.int32, 2**24), (torch.int32, 2**31 - 40), (torch.int64, 2**53), (torch.int64, 2**62)]
)
def test_division_of_large_integers(check: Check, dtype: torch.dtype, large: int) -> None:
    """`//` went through float32 or float64 and lost the last digits."""
    a = torch.cat([large + torch.arange(-5, 30), -large + torch.arange(-5, 30)]).to(dtype)
    b = torch.tensor([1, -1, 3, -3, 10, 7, -7]).repeat(10).to(dtype)

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x // y, torch.div(x, y, rounding_mode="trunc"), x % y

    outcome = check(function, a, b)
    assert outcome.results[0].tolist() == [x // y for x, y in zip(a.tolist(), b.tolist())]


def test_division_by_zero_raises(compiled: Check) -> None:
    """x // 0 converted an infinity to an integer; the C++ backend and eager raise."""
    a, b = torch.arange(40, dtype=torch.int64), torch.ones(40, dtype=torch.int64)
    b[33] = 0
    with pytest.raises(ZeroDivisionError):
        compiled(lambda x, y: x // y, a, b)


@pytest.mark.parametrize("index", [50, -51, 2**40])
def test_an_index_out_of_range_raises(compiled: Check, index: int) -> None:
    """Out-of-range indices were clamped in silence."""
    indices = torch.zeros(20, dtype=torch.int64)
    indices[7] = index
    with pytest.raises(IndexError):
        compiled(lambda x, i: x[i] + 1, torch.randn(50, 3), indices)


@pytest.mark.parametrize("function", [torch.argmax, torch.argmin])
def test_position_of_nan_wins(check: Check, function: Any) -> None:
    """NaN never won."""
    x = torch.randn(9, 33)
    x[2, 5], x[2, 9], x[4, 32], x[5, 0] = NAN, NAN, NAN, NAN
    outcome = check(lambda x: function(x, dim=1), x)
    assert outcome.results[0][[2, 4, 5]].tolist() == [5, 32, 0]


@pytest.mark.parametrize("extent", [2, 17, 64, 1000])
def test_first_of_equal_positions_wins(check: Check, extent: int) -> None:
    x = torch.randint(0, 3, (7, extent)).float()
    outcome = check(lambda x: (x.argmax(1), x.argmin(1), x.max(1).indices, x.argmax(0)), x)
    first = [row.index(max(row)) for row in x.tolist()]
    assert outcome.results[0].tolist() == first


@pytest.mark.parametrize("layout", ["transposed", "permuted", "sliced"])
def test_flat_position_counts_in_logical_order(check: Check, layout: str) -> None:
    """The flat position counted in the order of the kernel's loops."""
    x = torch.randint(0, 40, (6, 5, 7)).float()
    view = {"transposed": x.transpose(0, 2), "permuted": x.permute(1, 2, 0), "sliced": x[:, ::2, 1:]}[layout]
    outcome = check(lambda x: (x.argmax(), x.argmin(), x.amax()), view)
    values = view.reshape(-1).tolist()
    assert int(outcome.results[0]) == values.index(max(values))


def test_maximum_and_reductions_keep_nan(check: Check) -> None:
    x = torch.randn(8, 33)
    x[3, 31] = NAN
    y = torch.randn(8, 33)
    y[5, 2] = NAN
    check(lambda x, y: (torch.maximum(x, y), torch.minimum(y, x), x.amax(1), x.amin(0), (x + y).max()), x, y)


def test_error_function_of_doubles_compiles(check: Check) -> None:
    """erf of float64 did not compile."""
    check(lambda x: (x.erf(), x.erfc()), torch.linspace(-7, 7, 401, dtype=torch.float64))


def test_functions_near_zero_keep_their_digits(check: Check) -> None:
    """log1p(x) was log(1 + x), expm1(x) was exp(x) - 1."""
    x = torch.tensor([1e-7, -1e-7, 1e-10, -1e-20, 1e-30, 1e-3, 0.3]).repeat(9)
    outcome = check(lambda x: (x.log1p() / x, x.expm1() / x, x.sinh() / x), x)
    for result in outcome.results[:2]:
        assert abs(float(result[0]) - 1) < 1e-6


def test_subtraction_of_a_value_from_itself(check: Check) -> None:
    """inf - inf is NaN; fast-math makes it 0."""
    outcome = check(lambda x: (x - x, x == x, x * x), floats(INF, NAN, 1.0, -INF))
    assert outcome.results[0][:4].isnan().tolist() == [True, True, False, True]


def test_a_compensated_sum_survives(check: Check) -> None:
    """Fast-math cancels (a + b) - a - b."""

    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        total = a + b
        back = total - a
        return (a - (total - back)) + (b - back)

    a, b = torch.randn(100), torch.randn(100) * 1e-6
    outcome = check(function, a, b)
    exact = (a.double() + b.double()) - (a + b).double()
    assert torch.equal(outcome.results[0].double(), exact)


def test_bfloat16_keeps_nan_and_denormals(check: Check) -> None:
    words = torch.arange(0, 65536, 7, dtype=torch.int32).to(torch.int16)
    outcome = check(lambda x: (x.float() * 1.0).bfloat16(), words.view(torch.bfloat16))
    assert torch.equal(outcome.results[0].isnan(), words.view(torch.bfloat16).isnan())
