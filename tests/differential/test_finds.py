"""Every defect that random programs found, as the small program that showed it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import halide_backend

from .check import check as check_program
from .program import parse

Check = Callable[..., Any]
SPECIAL = torch.tensor(
    [float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1e-41, -1e-45, 1.0, -1.0, 65504.0, -3.3e38]
)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8, torch.uint8, torch.bool, torch.int32], ids=str)
@pytest.mark.parametrize("extent", [17, 33, 65])
def test_a_tail_of_one_element_writes_one_element(dtype: torch.dtype, extent: int, compiled: Check) -> None:
    """LLVM stored a whole 32-bit lane for the last 8 or 16 bits of a row: the next row's first element was lost."""
    x = torch.randint(0, 2, (504, extent), dtype=torch.int64)
    wanted = (x + 1).to(dtype)
    for _ in range(3):
        assert torch.equal(compiled(lambda x: (x + 1).to(dtype), x).results[0], wanted)


def test_that_tail_stays_inside_its_buffer(compiled: Check, tmp_path: Path) -> None:
    from .kernels import keeping_texts

    with keeping_texts(tmp_path):
        compiled(lambda x: (x.to(torch.bfloat16), x > 0, (x * 2).to(torch.int8)), torch.randn(40, 17))
    command = [sys.executable, "-m", "tests.differential.guard", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"kernels": 1' in done.stdout


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_no_comparison_with_nan_is_true(check: Check, dtype: torch.dtype) -> None:
    """Halide writes a vector's a <= b as not b < a."""
    a, b = SPECIAL.repeat(11).to(dtype), SPECIAL.repeat_interleave(11).to(dtype)
    outcome = check(lambda x, y: (x >= y, x <= y, ~(x >= y), x < y, ~(x < y), x == y, x != y), a, b)
    assert not outcome.results[0][0]


@pytest.mark.parametrize("dim", [0, 1, (0, 1)])
def test_reductions_of_an_expanded_tensor(check: Check, dim: Any) -> None:
    """A value that does not depend on the reduced axis was added once."""
    # Of 400 seeds, sums of 6 cancel so far that eager's error and ours are more than the tolerance apart.
    x = torch.randn(5, 1, generator=torch.Generator().manual_seed(0))

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        wide = x.expand(5, 33)
        return wide.sum(dim), wide.mean(dim), torch.var(wide, dim), wide.amax(dim)

    check(function, x)
    check(lambda x: (x.expand(5, 33).prod(1), torch.logsumexp(x.expand(5, 33), 1), x.expand(5, 33).argmax(1)), x)


def test_sum_of_one_number_many_times(check: Check) -> None:
    check(lambda x: (x.expand(33).sum(), F.normalize(x.expand(33), dim=0)), torch.randn(1))


def test_scatter_into_a_view_with_other_dimensions_than_its_memory(check: Check) -> None:
    """Sizes of the view and strides of the memory were paired."""
    a = torch.randn(31, 1, 16).permute(2, 1, 0)

    def function(a: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        v = a.clamp(min=-0.5).reshape(16, 31)
        return v.index_put((index,), v[:2] * 2)

    check(function, a, torch.tensor([3, 9]), gradients=True)


@pytest.mark.parametrize("columns", [7, 15, 31, 63])
def test_scatter_into_memory_that_is_aligned_to_an_element_only(columns: int) -> None:
    """Halide promised 64 bytes for the load of an output, and LLVM then for the store; the process died."""
    memory = torch.zeros(1 + columns)
    index, values = torch.zeros(7, dtype=torch.int64), torch.randn(7, columns)
    compiled_add = torch.compile(
        lambda x, v: x.index_add_(0, index, v), options={"cpu_backend": "halide_backend"}, dynamic=False
    )
    compiled_add(memory[1:].view(1, columns), values)
    assert memory[0] == 0
    torch.testing.assert_close(memory[1:], values.sum(0))


def test_division_in_lanes_that_a_predicate_switches_off(check: Check) -> None:
    """Seed 100270: their loads are constants of zero, and Halide refused the division."""
    gradient, b, c = torch.randn(5), torch.randn(17), torch.randn(17)

    def function(gradient: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        spread = torch.ops.aten.slice_backward(gradient, [17], 0, 8, 17, 2)
        return (spread + b) / c

    check(function, gradient, b, c)


def test_argmin_that_an_output_and_a_check_share(check: Check) -> None:
    """Seed 100210: the status read a reduction that was computed inside the other output's loop."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        place = x.argmin()
        return (x.min() * 3).expand(1000) + 1, (place % ((place & 15) + 1)).expand(1000) + 0

    check(function, torch.randn(31).half())


PROGRAMS = {
    "a check that reads what an output shares": """
# a0: (33,) int64 whole contiguous seed 4
# a1: (40, 33) float32 normal contiguous seed 5
def program(a0, a1):
    v0 = (a0.abs() + 3).clamp(0, 39)
    v1 = a1[v0]
    v2 = v0 * 2
    return v1, v2
""",
    "deviation of one element": """
# a0: (3, 1) float32 normal contiguous seed 4
def program(a0):
    v0 = torch.var(a0, dim=1)
    v1 = torch.std(a0, dim=(0, 1))
    return v0, v1
""",
    "a transposed operand that a check reads as well": """
# a0: (17, 16, 16) int64 whole contiguous seed 4
# a1: (17, 16, 1) int64 whole offset seed 5
def program(a0, a1):
    v0 = torch.fmod(a0, (a1 & 15) - 20)
    v1 = v0.permute((1, 2, 0)).contiguous()
    v2 = torch.cat([v1 + v1, v1 + v1], 0)
    return v2,
""",
    "a transposed operand and outputs of two layouts": """
# a0: (8, 16, 17) int64 whole sliced seed 4
# a1: (8, 16, 17) bool whole permuted seed 5
# a2: (17, 8, 16, 17) int64 wide permuted seed 6
def program(a0, a1, a2):
    v0 = torch.where(a1, a2, 0)
    v1 = v0.permute((3, 2, 1, 0))
    v2 = a1 <= v0
    return v1[:, :, 6], v2
""",
    "maxima of long expressions": """
# a0: (8, 3) float64 special contiguous seed 4
# a1: (1000,) bool whole contiguous seed 5
# a2: (1,) float64 whole contiguous seed 6
def program(a0, a1, a2):
    v0 = torch.softmax(a0.cos(), -1)
    v1 = torch.softmax(torch.where(a1, a2.abs().add(0.5).pow(1.5), a0[:, :1] + a2), -2)
    return v0, v1
""",
    "a view of dynamic shape": """
# a0: (31, 63, 8) float32 whole contiguous seed 4
# with dynamic shapes
def program(a0):
    v0 = a0 != 0
    v1 = v0.permute((1, 2, 0)).contiguous()
    v2 = v0.reshape((31, 504))
    return v1, v2
""",
    "the gradient of a variance of dynamic shape": """
# a0: (7, 65, 15, 7) float32 normal contiguous seed 4
# with gradients
# with dynamic shapes
def program(a0):
    v0 = torch.softmax(a0, -1)
    v1 = torch.var(a0, dim=(3,), keepdim=True)
    return v0, v1
""",
    "transposed operands of dynamic shape, two outputs from one tile (seed 2419)": """
# a0: (1, 1, 63) float32 normal permuted seed 973439830
# a1: (63, 63) float32 normal permuted seed 1519767442
# a2: (15,) int64 index:63 contiguous seed 1074885228
# a3: (1, 63, 15) float32 whole contiguous seed 1376588601
# a4: (9,) int64 index:63 contiguous seed 1292390517
# with gradients
# with dynamic shapes
def program(a0, a1, a2, a3, a4):
    v0 = a1 + a0
    v1 = torch.maximum(v0, v0)
    v2 = a1.sign()
    v3 = v1 / (v0.abs() + 1)
    v4 = torch.addcmul(v3, v3, v2, value=0.5)
    v5 = torch.lerp(v1, v4, 0.25)
    v6 = v4[:, :, 42:44:1]
    v7 = v3[0:1:2]
    v8 = F.gelu(a0, approximate='tanh')
    v9 = v3.index_add(2, a2, a3)
    v10 = (v9 / 8).tanh().sum(dim=(0, 2), keepdim=True)
    v11 = v4[:, :, a4 - 63]
    v12 = torch.copysign(a3, a3)
    return v0, v1, v3, v5, v6, v7, v8, v9, v10, v11, v12
""",
    "a loop that changes nothing if floats were real numbers, left out by Halide (seed 4006)": """
# a0: (63, 8, 3, 1) float64 special offset seed 1115291886
def program(a0):
    v0 = a0[:, :, 1]
    v1 = v0 == v0
    v2 = v1.amin(dim=(1,), keepdim=False)
    v3 = torch.where(v2, v2, 0)
    return v3,
""",
    "is_nan of a vector whose lanes are all off: the compiler died of SIGFPE (seed 4208)": """
# a0: (129,) float32 whole contiguous seed 1878447193
def program(a0):
    v0 = a0.isnan()
    v1 = v0.amin(dim=(0,), keepdim=True)
    return v1,
""",
    "the same in a sum (seed 4662)": """
# a0: (1,) float32 normal sliced seed 66123311
# a1: (17, 257) float32 normal contiguous seed 174353595
def program(a0, a1):
    v0 = torch.minimum(a1, a0)
    v1 = torch.maximum(a1, v0)
    v2 = v1.mean()
    return v2,
""",
    "a row of a parallel loop in a branch of its own, in which Halide forgot the row (seed 5419)": """
# a1: (8, 129) float32 normal contiguous seed 1861997252
# a2: (8, 129) int64 index:8 contiguous seed 74545275
# a3: (8, 129) float32 whole contiguous seed 1954012800
# with gradients
# with dynamic shapes
def program(a1, a2, a3):
    v0 = a1.erf()
    v1 = a1.scatter_add(0, a2, a3)
    v2 = v1[2]
    v3 = F.pad(v1, (-1, 0, 0, 1), value=1)
    return v0, v2, v3,
""",
    "two outputs of one loop that were unrolled differently: no legal schedule (seed 981286)": """
# a0: (17, 2, 15, 16) bfloat16 special contiguous seed 1988284288
# a1: (17, 2, 15, 16) bfloat16 special contiguous seed 1201206839
def program(a0, a1):
    a0.fill_(0.5)
    v1 = a0.argmax(dim=0, keepdim=False)
    v2 = torch.softmax(a1, -3)
    v3 = v2.clamp(-3, 3).expm1()
    v4 = -v2
    v5 = torch.minimum(a1, a0)
    v6 = a0 - a0
    v7 = torch.fmax(v4, v6)
    v8 = v4[:, 1]
    v9 = v8.amax(dim=(0, 1), keepdim=False)
    return v1, v3, v5, v6, v7, v9,
""",
    "isnan of a float64 cosine took more than 4 GB to compile (seed 6805)": """
# a0: (1,) float64 special contiguous seed 1391009911
def program(a0):
    v0 = a0.cos()
    v1 = v0.to(torch.float32)
    v2 = v1.nan_to_num(0.25, 2.0, -2.0)
    return v2,
""",
    "a reduction of a slice that is empty": """
# a0: (7, 9) float32 normal contiguous seed 4
def program(a0):
    v0 = a0[:, 3:3]
    v1 = v0.sum(dim=1)
    v2 = v0 + 1
    v3 = torch.cat([v0, a0], 1)
    return v1, v2, v3
""",
    "a place that Inductor wraps round (seed 7873)": """
# a0: (63,) float64 special sliced seed 5
def program(a0):
    v0 = torch.roll(a0, 0, 0)
    v1 = F.pad(v0, (2, 2), value=0)
    return v1,
""",
    "a number of elements that is a sum of sizes (seed 15095)": """
# a0: (3, 3) float32 normal contiguous seed 5
# with dynamic shapes
def program(a0):
    v0 = F.pad(a0[:, 0:2:2], (3, 1, 0, 1), value=0)
    v1 = torch.var(v0, dim=(0,), keepdim=True)
    return v1,
""",
    "a variance of rows that are short and many (seed 19181)": """
# a0: (1, 257, 127) float32 whole sliced seed 2048608907
def program(a0):
    v0 = torch.var(a0, dim=(1, 2), keepdim=False)
    return v0,
""",
    "rows of n + 7 beside rows of 6, by which they were cut (seed 105683)": """
# a0: (3, 16) float32 whole contiguous seed 1874093431
# with dynamic shapes
def program(a0):
    v0 = F.pad(a0, (3, 4), value=0)
    v1 = torch.std(v0, dim=(1,), keepdim=True)
    v2 = v0.isnan()
    v3 = F.pad(v1, (3, 2), value=0)
    return v0, v1, v2, v3,
""",
    "a size that only values take, of unknown sign, by whose product nothing was divided (seed 1052007)": """
# a0: (31, 3) float32 whole contiguous seed 1565863414
# a1: (31, 3) float32 normal expanded seed 1935737717
# with dynamic shapes
def program(a0, a1):
    v0 = a1.reshape((93,))
    v1 = v0.reshape((1, 93))
    v0[1:-1].copy_(v0[1:-1])
    v5 = v0.min(dim=0, keepdim=False)[0]
    v6 = v0.min(dim=0, keepdim=False)[1]
    v7 = v5 != a1
    v8 = v6.masked_fill(v7, 2)
    v9 = v8[24:26:1]
    v10 = torch.cat([a0, a1], 0)
    return v1, v5, v7, v9, v10,
""",
}


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_program(text: str) -> None:
    outcome = check_program(parse(text))
    assert (outcome.kind, outcome.message, outcome.delegated) == ("equal", "", {})


def test_memory_that_torch_lets_the_backward_pass_overwrite() -> None:
    """Seed 1042868, made small: a result of the forward pass lies in memory that it saves for the backward pass, which
    overwrites it. torch's defect: with the C++ backend the result is the same."""
    text = """
# a0: (16, 65) float64 normal contiguous seed 2001297511
# with gradients
def program(a0):
    v0 = a0.exp()
    v2 = v0.repeat((1, 1))
    v7 = v2.permute((0, 1))
    return v7,
"""
    assert check_program(parse(text)).kind == "inductor"


def test_why_fused_nodes_fell_apart() -> None:
    """Seed 1570: a scatter reads the memory that its neighbour overwrites; each gets a kernel of its own."""
    text = """
# a0: (16, 63, 1) int64 wide permuted seed 4
# a1: (16,) int64 permutation:16 contiguous seed 5
# a2: (1, 63, 1) int64 whole permuted seed 6
def program(a0, a1, a2):
    v0 = a0.permute((0, 2, 1))
    v1 = a0.clone().index_put((a1[:1],), a2)
    v2 = v0.permute((2, 0, 1))
    v2[1:-1].copy_(a1[:1])
    return v1, v2,
"""
    outcome = check_program(parse(text))
    assert (outcome.kind, outcome.message, outcome.delegated) == ("equal", "", {})
    reasons = halide_backend.stats()["unfusing_reasons"]
    assert reasons == {"overwritten-memory-read-apart": 1}


@pytest.mark.parametrize("columns", [7, 31, 33])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_comparisons_with_a_value_that_a_row_shares(check: Check, dtype: torch.dtype, columns: int) -> None:
    """Seed 4378: in the tail of a row Halide took `x != x`, and with it NaN in minimum, for false."""
    x = torch.randn(129, 1, dtype=dtype)
    x[76], x[3] = float("nan"), float("inf")
    y = torch.randn(129, columns, dtype=dtype)

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        chosen = [torch.where(c, x, y) for c in (x != x, x <= x, x == x, x - x == 0, x - x >= 0, ~(x < x + 1))]
        return torch.minimum(x, y), torch.maximum(y, x), torch.fmin(x, y), torch.clamp(y, max=x), *chosen

    check(function, x, y)


TINY = torch.tensor([[1, 200, 250, 3, 4, 5, 6, 7, 8, 9, 255, 2, 3, 4, 0]], dtype=torch.uint8)
WRAPPING = {
    "bits of a bfloat16": lambda x: (x.bfloat16() - 4).signbit(),
    "bits of a float32": lambda x: (x.bfloat16() - 4).float().view(torch.int32) < 0,
    "a sum": lambda x: (x.int() + 2**31 - 200) < 0,
    "a difference": lambda x: (x.int() - 2**31) > 0,
    "a product": lambda x: (x.int() * x.int() * x.int() * x.int()) < 0,
    "a negative": lambda x: -(x.int() * 2**23) > 0,
    "a shift": lambda x: (x.int() << 28) < 0,
    "an int64 that is cut": lambda x: (x.long() * x * x * x * x).int() < 0,
    "a uint32 that is cut": lambda x: (x.to(torch.uint32) * 16777217).to(torch.int32) < 0,
    "a float that is cut": lambda x: (x.float() * 1e8).int() < 0,
}


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("function", WRAPPING.values(), ids=WRAPPING)
def test_a_sign_that_wrapping_changes(function: Check, dynamic: bool) -> None:
    """Seed 14335: bounds of 16 bits, shifted by 16, were wrong as int32; what was below zero by them was so always."""
    torch._dynamo.reset()
    with torch._inductor.config.patch(cpu_backend="halide_backend"):
        got = torch.compile(lambda x: (function(x), x + 1), dynamic=dynamic)(TINY)
    assert torch.equal(got[0], function(TINY))
    assert torch.equal(got[1], TINY + 1)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-6), (torch.bfloat16, 4e-3)])
def test_mean_and_variance_near_the_largest_number(dtype: torch.dtype, tolerance: float) -> None:
    """Seed 17592: the sum was -inf, and both were NaN."""
    x = torch.tensor([1.0, 2.0, -3.3e38, 4.0, 5.0, 6.0, 7.0, -3.3e38, 9.0], dtype=dtype)
    variance, mean = torch.compile(torch.var_mean, backend="halide_backend")(x)
    assert float(variance) == float("inf")
    assert float(mean) == pytest.approx(float(x.double().mean()), rel=tolerance)


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("before", [-1, -2, 2])
def test_positions_in_a_row_that_begins_elsewhere(before: int, dynamic: bool) -> None:
    """Seed 100859: Halide moved the shift of the row to the largest position, where it overflowed."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        padded = torch.nn.functional.pad(x.to(torch.int8), (before, 1))
        return padded.max(0)[1], padded.argmin(0)

    halide_backend.reset_stats()
    x = torch.tensor([5000, -3, 130, 7, 9])
    got = torch.compile(function, backend="halide_backend", dynamic=dynamic)(x)
    assert [int(place) for place in got] == [int(place) for place in function(x)]
    assert halide_backend.stats()["delegation_reasons"] == {}


@pytest.mark.parametrize("count", [9, 63, 255, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_deviation_of_equal_numbers(dtype: torch.dtype, count: int) -> None:
    """Seed 65383: rounding left a variance below zero, and the deviation was NaN."""
    compiled = torch.compile(torch.std_mean, backend="halide_backend", dynamic=False)
    for number in torch.randn(40, dtype=dtype):
        deviation, mean = compiled(number.expand(count), 0)
        assert 0 <= float(deviation) <= abs(float(number)) * torch.finfo(dtype).eps
        torch.testing.assert_close(mean, number)


def test_mean_and_variance_near_the_smallest_numbers() -> None:
    """Parts of the mean are denormal, and the squares zero, of which a contracted difference left -0."""
    x = torch.full((65536,), 1.1e-37)
    variance, mean = torch.compile(torch.var_mean, backend="halide_backend")(x, 0)
    assert (float(variance), bool(variance.signbit())) == (0, False)
    assert float(mean) == pytest.approx(float(x.double().mean()), rel=1e-6, abs=0)


@pytest.mark.parametrize("count", [5, 127])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["exp", "exp2", "expm1", "sinh", "cosh"])
def test_infinity_less_infinity_where_a_function_overflows(name: str, dtype: torch.dtype, count: int) -> None:
    """Seed 700247: the last product of exp2 contracted with the subtraction, did not overflow, and -inf remained."""
    x = torch.full((count,), 3000.0, dtype=dtype)
    function: Callable[..., torch.Tensor] = getattr(torch, name)
    compiled = torch.compile(lambda x, y: function(x) - y, backend="halide_backend")
    assert compiled(x, torch.full_like(x, float("inf"))).isnan().all()


def test_columns_of_outputs_with_different_inner_axes() -> None:
    """Seed 1011791: the inner loop of the second output was left inside its vectors, and the two were not fused."""
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(8, 1000, generator=generator).t() for _ in range(2))
    columns = torch.randint(-8, 8, (18,), generator=generator)
    chosen = torch.randint(0, 8, (1000, 7), generator=generator)

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x + y)[:, columns], torch.minimum(x, y).gather(1, chosen)

    halide_backend.reset_stats()
    with torch._inductor.config.patch(force_disable_caches=True):
        got = torch.compile(function, backend="halide_backend", dynamic=True)(x, y)
    assert all(map(torch.equal, got, function(x, y)))
    stats = halide_backend.stats()
    assert (stats["native_kernels"], stats["unfusing_reasons"]) == (1, {})


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x / 8).tanh().sum(-1),
        lambda x: torch.softmax(x.tanh(), -1),
        lambda x: F.layer_norm(x.tanh(), x.shape[-1:]),
        lambda x: (2 * x).argmax(-1),
    ],
    ids=["sum", "softmax", "layer_norm", "argmax"],
)
@pytest.mark.parametrize(
    ("rows", "shape"),
    [((1000,), (65, 1000)), ((3000,), (2000, 3000)), ((65, 1, 1000), (65, 40, 1000)), ((60, 100), (30, 60, 100))],
    ids=str,
)
def test_reductions_of_expanded_rows(
    function: Check, rows: tuple[int, ...], shape: tuple[int, ...], check: Check
) -> None:
    """Seed 1041609: what is the same in all rows was computed for each, so often that legality refused it."""
    assert check(lambda x: function(x.expand(shape)), torch.randn(rows)).kernels == 1


def test_columns_of_a_transposed_operand_are_computed_in_its_tiles(check: Check) -> None:
    """Seed 1104956: what all rows have in common was computed before the tiles that it reads."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.atan2(x, x.abs() + 1).t()[:, None].expand(17, 17, 31).contiguous()

    assert check(function, torch.randn(31, 17)).kernels == 1


@pytest.mark.parametrize(("rows", "columns"), [(255, 3), (20, 40)])
def test_rows_of_a_padded_tensor_are_stored_at_computed_positions(rows: int, columns: int) -> None:
    """Seed 1106667: with dynamic sizes such a row is as long as a loop, but its length is no size of the program. Halide
    read the stride from the buffer then, where there is none."""
    text = f"""
# a0: ({rows}, {columns}) float32 normal contiguous seed 1
# a1: (13,) int64 permutation:{rows} contiguous seed 2
# a2: (13, {columns + 4}) float32 normal contiguous seed 3
# with dynamic shapes
def program(a0, a1, a2):
    v0 = F.pad(a0, (1, 3), value=1)
    v1 = v0.clone().index_put((a1,), a2)
    return v1,
"""
    outcome = check_program(parse(text))
    assert (outcome.kind, outcome.message, outcome.delegated) == ("equal", "", {})


@pytest.mark.parametrize("columns", [31, 63])
def test_averages_of_padded_rows_read_nothing_before_them(columns: int) -> None:
    """Seed 1111107: a segmentation fault, with dynamic sizes, where rows of averages are whole vectors."""
    text = f"""
# a0: (127, {columns}) float32 normal contiguous seed 1
# with dynamic shapes
def program(a0):
    v0 = F.avg_pool2d(a0[None][None], (2, 4), (2, 1), (0, 2), ceil_mode=False, count_include_pad=False)
    return v0,
"""
    outcome = check_program(parse(text))
    assert (outcome.kind, outcome.message, outcome.delegated) == ("equal", "", {})
