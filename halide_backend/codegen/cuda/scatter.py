"""Stores at computed positions: scatters and atomic additions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from halide_backend.codegen.call_text import call_text
from halide_backend.codegen.cuda.axes import TiledAxes, unflatten
from halide_backend.codegen.index_text import index_text
from halide_backend.codegen.kernel_builder import KernelBuilder
from halide_backend.errors import Unsupported
from halide_backend.kernel_library.arguments import Output, known
from halide_backend.program.extents import ceil_div, is_multiple, product
from halide_backend.program.index import values_of
from halide_backend.program.loop_program import Store
from halide_backend.program.store_layout import OutputLayout
from halide_backend.schedule.stage import Loop, LoopKind, Role, Stage, rvar

#: Element type of numbers of which a thread adds the sum, if two of them go to one place (build/ptx/atomics.py).
_SUMMED = "float32"

#: Element types without an addition in memory.
_NOT_ATOMIC = frozenset({"bool"})


def write_scatter(
    builder: KernelBuilder[TiledAxes], store: Store, layout: OutputLayout, text: str, roots: Sequence[int]
) -> Output:
    """An update of `text`, made of the values `roots`, at computed positions, in any order.

    The loops are those of a thread's elements and steps, of threads, and of blocks: adjacent threads take adjacent
    points, or pairs of them, in each of their steps, all of which are in flight at once.
    """
    dtype = next(buffer.dtype for buffer in builder.program.outputs if buffer.name == store.buffer)
    if store.mode == "atomic_add" and dtype in _NOT_ATOMIC:
        raise Unsupported("atomic-add-dtype", f"an atomic addition of {dtype}")
    position = layout.position
    assert position is not None
    operands = values_of(position)
    names = [axis.name for axis in store.nest.axes]
    loops = builder.axes.loops(names)
    what, where = builder.unique_name("scatter_value"), builder.unique_name("scatter_position")
    builder.func(what, Role.INLINE, loops, text, roots)
    at = index_text(position)
    builder.func(where, Role.INLINE, loops, f"ops.position('int32', {at})", operands)
    region = builder.unique_name("r")
    tiling = builder.axes.tiling
    points = ceil_div(product(builder.axes.extents[name] for name in names), tiling.elements)
    block = tiling.unroll * tiling.threads
    blocks = ceil_div(points, block)
    extents = [tiling.elements, tiling.unroll, tiling.threads]
    pairs = ", ".join(f"(0, {extent})" for extent in (*extents, index_text(blocks)))
    number = f"{region}_n"
    within = f"{region}[1]*{tiling.threads} + {region}[2]"
    again = 0
    if tiling.across:
        # A thread adds an element to several places: it loads it once.
        within = f"{region}[2]*{tiling.unroll} + {region}[1]"
        again = tiling.lines if tiling.unroll > tiling.lines else 0
    elif store.mode == "atomic_add" and operands and layout.variables[:1] != tuple(names[-1:]) and tiling.unroll > 1:
        # Neighbours often add to one place: two of them are one thread's, so that a warp's places are more.
        within = f"({region}[1] // 2*{tiling.threads} + {region}[2])*2 + {region}[1] % 2"
        again = 1
    builder.lines += [
        f'{region} = hl.RDom([{pairs}], "{region}")',
        f"{number} = {region}[3]*{block} + {within}",
    ]
    if not is_multiple(points, block):
        builder.lines.append(f"{region}.where(hl.likely({number} < {index_text(points)}))")
    steps = [loop for loop in reversed(loops) if loop.name != f"{tiling.chunk}_e"]
    coordinates = [(loop.name, builder.axes.chunks(loop.axis)) for loop in steps]
    places = {f"{tiling.chunk}_e": f"{region}[0]", **unflatten(number, coordinates)}
    arguments = [places[loop.name] for loop in loops]
    if tiling.chunk:
        places[tiling.chunk] = f"({places[f'{tiling.chunk}_c']})*{tiling.elements} + {region}[0]"
        builder.aligned.append(store.buffer)
    variables = [f"{name}_v" if name == tiling.chunk else name for name in layout.variables]
    for name in variables:
        builder.declare(name)
    target = [places.get(name, f"hl.Expr({call_text(where, arguments)})") for name in layout.variables]
    if points == 1 and target:
        target[0] += f" + {number}"  # which is 0: Halide drops a loop on which nothing depends
    element, new = call_text(store.buffer, target), f"hl.Expr({call_text(what, arguments)})"
    stored = f"ops.stored({dtype!r}, {new})"
    if store.mode == "atomic_add":
        hint = f", {again}" if again and dtype == _SUMMED else ""
        stored = f"memory.added({dtype!r}, {new}, {tiling.elements}, {number}{hint})"
    builder.updated_func(store.buffer, variables, dtype, element, stored)
    dims_text = builder.axes.dims_text(layout.dims)
    builder.lines.append(f"memory.target({store.buffer}, [{', '.join(variables)}], {dims_text})")
    typical = -(-math.prod(loop.extent for loop in steps) // block)
    kinds = LoopKind.ELEMENT, LoopKind.STEP, LoopKind.THREAD
    own = [Loop(rvar(region, k), extent, region, kind=kind) for k, (extent, kind) in enumerate(zip(extents, kinds))]
    updates = (*own, Loop(rvar(region, 3), typical, region, all(loop.fixed for loop in steps)))
    builder.stages.append(Stage(store.buffer, Role.SCATTER, (), calls=(what, where), updates=updates))
    dims = tuple((known(extent), known(stride)) for extent, stride in layout.dims)
    return Output(store.buffer, dtype, dims, layout.offset)
