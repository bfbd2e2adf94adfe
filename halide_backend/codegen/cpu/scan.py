"""A scan on a CPU: a Func whose update takes one step after another along the scanned axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy

from halide_backend.codegen.axes import Axes
from halide_backend.codegen.call_text import call_text, tuple_text
from halide_backend.codegen.index_text import index_text
from halide_backend.codegen.kernel_builder import KernelBuilder
from halide_backend.codegen.scan_text import combination_lines, component_text
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.func_cost import define
from halide_backend.program.index import FloorDiv, expanded
from halide_backend.program.loop_program import Scan, Value
from halide_backend.schedule.mapping.chunks import contiguous_axis
from halide_backend.schedule.stage import Loop, Role, Stage, rvar

#: Elements along memory that are scanned by themselves before they are combined with all that come before, and the
#: operations of a combination up to which that pays.
CHUNK, _LIGHT = 8, 8

#: In what sums and products accumulate, as ATen's do on a CPU: the last of 50,000 sums in float32 would be wrong in its
#: last 8 bits.
_ACCUMULATED = {"float32": "float64"}


def write_scan(builder: KernelBuilder[Axes], position: int, value: Value, scan: Scan) -> str:
    """Write the scan whose component is the value at `position`, unless another component did; the component's text."""
    dtype = _accumulated(value, scan)
    made_of = value.operands, scan.axes, scan.combination
    if made_of not in builder.known:
        builder.known[made_of] = _write(builder, value, scan, dtype)
    builder.calls[position] = name = builder.known[made_of]
    text = component_text(name, builder.axes.loops(value.axes), value, scan)
    return text if dtype == value.dtype else f"ops.to_dtype({dtype!r}, {value.dtype!r}, {text})"


@dataclass(frozen=True)
class _Scan:
    """What the Funcs of a scan along `axis` have in common: the Func `name` of its results, the function `combine` of
    two elements, and the Func `operand`, all over `loops`; the types in which components are combined, the `bits` of
    the widest, and the `work` of one combination."""

    name: str
    combine: str
    operand: str
    axis: str
    loops: tuple[Loop, ...]
    dtypes: tuple[str, ...]
    bits: int
    work: int

    def at(self, func: str, place: str) -> str:
        """The element of `func` at `place` of the scanned axis."""
        element = self.components(func, [place if loop.axis == self.axis else loop.name for loop in self.loops])
        return f"scans.converted({element}, {self.dtypes!r})" if func == self.operand else element

    def components(self, func: str, place: Sequence[str]) -> str:
        """Those of the element of `func` at `place`."""
        return f"scans.element({func}, {len(self.dtypes)}, {tuple_text(place)})"

    def stage(self, name: str, loops: Sequence[Loop], calls: Sequence[str], updates: Sequence[Loop]) -> Stage:
        facts: dict[str, Any] = {"bits": self.bits, "work": self.work, "values": len(self.dtypes)}
        return Stage(name, Role.SCAN, tuple(loops), calls=tuple(calls), updates=tuple(updates), **facts)


def _write(builder: KernelBuilder[Axes], value: Value, scan: Scan, dtype: str) -> str:
    """Write the Funcs of all components of `scan`; the name of the one that holds them."""
    name, loops = builder.unique_name("scan"), tuple(builder.axes.loops(value.axes))
    what, operands = f"{name}_operand", tuple_text([f"t{operand}" for operand in value.operands])
    builder.lines += combination_lines(f"{name}_combine", scan.combination)
    taken = tuple(builder.program.values[operand].dtype for operand in value.operands)
    builder.func(what, Role.INLINE, loops, f"scans.defined({operands})", value.operands, bits=_bits(taken))
    dtypes = taken if dtype == value.dtype else (dtype,)
    work = define(scan.combination.program, scan.combination.results, {}).work
    (axis,) = (each.name for each in scan.axes)
    funcs = _Scan(name, f"{name}_combine", what, axis, loops, dtypes, _bits(dtypes), work)
    along = contiguous_axis(builder.program) == axis and work <= _LIGHT
    (_write_in_chunks if along else _write_in_steps)(builder, funcs)
    return name


def _write_in_steps(builder: KernelBuilder[Axes], scan: _Scan) -> None:
    """One step for each element."""
    _, updates, places = builder.rdom([scan.axis])
    step = places[scan.axis]
    earlier, later = scan.at(scan.name, f"hl.max({step} - 1, 0)"), scan.at(scan.operand, step)
    _updated(builder, scan, step, f"{scan.combine}, {earlier}, {later}, {step}")
    builder.stages.append(scan.stage(scan.name, scan.loops, [scan.operand], updates))


def _write_in_chunks(builder: KernelBuilder[Axes], scan: _Scan) -> None:
    """One step for each chunk of elements, which are scanned by themselves first: steps wait for each other, chunks do
    not."""
    along = next(loop for loop in scan.loops if loop.axis == scan.axis)
    others = [loop for loop in scan.loops if loop.axis != scan.axis]
    number = f"{scan.axis}_c"
    chunks = replace(along, name=number, extent=-(-along.extent // CHUNK), axis=number, size="")
    chunk = _write_chunk(builder, scan, (Loop(f"{scan.axis}_e", CHUNK, f"{scan.axis}_e"), chunks, *others))
    steps, extent = builder.unique_name("r"), sympy.sympify(builder.axes.extents[scan.axis])
    count = index_text(FloorDiv(extent + CHUNK - 1, CHUNK))
    builder.lines.append(f'{steps} = hl.RDom([(0, {CHUNK}), (0, {count})], "{steps}")')
    element, step = f"{steps}[0]", f"{steps}[1]"
    earlier = scan.at(scan.name, f"hl.max({CHUNK}*{step} - 1, 0)")
    own = scan.components(chunk, [element, step, *(loop.name for loop in others)])
    _updated(builder, scan, f"{CHUNK}*{step} + {element}", f"{scan.combine}, {earlier}, {own}, {step}")
    updates = [Loop(rvar(steps, 0), CHUNK, scan.axis), replace(chunks, name=rvar(steps, 1), axis=scan.axis)]
    builder.stages.append(scan.stage(scan.name, scan.loops, [chunk], updates))


def _write_chunk(builder: KernelBuilder[Axes], scan: _Scan, loops: Sequence[Loop]) -> str:
    """Write the Funcs of a chunk over `loops`, of which the first two are those of its elements and of chunks; the name
    of the last one.

    Each element is combined with the one before it, then with the one 2 before it, which stands for two, then 4 before
    it (Hillis and Steele, "Data Parallel Algorithms", 1986): three combinations of vectors in place of seven of single
    elements. The last chunk may go beyond the end of the axis, where it takes the last element again.
    """
    element, number, *others = (loop.name for loop in loops)
    for name in (element, number):
        builder.declare(name)
    last = index_text(expanded(sympy.sympify(builder.axes.extents[scan.axis]) - 1))
    chunk, calls = f"{scan.name}_chunk", scan.operand
    values = scan.at(scan.operand, f"hl.min(hl.likely({CHUNK}*{number} + {element}), {last})")
    distance = 1
    while True:
        values = f"scans.defined({values})"
        builder.lines += [f'{chunk} = hl.Func("{chunk}")', f"{call_text(chunk, [element, number, *others])} = {values}"]
        builder.stages.append(scan.stage(chunk, loops, [calls], []))
        if distance == CHUNK:
            return chunk
        before, own = (
            scan.components(chunk, [place, number, *others])
            for place in (f"hl.max({element} - {distance}, 0)", element)
        )
        values = f"scans.within_chunk({scan.combine}, {before}, {own}, {element} >= {distance})"
        distance *= 2
        chunk, calls = f"{scan.name}_chunk_{distance}", chunk


def _updated(builder: KernelBuilder[Axes], scan: _Scan, place: str, arguments: str) -> None:
    """Define the Func of `scan` and its update at `place` of the scanned axis."""
    at = [place if loop.axis == scan.axis else loop.name for loop in scan.loops]
    builder.lines += [
        f'{scan.name} = hl.Func("{scan.name}")',
        f"{call_text(scan.name, [loop.name for loop in scan.loops])} = scans.defined(scans.unset({scan.dtypes!r}))",
        f"{call_text(scan.name, at)} = scans.defined(scans.next_of({arguments}))",
    ]


def _bits(dtypes: Sequence[str]) -> int:
    return max(ELEMENT[each][1] for each in dtypes)


def _accumulated(value: Value, scan: Scan) -> str:
    """The type in which the scan with the component `value` accumulates."""
    operations = [each.operation for each in scan.combination.program.values]
    alone = operations in (["earlier", "later", "add"], ["earlier", "later", "mul"])
    return _ACCUMULATED.get(value.dtype, value.dtype) if alone else value.dtype
