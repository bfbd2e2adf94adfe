"""Every elementwise operation over every dtype, at the values where implementations go wrong.

The truth is Python's own integer arithmetic for integers and torch's eager operation for floating point; results are
compared bit by bit (any NaN equals any other). One kernel computes all operations of a dtype.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from kernel import Builder, name_of

from halide_backend.program.operation_names import COMPARISONS, LOGICAL, MATHEMATICS, OPERATIONS

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
)  # fmt: skip
SPECIAL = (
    math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.4e38, -3.4e38, 1e-45, -1e-41,
    65504.0, 1e-7, 6e-8, 16777217.0, 3.0, -7.0, 0.1,
)  # fmt: skip


def float_pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    pairs = torch.tensor(list(itertools.product(SPECIAL, SPECIAL)), dtype=torch.float64)
    more = torch.randn((200, 2), generator=generator, dtype=torch.float64) * 10
    both = torch.cat([pairs, more]).to(dtype)
    return both[:, 0].contiguous(), both[:, 1].contiguous()


def integer_values(dtype: torch.dtype) -> list[int]:
    info = torch.iinfo(dtype)
    values = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, 8, 100, info.max // 3, info.min // 7]
    return sorted({*values, *(v for v in (-1, -2, -3, -7, -8, -100) if v >= info.min)})


def integers(values: list[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of these values; torch.tensor refuses uint64 above the int64 range."""
    if dtype is torch.uint64:
        return torch.tensor([v - 2**64 if v >= 2**63 else v for v in values]).view(torch.uint64)
    return torch.tensor(values, dtype=dtype)


def wrapped(value: int, dtype: torch.dtype) -> int:
    info = torch.iinfo(dtype)
    return (value - info.min) % (info.max - info.min + 1) + info.min


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INTEGER_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "truncdiv": truncated,
    "mod": lambda a, b: a - b * truncated(a, b),
    "fmod": lambda a, b: a - b * truncated(a, b),
    "remainder": lambda a, b: a % b,
    "maximum": max,
    "minimum": min,
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
    "neg": lambda a: -a,
    "abs": abs,
    "square": lambda a: a * a,
    "bitwise_not": lambda a: ~a,
    "sign": lambda a: (a > 0) - (a < 0),
    "relu": lambda a: max(a, 0),
    "identity": lambda a: a,
    "floor": lambda a: a,
    "ceil": lambda a: a,
    "trunc": lambda a: a,
    "round": lambda a: a,
    "fma": lambda a, b: a * b + a,
}
DIVISIONS = {"floordiv", "truncdiv", "mod", "fmod", "remainder"}
INTEGER_TESTS: dict[str, Callable[..., bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "signbit": lambda a: a < 0, "isnan": lambda a: False,
    "isinf": lambda a: False,
}  # fmt: skip
FLOAT_OPERATIONS: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "truediv": torch.div, "maximum": torch.maximum,
    "minimum": torch.minimum, "copysign": torch.copysign, "neg": torch.neg, "abs": torch.abs, "square": torch.square,
    "relu": torch.relu, "sign": torch.sign, "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc,
    "round": torch.round, "identity": lambda a: a, "reciprocal": torch.reciprocal,
    # numpy's is the processor's. Eager is a bit off: in float32 at 65504, on some processors in float64 at 0.5.
    "sqrt": lambda a: torch.from_numpy(np.sqrt(a.double().numpy())).to(a.dtype),
}  # fmt: skip
FLOAT_TESTS: dict[str, Callable[..., torch.Tensor]] = {
    "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge,
    "signbit": torch.signbit, "isnan": torch.isnan, "isinf": torch.isinf,
}  # fmt: skip
BOOL_OPERATIONS: dict[str, Callable[..., bool]] = {
    "logical_and": lambda a, b: a and b, "logical_or": lambda a, b: a or b, "logical_xor": lambda a, b: a != b,
    "logical_not": lambda a: not a, "bitwise_and": lambda a, b: a and b, "bitwise_or": lambda a, b: a or b,
    "bitwise_xor": lambda a, b: a != b, "bitwise_not": lambda a: not a, "add": lambda a, b: a or b,
    "mul": lambda a, b: a and b, "maximum": lambda a, b: a or b, "minimum": lambda a, b: a and b,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "identity": lambda a: a, "sign": lambda a: a,
}  # fmt: skip
TESTED_BELOW = {
    "bitwise_left_shift", "bitwise_right_shift", "to_dtype", "bitcast", "where", "rsqrt", "nextafter", "ldexp",
    "floor_to_int", "ceil_to_int", "trunc_to_int", "round_to_int", "fmaximum",
}  # fmt: skip


def computed(
    names: list[tuple[str, int]], dtype: torch.dtype, result: torch.dtype | None, *arguments: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Each named operation of so many operands, all in one kernel."""
    builder = Builder((arguments[0].numel(),))
    loads = [builder.load(dtype) for _ in arguments]
    for name, arity in names:
        operands = (loads * 3)[:arity] if name != "fma" else [loads[0], loads[1], loads[0]]
        out = result or dtype
        builder.store(builder.value(name, out, operands), out)
    return dict(zip([name for name, _ in names], builder.run(*arguments)))


def arity(function: Callable[..., Any]) -> int:
    code = getattr(function, "__code__", None)
    if code is not None:
        return int(code.co_argcount)
    return 2 if function in (max, min) else 1


FLOAT_ARITY = {"add", "sub", "mul", "truediv", "maximum", "minimum", "copysign", "eq", "ne", "lt", "le", "gt", "ge"}


def assert_same_bits(got: torch.Tensor, expected: torch.Tensor, name: str, *arguments: torch.Tensor) -> None:
    same = (got == expected) & (torch.signbit(got) == torch.signbit(expected))
    same |= got.isnan() & expected.isnan()
    wrong = (~same).nonzero().flatten().tolist()[:5]
    told = [([a[k].item() for a in arguments], got[k].item(), expected[k].item()) for k in wrong]
    assert not told, f"{name} of {got.dtype}: (operands, got, expected) {told}"


@pytest.mark.parametrize("dtype", INTEGERS, ids=name_of)
def test_integer_arithmetic_wraps(dtype: torch.dtype) -> None:
    values = integer_values(dtype)
    pairs = list(itertools.product(values, values))
    a, b = (integers([pair[k] for pair in pairs], dtype) for k in (0, 1))
    table = {k: f for k, f in INTEGER_OPERATIONS.items() if k != "neg" or dtype.is_signed}
    got = computed([(name, 3 if name == "fma" else arity(f)) for name, f in table.items()], dtype, None, a, b)
    for name, function in table.items():
        results = got[name].tolist()
        for (x, y), result in zip(pairs, results):
            if name in DIVISIONS and y == 0:
                continue  # the kernel's check reports it; here it only must not trap
            expected = function(x, y) if arity(function) == 2 else function(x)
            assert result == wrapped(expected, dtype), (name, x, y)


@pytest.mark.parametrize("dtype", INTEGERS, ids=name_of)
def test_integer_comparisons(dtype: torch.dtype) -> None:
    values = integer_values(dtype)
    pairs = list(itertools.product(values, values))
    a, b = (integers([pair[k] for pair in pairs], dtype) for k in (0, 1))
    got = computed([(name, arity(f)) for name, f in INTEGER_TESTS.items()], dtype, torch.bool, a, b)
    for name, function in INTEGER_TESTS.items():
        expected = [function(*pair[: arity(function)]) for pair in pairs]
        assert got[name].tolist() == expected, name


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_float_arithmetic(dtype: torch.dtype) -> None:
    a, b = float_pairs(dtype)
    names = [(name, 2 if name in FLOAT_ARITY else 1) for name in FLOAT_OPERATIONS]
    got = computed(names, dtype, None, a, b)
    for name, count in names:
        operands = (a, b)[:count]
        expected = FLOAT_OPERATIONS[name](*operands)
        if name in ("maximum", "minimum"):  # which zero wins is free
            assert_same_bits(got[name] + 0.0, expected + 0.0, name, *operands)
        else:
            assert_same_bits(got[name], expected, name, *operands)


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_float_tests(dtype: torch.dtype) -> None:
    a, b = float_pairs(dtype)
    names = [(name, 2 if name in FLOAT_ARITY else 1) for name in FLOAT_TESTS]
    got = computed(names, dtype, torch.bool, a, b)
    for name, count in names:
        operands = (a, b)[:count]
        assert torch.equal(got[name], FLOAT_TESTS[name](*operands)), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=name_of)
def test_fma_is_product_plus_sum(dtype: torch.dtype) -> None:
    """Rounded once or twice: both are allowed, nothing else is."""
    a, b = torch.randn(400, dtype=dtype), torch.randn(400, dtype=dtype)
    got = computed([("fma", 3)], dtype, None, a, b)["fma"]
    exact = [Fraction(x) * Fraction(y) + Fraction(x) for x, y in zip(a.tolist(), b.tolist())]
    once = torch.tensor([float(value) for value in exact], dtype=torch.float64).to(dtype)
    assert bool(((got == once) | (got == a * b + a)).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=name_of)
def test_reciprocal_root(dtype: torch.dtype) -> None:
    a, _ = float_pairs(dtype)
    torch.testing.assert_close(computed([("rsqrt", 1)], dtype, None, a)["rsqrt"], a.rsqrt(), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=name_of)
def test_next_number(dtype: torch.dtype) -> None:
    a, b = float_pairs(dtype)
    got = computed([("nextafter", 2)], dtype, None, a, b)["nextafter"]
    assert_same_bits(got, torch.nextafter(a, b), "nextafter", a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=name_of)
def test_the_maximum_of_cpp(dtype: torch.dtype) -> None:
    a, b = float_pairs(dtype)
    got = computed([("fmaximum", 2)], dtype, None, a, b)["fmaximum"]
    assert_same_bits(got, torch.where(a < b, b, a), "fmaximum", a, b)


def test_logic() -> None:
    pairs = [(bool(k & 1), bool(k & 2)) for k in range(40)]
    a, b = (torch.tensor([pair[k] for pair in pairs]) for k in (0, 1))
    got = computed([(name, arity(f)) for name, f in BOOL_OPERATIONS.items()], torch.bool, None, a, b)
    for name, function in BOOL_OPERATIONS.items():
        assert got[name].tolist() == [function(*pair[: arity(function)]) for pair in pairs], name


@pytest.mark.parametrize("dtype", INTEGERS, ids=name_of)
def test_shifts_beyond_the_width(dtype: torch.dtype) -> None:
    bits = torch.iinfo(dtype).bits
    low = -3 if dtype.is_signed else 0
    pairs = list(itertools.product(integer_values(dtype), [*range(low, bits + 3), 100]))
    a, b = (integers([pair[k] for pair in pairs], dtype) for k in (0, 1))
    got = computed([("bitwise_left_shift", 2), ("bitwise_right_shift", 2)], dtype, None, a, b)
    for (x, y), left, right in zip(pairs, got["bitwise_left_shift"].tolist(), got["bitwise_right_shift"].tolist()):
        inside = 0 <= y < bits
        assert left == (wrapped(x << y, dtype) if inside else 0), (x, y)
        assert right == (x >> y if inside else (-1 if x < 0 else 0)), (x, y)


def _cast_source(source: torch.dtype, target: torch.dtype) -> torch.Tensor:
    if source is torch.bool:
        return torch.tensor([True, False] * 20)
    if source.is_floating_point:
        if target.is_floating_point or target is torch.bool:
            return float_pairs(source)[0]
        info = torch.iinfo(target)
        values = [0.0, -0.0, 0.9, 1.5, 2.5, 100.7, 127.0, *([-0.9, -1.5, -100.7, -128.0] if target.is_signed else [])]
        values += [v for v in (32767.0, 65504.0, 1e6, 2.0**30, 2.0**40, -(2.0**31)) if info.min <= v <= info.max]
        made = torch.tensor(values, dtype=torch.float64).to(source)
        keep = torch.isfinite(made) & (made.double() <= float(info.max)) & (made.double() >= float(info.min))
        return made[keep]
    return integers(integer_values(source), source)


@pytest.mark.parametrize("source", [torch.bool, *INTEGERS, *FLOATS], ids=name_of)
def test_conversions(source: torch.dtype) -> None:
    for target in (torch.bool, *INTEGERS, *FLOATS):
        values = _cast_source(source, target)
        builder = Builder((values.numel(),))
        builder.store(builder.value("to_dtype", target, [builder.load(source)]), target)
        (got,) = builder.run(values)
        expected = values.to(target)
        if target.is_floating_point:
            assert_same_bits(got, expected, f"to_dtype from {source}", values)
        else:
            assert got.tolist() == expected.tolist(), (source, target)


@pytest.mark.parametrize("source", FLOATS, ids=name_of)
def test_floats_that_do_not_fit_into_a_byte(source: torch.dtype) -> None:
    """Their lowest byte as an int64, of which the smallest stands for what does not fit there either."""
    near = [base + step for base in (2.0**31, -(2.0**31)) for step in (-384.0, -128.0, -1.0, 0.0, 1.0, 256.0)]
    large = [2.0**32 + 512, 2.0**62, 2.0**63, -(2.0**63), 2.0**64, 1e30, -1e30, math.inf, -math.inf, math.nan]
    small = [-0.9, -1.0, -1.5, -255.5, -257.0, 255.9, 256.0, 257.9, 40000.0, -40000.0, 8388609.0, -8388611.0]
    values = torch.tensor([*near, *large, *small] * 3, dtype=torch.float64).to(source)
    builder = Builder((values.numel(),))
    builder.store(builder.value("to_dtype", torch.uint8, [builder.load(source)]), torch.uint8)
    in_64_bits = [
        0 if not math.isfinite(v) or not -(2.0**63) <= v < 2.0**63 else int(v) % 256 for v in values.double().tolist()
    ]
    assert builder.run(values)[0].tolist() == in_64_bits


@pytest.mark.parametrize("level", ["", "sse41"])
@pytest.mark.parametrize("target", [torch.float16, torch.bfloat16], ids=name_of)
def test_rounding_to_16_bits(target: torch.dtype, level: str) -> None:
    """Ties, overflow, denormals and NaN payloads: all upper halves of a float32 with lower halves around the tie.

    Processors of the level "sse41" convert to no 16-bit float.
    """
    upper = torch.arange(0, 65536, 3, dtype=torch.int64) << 16
    words = torch.cat([upper + low for low in (0, 1, 0x1000, 0x1FFF, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])
    values = words.to(torch.int32).view(torch.float32)
    builder = Builder((values.numel(),))
    builder.store(builder.value("to_dtype", target, [builder.load(torch.float32)]), target)
    assert_same_bits(builder.run(values, level=level)[0], values.to(target), "to_dtype", values)


@pytest.mark.parametrize("level", ["", "sse41"])
@pytest.mark.parametrize("target", [torch.float16, torch.bfloat16], ids=name_of)
def test_float64_is_rounded_to_16_bits_by_way_of_float32(target: torch.dtype, level: str) -> None:
    """As torch does: what float32 has for a tie is rounded to even, although it lies beside it."""
    step = torch.finfo(target).eps
    ties = 1 + step * (torch.arange(-8, 8, dtype=torch.float64) + 0.5)
    values = torch.cat([sign * (ties + beside) for sign in (1, -1) for beside in (-(2.0**-30), 0, 2.0**-30)])
    builder = Builder((values.numel(),))
    single = builder.value("to_dtype", torch.float32, [builder.load(torch.float64)])
    builder.store(builder.value("to_dtype", target, [single]), target)
    builder.store(builder.value("to_dtype", target, [builder.load(torch.float64)]), target)
    for got in builder.run(values, values, level=level):
        assert_same_bits(got, values.float().to(target), "to_dtype", values)
    assert torch.equal(values.float().to(target), values.to(target))


@pytest.mark.parametrize(("name", "function"), [
    ("floor", torch.floor), ("ceil", torch.ceil), ("trunc", torch.trunc), ("round", torch.round)
])  # fmt: skip
def test_rounding_to_integers(name: str, function: Callable[..., torch.Tensor]) -> None:
    """Capture writes floor_to_int as floor and to_dtype."""
    values = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 1e6 + 0.5, -3.7, 3.7, 0.0]).repeat(4)
    builder = Builder((values.numel(),))
    rounded = builder.value(name, torch.float32, [builder.load(torch.float32)])
    builder.store(builder.value("to_dtype", torch.int32, [rounded]), torch.int32)
    assert torch.equal(builder.run(values)[0], function(values).to(torch.int32))


@pytest.mark.parametrize(("source", "target"), [
    (torch.float32, torch.int32), (torch.int32, torch.float32), (torch.float64, torch.int64),
    (torch.int64, torch.float64), (torch.float16, torch.int16), (torch.int16, torch.bfloat16),
    (torch.bfloat16, torch.uint16), (torch.uint8, torch.int8), (torch.bfloat16, torch.float16),
])  # fmt: skip
def test_reading_the_bits_as_another_type(source: torch.dtype, target: torch.dtype) -> None:
    size = source.itemsize
    words = torch.randint(-128, 128, (64 * size,), dtype=torch.int8)
    values = words.view(source)
    builder = Builder((64,))
    builder.store(builder.value("bitcast", target, [builder.load(source)]), target)
    got, expected = builder.run(values)[0], values.view(target)
    if target.is_floating_point:
        assert_same_bits(got, expected, "bitcast", values)
    else:
        quiet = values.float().isnan() if source.is_floating_point else torch.zeros(64, dtype=torch.bool)
        assert torch.equal(got[~quiet], expected[~quiet])


@pytest.mark.parametrize("dtype", [torch.bool, *INTEGERS, *FLOATS], ids=name_of)
def test_selection(dtype: torch.dtype) -> None:
    condition = torch.rand(40) < 0.5
    a = torch.randint(0, 2, (40,)).to(dtype) if not dtype.is_floating_point else torch.randn(40).to(dtype)
    b = torch.stack([a[39 - k] for k in range(40)])
    builder = Builder((40,))
    mask = builder.load(torch.bool)
    builder.store(builder.value("where", dtype, [mask, builder.load(dtype), builder.load(dtype)]), dtype)
    got = builder.run(condition, a, b)[0]
    assert got.tolist() == [x if c else y for c, x, y in zip(condition.tolist(), a.tolist(), b.tolist())]


@pytest.mark.parametrize("dtype", INTEGERS, ids=name_of)
def test_integer_powers(dtype: torch.dtype) -> None:
    pairs = [(x, y) for x in integer_values(dtype) for y in (0, 1, 2, 3, 7, 31, 63)]
    a, b = (integers([pair[k] for pair in pairs], dtype) for k in (0, 1))
    got = computed([("pow", 2)], dtype, None, a, b)["pow"]
    assert got.tolist() == [wrapped(x**y, dtype) for x, y in pairs]


def test_every_operation_is_tested() -> None:
    tested = {*INTEGER_OPERATIONS, *INTEGER_TESTS, *FLOAT_OPERATIONS, *FLOAT_TESTS, *BOOL_OPERATIONS, *TESTED_BELOW}
    assert tested | MATHEMATICS == OPERATIONS
    assert tested >= COMPARISONS | LOGICAL
