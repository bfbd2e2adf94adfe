"""Exponentials are scaled by one instruction of AVX-512: where it is written, and that every bit is the same."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import halide_backend
from halide_backend.build.llvm.scaled_products import with_scaled_products
from halide_backend.build.target import Target
from halide_backend.inspection.compiled import compile_for

AVX512, AVX2 = Target.named("avx512"), Target.named("avx2")
SCALED = "llvm.x86.avx512.mask.scalef.ps"


def module(lanes: int, *, first: str = "%half", offset: str = "0xC168000000000000") -> str:
    """x 2**(k // 2) 2**(k - k // 2), k in the bits of %shifted; another `first` or `offset` is another function."""
    floats, words = f"<{lanes} x float>", f"<{lanes} x i32>"
    return f"""
define {floats} @f({floats} %x, {floats} %shifted, {words} %other) {{
  %whole = fadd contract {floats} %shifted, splat (float {offset})
  %y = fadd contract {floats} %x, %whole
  %bits = bitcast {floats} %shifted to {words}
  %double = shl {words} %bits, splat (i32 22)
  %half = and {words} %double, splat (i32 -8388608)
  %low = add {words} {first}, splat (i32 1065353216)
  %factor = bitcast {words} %low to {floats}
  %p = fmul contract {floats} %y, %factor
  %all = shl {words} %bits, splat (i32 23)
  %rest = sub {words} %all, %half
  %high = add {words} %rest, splat (i32 1065353216)
  %last = bitcast {words} %high to {floats}
  %r = fmul {floats} %p, %last
  ret {floats} %r
}}
"""


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_the_product_takes_the_float(lanes: int) -> None:
    ir = with_scaled_products(module(lanes), AVX512)
    assert re.search(rf"%r = call <{lanes} x float> @{SCALED}\.\d+\(.* %y, .* %whole, ", ir)
    assert ir.count("declare") == 1


def test_two_registers_are_multiplied_in_halves() -> None:
    ir = with_scaled_products(module(32), AVX512)
    assert len(re.findall(rf"product.*call <16 x float> @{SCALED}\.512\(", ir)) == 2
    assert re.search(r"%r = shufflevector <16 x float> \S+lower.product.r\S+ <16 x float> \S+upper.product.r", ir)
    assert ir.count("declare") == 1


@pytest.mark.parametrize(
    "ir",
    [module(16, first="%other"), module(16, offset="0xC178000000000000"), module(3), module(64)],
    ids=["other bits", "other offset", "three lanes", "four registers"],
)
def test_other_products_stay(ir: str) -> None:
    assert with_scaled_products(ir, AVX512) == ir


def test_avx2_has_no_such_instruction() -> None:
    assert with_scaled_products(module(8), AVX2) == module(8)


#: Every exponent of a result, denormal ones, what overflows and what vanishes, and NaN and infinities.
ARGUMENTS = torch.cat(
    [
        torch.linspace(-110, 95, 40_003),
        torch.linspace(-104.5, -86.5, 20_001),
        torch.tensor([0.0, -0.0, 1e-40, torch.nan, torch.inf, -torch.inf, 3e38, -3e38]),
    ]
)


def long(x: Tensor) -> Tensor:
    """A formula of which vectors have two registers."""
    return torch.exp(x) + torch.sigmoid(x)


@pytest.mark.skipif(bool(AVX512.requires() - Target.host().requires()), reason="a processor without AVX-512")
@pytest.mark.parametrize(
    "function", [torch.exp, torch.exp2, torch.sigmoid, long], ids=lambda function: function.__name__
)
@pytest.mark.parametrize("columns", [0, 10], ids=["one row", "rows of ten"])
def test_every_bit_is_the_same(function: Callable[[Tensor], Tensor], columns: int) -> None:
    x = ARGUMENTS[: ARGUMENTS.numel() // columns * columns].reshape(-1, columns) if columns else ARGUMENTS
    found = []
    for target, scaled in (("avx512", True), ("avx2", False)):
        halide_backend.reset_stats()
        options = {"halide_backend.target": target}
        found.append(compile_for("halide_backend", lambda x: function(x), options=options)(x))
        (record,) = halide_backend.records()
        assert ("vscalefps" in record.assembly()) is scaled
    assert torch.equal(found[0].view(torch.int32), found[1].view(torch.int32))
    # The least denormal number is 1.4e-45.
    torch.testing.assert_close(found[0], function(x.double()).float(), rtol=3e-7, atol=3e-45, equal_nan=True)
