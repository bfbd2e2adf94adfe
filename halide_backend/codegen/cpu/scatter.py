"""Stores at computed positions on a CPU: an update over an RDom."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import sympy

from halide_backend.codegen.axes import Axes
from halide_backend.codegen.call_text import call_text
from halide_backend.codegen.index_text import index_text
from halide_backend.codegen.kernel_builder import KernelBuilder
from halide_backend.program.access import is_contiguous
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.index import AxisSymbol, axes_of, expanded, values_of
from halide_backend.program.loop_program import Load, Store, Value
from halide_backend.program.store_layout import OutputLayout
from halide_backend.schedule.stage import Loop, Role, Stage


def read_what_is_stored(builder: KernelBuilder[Axes], store: Store, layout: OutputLayout, dtype: str) -> None:
    """Let what is written from now on read the value of a plain `store` from its output, which holds all of it.

    A scatter walks over its values in a nest of its own, in which they would be computed once more.
    """
    value = builder.program.values[store.value]
    exact = value.dtype == dtype and dtype in ("float32", "float64")
    if exact and not isinstance(value.attribute, Load) and set(layout.variables) == value.axes:
        # Halide would compute as many elements as vectors of the scatter hold, beyond the end of the buffer.
        ends = zip(layout.variables, layout.dims)
        within = [f"memory.place({name}, {index_text(extent)})" for name, (extent, _) in ends]
        builder.lines.append(f"t{store.value} = hl.Expr({call_text(store.buffer, within)})")
        builder.calls[store.value] = store.buffer


def _is_on_line(position: sympy.Expr, axis: str, operands: Iterable[Value]) -> bool:
    """Whether each step along `axis` moves the `position`, of which `operands` are data, by the same number."""
    index, symbol = expanded(position), AxisSymbol(axis)
    step = index.coeff(symbol)
    apart = all(axis not in operand.axes for operand in operands)
    return apart and step != 0 and not expanded(index - step * symbol).has(symbol)


def write_scatter(
    builder: KernelBuilder[Axes], store: Store, layout: OutputLayout, dtype: str, text: str, bits: int
) -> None:
    """An update at computed positions: serial over its RDom, pure over columns and rows that allow it. `text` is the
    element of memory that is stored; a value that is added to one is held in `bits` bits."""
    axes, values = builder.axes, builder.program.values
    value, position = builder.reference(store.value), layout.position
    assert position is not None
    operands = values_of(position)
    for operand in operands:
        builder.reference(operand)
    over = [axis.name for axis in store.nest.axes if axis.name not in layout.variables]
    loops = axes.loops(axis.name for axis in store.nest.axes)
    what, where = builder.unique_name("scatter_value"), builder.unique_name("scatter_position")
    adds, stored = store.mode == "atomic_add", ELEMENT[dtype][1]
    # What is stored is rounded in this Func, which is computed in vectors, not in the update, one element at a time.
    bits = bits if adds else stored
    builder.func(what, Role.INLINE, loops, value if adds else text, [store.value], bits=bits)
    moving = axes.loops(axes_of(position).union(*(values[operand].axes for operand in operands)))
    builder.func(where, Role.INLINE, moving, f"ops.position('int32', {index_text(position)})", operands)
    data = [values[operand] for operand in operands]
    lines = tuple(name for name in over if _is_on_line(position, name, data))
    builder.stages[-1] = replace(builder.stages[-1], strided=lines)
    # One place for every column needs no RDom; an update it is all the same.
    _, updates, places = builder.rdom(over) if over else ("", (), {})
    builder.lines += [f'{name} = hl.Var("{name}")' for name in layout.variables if name not in axes.extents]
    at = f"hl.Expr({call_text(where, [places.get(loop.name, loop.name) for loop in moving])})"
    extents = {name: index_text(extent) for name, (extent, _) in zip(layout.variables, layout.dims)}
    within = {name: f"memory.place({at}, {extents[name]})" for name in extents if name not in axes.extents}
    element = call_text(store.buffer, [within.get(name, name) for name in layout.variables])
    new = f"hl.Expr({call_text(what, [places.get(loop.name, loop.name) for loop in loops])})"
    if adds:
        new = f"ops.stored({dtype!r}, ops.add(ops.load({dtype!r}, hl.Expr({element})), ops.opaque({new})))"
    builder.updated_func(store.buffer, layout.variables, dtype, element, new)
    pure = [axes.loop(name, name) if name in axes.extents else Loop(name, 1, name) for name in layout.variables]
    # Where elements that are stored one after another lie side by side, as the pixels of a patch that is folded do.
    distinct = tuple(name for name in over if not operands and is_contiguous(position, name))
    calls = (what, where)
    stage = Stage(store.buffer, Role.SCATTER, tuple(pure), calls=calls, updates=updates, bits=stored, distinct=distinct)
    builder.stages.append(stage)
