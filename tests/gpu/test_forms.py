"""Forms of kernels that only some sizes and values take, against values that are known exactly."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import halide_backend
from halide_backend.inspection.compiled import compile_for

pytestmark = pytest.mark.gpu
Native = Callable[[], int]


def any_floats(*shape: int) -> Tensor:
    """float32 of every exponent and both signs, infinities and NaN among them."""
    bits = torch.randint(-(2**31), 2**31 - 1, shape, device="cuda", dtype=torch.int64)
    return bits.to(torch.int32).view(torch.float32)


def same(found: Tensor, wanted: Tensor) -> None:
    """Fail unless the bits are equal, but for denormals and the payloads of NaN."""
    tiny = torch.finfo(torch.float32).tiny
    normal = (wanted.abs() >= tiny) | (wanted == 0)
    assert torch.equal(found.isnan(), wanted.isnan())
    assert torch.equal(found[normal].view(torch.int32), wanted[normal].view(torch.int32))
    denormal = ~normal & ~wanted.isnan()
    assert bool((found[denormal].abs() <= tiny).all())


@pytest.mark.parametrize("columns", [8, 64, 2048])
def test_a_shared_divisor_divides_exactly(native: Native, columns: int) -> None:
    rows = (1 << 24) // columns
    dividends, divisors = any_floats(rows, columns), any_floats(rows, 1)
    dividends[:, 0], dividends[:, 1] = 0.0, -0.0
    divisors[:16, 0] = torch.tensor(
        [0, -0.0, 1, 3, float("inf"), 1e-45, -1e-45, 1.17e-38, 3.4e38, 1.9999999, -1, 1e-30, 1e30, 2e38, 1e-38, 7],
        device="cuda",
    )
    found = torch.compile(lambda a, b: a / b, dynamic=False)(dividends, divisors)
    same(found, dividends / divisors)
    # Of numbers that are not far from one another every quotient is normal.
    near, by = torch.randn(rows, columns, device="cuda"), torch.rand(rows, 1, device="cuda") + 0.01
    torch._dynamo.reset()
    same(torch.compile(lambda a, b: a / b, dynamic=False)(near, by), near / by)
    assert native() == 2


def test_a_sum_of_a_row_divides_exactly(native: Native) -> None:
    x = torch.randint(1, 100, (4099, 2048), device="cuda").float()
    found = torch.compile(lambda x: x / x.sum(-1, keepdim=True), dynamic=False)(x)
    assert torch.equal(found, x / x.sum(-1, keepdim=True))
    assert native() == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_roots_and_reciprocals_of_all_16_bits(native: Native, dtype: torch.dtype) -> None:
    """They are within a bit of what float64 rounds to; infinities, zeros and NaN are the same."""
    x = torch.arange(1 << 16, device="cuda").to(torch.int16).view(dtype)
    for function in (torch.sqrt, torch.reciprocal, torch.rsqrt):
        torch._dynamo.reset()
        found = torch.compile(function, dynamic=False)(x)
        wanted = function(x.double()).to(dtype)
        number = wanted.isfinite()
        assert torch.equal(found.isnan(), wanted.isnan())
        assert torch.equal(found[wanted.isinf()], wanted[wanted.isinf()])
        apart = (found.view(torch.int16).int() - wanted.view(torch.int16).int()).abs()
        assert int(apart[number].max()) <= 1
    assert native() >= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8], ids=str)
@pytest.mark.parametrize("shape", [(2048, 1536), (2056, 4104), (40, 56, 1568), (70, 32, 3136)], ids=str)
def test_large_transposes_are_exact(native: Native, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = (torch.randn(*shape, device="cuda") * 10).to(dtype)
    wanted = x.transpose(-1, -2).contiguous()
    assert torch.equal(torch.compile(lambda x: x.transpose(-1, -2).contiguous(), dynamic=False)(x), wanted)
    torch._dynamo.reset()
    # Between operands along either axis, stored in another type too.
    other = (torch.randn(wanted.shape, device="cuda") * 10).to(dtype)

    def added(x: Tensor, y: Tensor) -> Tensor:
        return (x.transpose(-1, -2) + y).float()

    # Sums of 16-bit floats are not rounded before they are stored.
    right = added(x.float(), other.float()) if dtype.is_floating_point else added(x, other)
    assert torch.equal(torch.compile(added, dynamic=False)(x, other), right)
    assert native() >= 2


@pytest.mark.parametrize("side", [10, 28, 55, 56])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_pooling_of_any_side(native: Native, side: int, dtype: torch.dtype) -> None:
    x = torch.randint(-99, 99, (9, 5, side, side), device="cuda").to(dtype)
    for kernel, stride in ((2, 2), (3, 2), (3, 3), (4, 4)):
        torch._dynamo.reset()
        found = torch.compile(lambda x, k=kernel, s=stride: torch.nn.functional.max_pool2d(x, k, s), dynamic=False)(x)
        assert torch.equal(found, torch.nn.functional.max_pool2d(x, kernel, stride))
    assert native() >= 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("count", [1, 3, 4, 8, 11, 1001])
def test_what_only_constants_make(native: Native, count: int, dtype: torch.dtype) -> None:
    def made() -> tuple[Tensor, ...]:
        numbers = torch.arange(count, device="cuda", dtype=torch.int64 if dtype is torch.bool else dtype)
        return torch.zeros(count, device="cuda", dtype=dtype), torch.ones(count, device="cuda", dtype=dtype), numbers

    for found, wanted in zip(torch.compile(made, dynamic=False)(), made(), strict=True):
        assert torch.equal(found, wanted)
    assert native() >= 1


def test_an_addition_to_a_scalar(native: Native) -> None:
    x, index, source = (torch.tensor(value, device="cuda") for value in (1.5, 0, 2.25))
    found = torch.compile(lambda x, i, s: x.index_add(0, i, s), dynamic=False)(x, index, source)
    assert found.item() == 3.75
    assert native() >= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_a_scalar_on_the_cpu(native: Native, dtype: torch.dtype) -> None:
    """torch lets kernels read them, Triton gets their values as arguments."""
    x, scalar = torch.arange(-3, 70, device="cuda").to(torch.float64), torch.tensor(3).to(dtype)
    functions: list[Callable[[Tensor, Tensor], Tensor]] = [
        lambda x, s: x * s + s,
        lambda x, s: x.masked_fill(x > 2, s),
        lambda x, s: torch.where(x > s, s, x).sum(),
        lambda x, s: x + (s + 1),
    ]
    for function in functions:
        torch._dynamo.reset()
        compiled = torch.compile(function, dynamic=False)
        assert torch.equal(compiled(x, scalar), function(x, scalar))
        changed = scalar + 1
        assert torch.equal(compiled(x, changed), function(x, changed))
    assert native() >= len(functions)


@pytest.mark.parametrize("begin", [1, 3, 16])
def test_parts_of_a_concatenation_that_begin_anywhere(native: Native, begin: int) -> None:
    x, y = torch.randn(begin, 1000, device="cuda"), torch.randint(0, 9, (5, 4096), device="cuda")

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        ends = torch.cat([x.amax(1), x[0] * 2, x.reshape(-1) + 1])
        return ends, torch.cat([y[:, :begin].sum(1, keepdim=True), y.cumsum(1)], 1)

    for found, wanted in zip(torch.compile(function, dynamic=False)(x, y), function(x, y), strict=True):
        assert torch.equal(found, wanted)
    assert native() >= 3


@pytest.mark.parametrize("shape", [(5, 5), (33, 64), (33, 65)], ids=str)
def test_a_loop_inside_an_operation(native: Native, shape: tuple[int, int]) -> None:
    a, x = 5 * torch.rand(2, *shape, device="cuda", dtype=torch.float64)
    for function in (torch.igamma, torch.igammac, lambda a, x: torch.igammac(a, x[:, :1]).sum(1)):
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(function, dynamic=False)(a, x), function(a, x), rtol=1e-10, atol=1e-14)
    assert native() >= 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_a_store_at_one_computed_place(native: Native, dtype: torch.dtype) -> None:
    x, value, index = torch.arange(5, device="cuda").to(dtype), torch.tensor([9], device="cuda").to(dtype), [3]
    found = torch.compile(lambda x, i, v: x.index_put((i,), v), dynamic=False)(
        x, torch.tensor(index, device="cuda"), value
    )
    assert found.tolist() == [0, 1, 2, 9, 4]
    assert native() >= 1


@pytest.mark.parametrize("kept", [3, 8])
def test_reductions_over_more_than_four_loops(native: Native, kept: int) -> None:
    x = torch.randint(-50, 50, (2, 3, 2, 3, 2, 3, 2, 3, 2, kept), device="cuda").float()
    y = torch.randint(-50, 50, (2, 3, 2, 3, 2, 3, 2, 3, 2, 2, 2, kept), device="cuda").float()
    for operand, over in ((x, (0, 2, 4, 6, 8)), (y, (0, 2, 4, 6, 8, 10))):
        for function in (Tensor.sum, Tensor.amax, Tensor.var):
            torch._dynamo.reset()
            found, wanted = torch.compile(function, dynamic=False)(operand, over), function(operand.double(), over)
            # Sums and maxima of small integers are exact.
            relative = 1e-5 if function is Tensor.var else 0
            torch.testing.assert_close(found.double(), wanted, rtol=relative, atol=0)
    assert native() >= 6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64], ids=str)
@pytest.mark.parametrize("count", [1, 9, 1000])
@pytest.mark.parametrize("right", [False, True])
def test_binary_searches_are_eagers(native: Native, dtype: torch.dtype, count: int, right: bool) -> None:
    boundaries = (torch.randn(count, device="cuda") * 50).to(dtype).sort()[0]
    values = torch.cat([(torch.randn(10_001, device="cuda") * 50).to(dtype), boundaries])
    found = torch.compile(lambda x, b: torch.bucketize(x, b, right=right), dynamic=False)(values, boundaries)
    assert torch.equal(found, torch.bucketize(values, boundaries, right=right))
    rows = (torch.randn(30, count, device="cuda") * 50).to(dtype).sort(-1)[0]
    values = (torch.randn(30, 77, device="cuda") * 50).to(dtype)
    found = torch.compile(lambda s, v: torch.searchsorted(s, v, right=right) * 2, dynamic=False)(rows, values)
    assert torch.equal(found, torch.searchsorted(rows, values, right=right) * 2)
    assert native() >= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_what_padding_makes_the_same_for_whole_blocks(native: Native, dtype: torch.dtype) -> None:
    x = torch.rand(2100, 1101, device="cuda").to(dtype)

    def padded(x: Tensor) -> Tensor:
        return torch.nn.functional.pad(x, (1, 3, 2, 2))

    for function in (torch.exp, torch.tanh, torch.sin, torch.sigmoid):
        torch._dynamo.reset()
        found, wanted = torch.compile(lambda x, f=function: f(padded(x)), dynamic=False)(x), function(padded(x))
        torch.testing.assert_close(found, wanted)
    assert native() == 4


@pytest.mark.parametrize("count", [2, 4, 8, 16])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_positions_of_one_chunk(native: Native, count: int, dtype: torch.dtype) -> None:
    def made(x: Tensor) -> tuple[Tensor, Tensor]:
        numbers = torch.arange(count, device="cuda", dtype=dtype)
        return numbers.expand(100, count) * 2, x + numbers

    x = torch.randint(0, 9, (100, count), device="cuda").to(dtype)
    for found, wanted in zip(torch.compile(made, dynamic=False)(x), made(x), strict=True):
        assert torch.equal(found, wanted)
    assert native() >= 1


@pytest.mark.parametrize("shape", [(33, 65), (64, 64), (1000, 31), (3, 70, 45), (2001, 4099), (300, 40, 56)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_transposes_with_several_outputs(native: Native, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randint(-8, 9, shape, device="cuda").to(dtype)
    y = torch.randint(-8, 9, (*shape[:-2], shape[-1], shape[-2]), device="cuda").to(dtype)

    def several(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x.mT + y, x.mT * y, y - x.mT

    for found, wanted in zip(torch.compile(several, dynamic=False)(x, y), several(x, y), strict=True):
        assert torch.equal(found, wanted)
    assert 1 <= native() <= 2
    assert halide_backend.stats()["unfused_groups"] == 0


def test_old_values_for_other_outputs_do_not_part_their_group(native: Native) -> None:
    def step(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        before = p * 2
        m.lerp_(g, 0.125)
        v.mul_(0.5).addcmul_(g, g, value=0.25)
        p.addcdiv_(m, v.sqrt() + 1, value=-0.5)
        return before, p + 1

    operands = [torch.rand(100_003, device="cuda") for _ in range(4)]
    own = [operand.clone() for operand in operands]
    for found, wanted in zip(torch.compile(step, dynamic=False)(*own), step(*operands), strict=True):
        torch.testing.assert_close(found, wanted)
    for found, wanted in zip(own, operands, strict=True):
        torch.testing.assert_close(found, wanted)
    assert native() >= 1
    assert halide_backend.stats()["unfused_groups"] == 0


def test_both_halves_of_a_rotary_embedding(native: Native) -> None:
    def halves(x: Tensor, c: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        return x[..., :32] * c - x[..., 32:] * s, x[..., 32:] * c + x[..., :32] * s

    x = torch.randint(-8, 9, (4, 128, 8, 64), device="cuda").bfloat16()
    c, s = (torch.randint(-1, 2, (128, 1, 32), device="cuda").bfloat16() for _ in range(2))
    for found, wanted in zip(torch.compile(halves, dynamic=False)(x, c, s), halves(x, c, s), strict=True):
        assert torch.equal(found, wanted)
    assert native() >= 1
    assert halide_backend.stats()["unfused_groups"] == 0


def test_denormals_are_rounded_like_other_numbers(native: Native) -> None:
    """libdevice's floor takes them for zeros."""
    x = torch.tensor([1e-41, -1e-41, 1e-45, -0.0, 0.0, -1.5, 2.5], device="cuda")
    for rounded in (torch.floor, torch.ceil, torch.trunc, torch.frac):
        torch.testing.assert_close(torch.compile(rounded)(x), rounded(x), rtol=0, atol=0)
    assert native() == 4


@pytest.mark.parametrize("function", [torch.fmod, torch.remainder], ids=lambda function: function.__name__)
def test_remainders_are_exact(native: Native, function: Callable[..., Tensor]) -> None:
    x, y = any_floats(1 << 24), any_floats(1 << 24)
    near = torch.randn(1 << 24, device="cuda") * 1000
    for by in (y, near, near.roll(1) * 1e-3):
        torch._dynamo.reset()
        for each in (x, near, (near * 8).round() * by / 8):
            found = torch.compile(function, dynamic=False)(each, by)
            torch.testing.assert_close(found, function(each, by), rtol=0, atol=0, equal_nan=True)
    assert native() >= 3


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, 2, 0), (3, 2, 1), (3, 1, 1), (3, 3, 0)])
def test_gradients_of_max_pooling_are_read(
    native: Native, kernel: int, stride: int, padding: int, dtype: torch.dtype, layout: torch.memory_format
) -> None:
    """Of small integers sums are exact in any order."""

    def pool(x: Tensor) -> Tensor:
        return F.max_pool2d(x, kernel, stride, padding)

    x = torch.randint(0, 20, (6, 40, 37, 54), device="cuda").to(dtype).contiguous(memory_format=layout)
    slope = torch.randint(-8, 9, pool(x).shape, device="cuda").to(dtype)
    compiled = compile_for("halide_backend", pool)
    leaves = [x.clone(memory_format=torch.preserve_format).requires_grad_() for _ in range(2)]
    for each, leaf in zip((compiled.call, pool), leaves):
        each(leaf).backward(slope)
    assert leaves[0].grad is not None and leaves[1].grad is not None
    assert torch.equal(leaves[0].grad, leaves[1].grad)
    code = compiled.codes[-1]
    assert "Role.SCATTER" not in code and "atomic_add" not in code
    assert native() >= 2
