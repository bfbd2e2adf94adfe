"""Transposed operands: loads that run along another axis of memory than the store they feed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sympy

from halide_backend.program.access import is_contiguous
from halide_backend.program.index import AxisSymbol, Mod, expanded
from halide_backend.program.loop_program import Load, LoopProgram, Reduction, Store, Value
from halide_backend.program.operation_names import RECURRENCES
from halide_backend.program.store_layout import OutputLayout, output_layout

#: Below this extent a strided load stays in one cache line or two; copying it into a tile would not pay.
_TILE = 8

#: Elements of a line below which what is adjacent is no line: two or three pixels side by side.
_LINE = 4


def strided_loads(program: LoopProgram, layouts: dict[str, OutputLayout], *, masked: bool = False) -> dict[int, str]:
    """Loads that run along another axis of memory than the store they feed, one of those in `layouts`: the transposed
    operands, each with the axis along which it is adjacent, also those that are `masked` alike along it."""
    found: dict[int, str] = {}
    hints = {axis.name: axis.hint for axis in program.axes}
    for store in program.stores:
        layout = layouts.get(store.buffer)
        if layout is None or layout.scattered or not layout.dims or layout.dims[0][1] != 1:
            continue
        inner = layout.variables[0]
        if hints[inner] < _TILE:
            continue
        for position in _behind(program, store):
            value = program.values[position]
            masks = [program.values[operand] for operand in value.operands]
            if masks and not masked:
                continue
            if isinstance(value.attribute, Load) and (along := _along(value, value.attribute, masks, inner, hints)):
                found[position] = along
    return found


def transposed_axes(program: LoopProgram) -> tuple[str, str] | None:
    """The axes along which the transposed operands of a pointwise program are read and its outputs are written, if
    there is one pair."""
    if any(isinstance(v.attribute, Reduction) or v.operation in RECURRENCES for v in program.values):
        return None
    layouts = {store.buffer: output_layout(store, program) for store in program.stores}
    inner = {layout.variables[0] for layout in layouts.values() if layout.variables}
    across: set[str] = set()
    for position in strided_loads(program, layouts):
        value = program.values[position]
        assert isinstance(value.attribute, Load)
        across |= {name for name in value.axes if is_contiguous(value.attribute.index, name)}
    return (across.pop(), inner.pop()) if len(inner) == len(across) == 1 else None


def rows_as_columns(program: LoopProgram) -> tuple[str, str] | None:
    """The axis along which rows of a few elements are read, as the channels of a pixel, and the one along which each
    of their elements is stored, if that is all that is read along either."""
    if len(program.stores) != 1 or program.checks:
        return None
    (store,) = program.stores
    along = [axis.name for axis in program.axes if is_contiguous(store.index, axis.name)]
    if store.mode is not None or len(along) != 1:
        return None
    (column,) = along
    loads = [value.attribute for value in program.values if isinstance(value.attribute, Load) and column in value.axes]
    for axis in program.axes:
        few = isinstance(axis.extent, int) and 1 < axis.extent < _TILE
        if not few or axis.symbol not in store.index.free_symbols:
            continue
        steps = [expanded(load.index).coeff(AxisSymbol(column)) for load in loads if not load.coordinates]
        near = all(step.is_Integer and axis.extent <= step < _TILE for step in steps)
        if loads and len(steps) == len(loads) and near and all(is_contiguous(load.index, axis.name) for load in loads):
            return axis.name, column
    return None


def lies_across(load: Load, row: str, across: str) -> bool:
    """Whether `load` steps by one element along the axis `across`, and by more of them along `row`."""
    index = expanded(load.index)
    return is_contiguous(index, across) and _stride(index, AxisSymbol(row)) not in (0, 1, -1)


def _behind(program: LoopProgram, store: Store) -> set[int]:
    seen: set[int] = set()
    stack = [store.value]
    while stack:
        position = stack.pop()
        if position not in seen:
            seen.add(position)
            if not isinstance(program.values[position].attribute, Reduction):
                stack += program.values[position].operands
    return seen


def _along(value: Value, load: Load, masks: Sequence[Value], inner: str, extents: Mapping[str, int]) -> str:
    """The axis along which `load` is adjacent, whatever its `masks`, "" if it is no transposed operand of a store along
    `inner`."""
    if inner not in value.axes or any(mask.dtype != "bool" and mask.operation != "indirect" for mask in masks):
        return ""
    index = expanded(load.index)
    by_name = {symbol.name: symbol for symbol in index.free_symbols if symbol.name in extents}
    strides = {name: _stride(index, symbol) for name, symbol in by_name.items()}
    # Rows that are looked up for each point lie anywhere.
    looked_up = any(mask.operation == "indirect" and inner in mask.axes for mask in masks)
    if not looked_up and (inner not in strides or strides[inner] in (0, 1, -1)):
        return ""
    masked: set[str] = set().union(*(mask.axes for mask in masks))
    others = (name for name in sorted(strides) if name != inner and strides[name] == 1 and name not in masked)
    return next((name for name in others if extents[name] >= _TILE), "")


def _stride(index: sympy.Expr, symbol: sympy.Symbol) -> sympy.Expr:
    """Elements from one point along an axis to the next, but for jumps where one of several long lines ends."""
    lines = (m for m in index.atoms(Mod) if m.args[0] == symbol and not (m.args[1].is_Integer and m.args[1] < _LINE))
    return index.coeff(symbol) + sum(index.coeff(term) for term in lines)
