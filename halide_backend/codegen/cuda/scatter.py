"""Stores at computed positions: scatters and atomic additions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from halide_backend.codegen.cuda.axes import digits
from halide_backend.codegen.cuda.text import call_text
from halide_backend.codegen.index_text import index_text
from halide_backend.errors import Unsupported
from halide_backend.kernel_library.arguments import Output, known
from halide_backend.program.extents import pieces, product
from halide_backend.program.index import values_of
from halide_backend.program.loop_program import Store
from halide_backend.program.store_layout import OutputLayout
from halide_backend.schedule.stage import Loop, Role, Stage

if TYPE_CHECKING:
    from halide_backend.codegen.cuda.source import Writer

#: Element types without an addition in memory.
_NOT_ATOMIC = frozenset({"bool"})


def write_scatter(writer: Writer, store: Store, layout: OutputLayout, dtype: str) -> Output:
    """An update at computed positions, one step of a single loop for each point; its steps run in any order."""
    if store.mode == "atomic_add" and dtype in _NOT_ATOMIC:
        raise Unsupported(f"an atomic addition of {dtype} on CUDA")
    text, roots = writer.stored_value(store)
    position = layout.position
    assert position is not None
    operands = values_of(position)
    for operand in operands:
        writer.reference(operand)
    names = [axis.name for axis in store.nest.axes]
    loops = writer.axes.loops(names)
    what, where = writer.fresh("scatter_value"), writer.fresh("scatter_position")
    writer.func(what, Role.INLINE, loops, text, writer.calls_of(roots))
    at = index_text(position)
    writer.func(where, Role.INLINE, loops, f"ops.position('int32', {at})", writer.calls_of(operands))
    region = writer.fresh("r")
    tiling = writer.tiling
    points = pieces(product(writer.axes.extents[name] for name in names), tiling.elements)
    writer.lines.append(f'{region} = hl.RDom([(0, {tiling.elements}), (0, {index_text(points)})], "{region}")')
    steps = [loop for loop in reversed(loops) if loop.name != f"{tiling.chunk}_e"]
    coordinates = [(loop.name, writer.axes.chunks(loop.axis)) for loop in steps]
    places = {f"{tiling.chunk}_e": f"{region}[0]", **digits(f"{region}[1]", coordinates)}
    arguments = [places[loop.name] for loop in loops]
    if tiling.chunk:
        places[tiling.chunk] = f"({places[f'{tiling.chunk}_c']})*{tiling.elements} + {region}[0]"
        writer.aligned.append(store.buffer)
    variables = [f"{name}_v" if name == tiling.chunk else name for name in layout.variables]
    for name in variables:
        writer.declare(name)
    target = [places.get(name, f"hl.Expr({call_text(where, arguments)})") for name in layout.variables]
    if points == 1 and target:
        target[0] += f" + {region}[1]"  # which is 0: Halide drops a loop on which nothing depends
    element, new = call_text(store.buffer, target), f"hl.Expr({call_text(what, arguments)})"
    stored = f"ops.stored({dtype!r}, {new})"
    if store.mode == "atomic_add":
        stored = f"memory.added({dtype!r}, {new}, {tiling.elements}, {region}[1])"
    writer.lines += [
        f'{store.buffer} = hl.Func("{store.buffer}")',
        f"{call_text(store.buffer, variables)} = hl.undef(memory.STORAGE[{dtype!r}])",
        f"{element} = {stored}",
        f"memory.target({store.buffer}, [{', '.join(variables)}], {writer.axes.dims_text(layout.dims)})",
    ]
    typical, fixed = math.prod(loop.extent for loop in steps), all(loop.fixed for loop in steps)
    updates = (Loop(f"{region}$x", tiling.elements, "e"), Loop(f"{region}$y", typical, region, fixed))
    writer.stages.append(Stage(store.buffer, Role.SCATTER, (), calls=(what, where), updates=updates))
    dims = tuple((known(extent), known(stride)) for extent, stride in layout.dims)
    return Output(store.buffer, dtype, dims, layout.offset)
