"""Where a store goes: the dimensions of the output Func, or the positions of a scatter."""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from halide_backend.algorithm.loop_program import LoopProgram, Store


@dataclass(frozen=True)
class OutputLayout:
    """An output Func's `variables` and, one for each, `dims` of (extent, stride); innermost dimension first.

    If `scattered`, the last variable is a computed `position` (in units of its dimension's stride) and the others are
    axes that the update may treat as pure.
    """

    variables: tuple[str, ...]
    dims: tuple[tuple[int, int], ...]
    offset: int = 0
    position: sympy.Expr | None = None

    @property
    def scattered(self) -> bool:
        return self.position is not None


def output_layout(store: Store, program: LoopProgram) -> OutputLayout:
    """An N-d box of memory if the index is one, else a scatter."""
    index = sympy.expand(store.index)
    axes = {axis.symbol: axis for axis in store.nest.iteration}
    coefficients = {symbol: index.coeff(symbol) for symbol in axes}
    rest = sympy.expand(index - sum(c * s for s, c in coefficients.items()))
    if store.mode is None and rest.is_Integer and not store.nest.reduction:
        dims = sorted(
            (int(c), axes[symbol].extent, axes[symbol].name)
            for symbol, c in coefficients.items()
            if c.is_Integer
        )
        if len(dims) == len(axes) and _is_box([(stride, extent) for stride, extent, _ in dims]):
            return OutputLayout(
                tuple(name for _, _, name in dims),
                tuple((extent, stride) for stride, extent, _ in dims),
                int(rest),
            )
    return _scatter(store, index, program)


def _is_box(dims: list[tuple[int, int]]) -> bool:
    """Whether no two points of the (stride, extent) dimensions, ordered by stride, share an address."""
    reach = 1
    for stride, extent in dims:
        if stride < reach:
            return False
        reach = stride * extent
    return True


def _scatter(store: Store, index: sympy.Expr, program: LoopProgram) -> OutputLayout:
    extent = next(buffer.extent for buffer in program.outputs if buffer.name == store.buffer)
    for axis in reversed(store.nest.iteration):
        # A column: the index is stride-1 in this axis and everything else moves by whole rows of it.
        others = sympy.expand(index - axis.symbol)
        rows = sympy.expand(others / axis.extent)
        whole = all(term.as_coeff_Mul()[0].is_Integer for term in sympy.Add.make_args(rows))
        if axis.symbol not in others.free_symbols and whole and extent % axis.extent == 0:
            return OutputLayout(
                (axis.name, "p"),
                ((axis.extent, 1), (extent // axis.extent, axis.extent)),
                position=rows,
            )
    return OutputLayout(("p",), ((extent, 1),), position=index)
