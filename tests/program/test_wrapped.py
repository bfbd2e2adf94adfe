"""Remainders of coordinates that run around a dimension once are choices, which are the same for all sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sympy
import torch
from torch import Tensor

from halide_backend.inspection.compiled import compile_for
from halide_backend.program.index import AxisSymbol, Mod, SizeSymbol
from halide_backend.program.loop_program import Axis, Buffer, Extent, Load, LoopProgram, Nest, Size, Store, Value
from halide_backend.program.wrapped import with_wrapped_coordinates

X, N, M = AxisSymbol("x0"), SizeSymbol("n0", nonnegative=True), SizeSymbol("n1", nonnegative=True)
SHIFT = Mod(N - 3, N)


def loading(index: sympy.Expr, extent: Extent = N) -> LoopProgram:
    axis = Axis("x0", extent, 50)
    value = Value.of("load", "float32", (), Load("in_ptr0", index), [])
    return LoopProgram(
        inputs=(Buffer("in_ptr0", "float32", N, 0),),
        sizes=(Size("n0", N, hint=50), Size("n1", M, hint=50)),
        outputs=(Buffer("out_ptr0", "float32", N, 1),),
        values=(value,),
        stores=(Store("out_ptr0", X, 0, Nest((axis,))),),
        checks=(),
        outer=(axis,),
    )


def test_a_coordinate_and_a_shift_that_are_both_less_than_the_divisor() -> None:
    (value,) = with_wrapped_coordinates(loading(Mod(X + SHIFT, N))).values
    assert isinstance(value.attribute, Load)
    assert value.attribute.index.atoms(Mod) == {SHIFT}
    for n in (1, 2, 3, 4, 50):
        for x in range(n):
            assert int(value.attribute.index.xreplace({X: x, N: n})) == (x + (n - 3) % n) % n


@pytest.mark.parametrize(
    "program",
    [
        loading(Mod(X + SHIFT, N), N + 2),  # A loop that is longer than the dimension.
        loading(Mod(X + 3, N)),  # The shift may be more.
        loading(Mod(X + Mod(N - 3, M), N)),
        loading(Mod(2 * X + SHIFT, N)),
        loading(Mod(X + Mod(X - 3, N), N)),
        loading(Mod(X + 53, 56), 56),
    ],
)
def test_no_others(program: LoopProgram) -> None:
    assert with_wrapped_coordinates(program) == program


@pytest.mark.parametrize(
    "function", [lambda x: x.roll(3, -1), lambda x: x.roll((-2, 5), (-1, -2)), lambda x: x.roll(40, 0) + 1]
)
def test_rolled_values_are_eagers_whatever_the_sizes_are(function: Callable[[Tensor], Tensor]) -> None:
    compiled = compile_for("halide_backend", function, dynamic=True)
    for shape in ((8, 30, 80), (7, 29, 79), (3, 5, 2), (2, 2, 17), (5, 3, 33), (2, 64, 131), (0, 4, 5), (1, 1, 1)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0)
    assert not compiled.delegated and set(compiled.kernels()) == {"halide_backend"}
