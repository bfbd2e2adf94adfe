"""Vectors of two runs of adjacent elements, as where a rolled row begins anew: two loads with masks.

Each element is as far from the first one, or from the last one, as its lane is. Which of both is found out when the
kernel runs; where it holds for all lanes, elements are loaded that would be loaded anyway, and no others.
"""

from __future__ import annotations

import re

from halide_backend.build.llvm.gathers import Gather, widened

_DECLARED = re.compile(r"^declare [^\n]*@llvm\.masked\.load\.v[^\n]*", re.MULTILINE)
_SUFFIX = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16"}


def runs(name: str, lanes: int, index: str) -> list[str]:
    """The lines that find out of which run each lane is, and whether all are of one: "split".

    `name` begins the names of what is known: indices less the first one, "from", and the last one less that, "spans".
    """
    indices, flags, n = f"<{lanes} x {index}>", f"<{lanes} x i1>", f"%{name}"
    up, down = (", ".join(f"{index} {lane - less}" for lane in range(lanes)) for less in (0, lanes - 1))
    return [
        f"  {n}.back = sub {indices} {n}.from, {n}.spans",
        f"  {n}.head = icmp eq {indices} {n}.from, <{up}>",
        f"  {n}.tail = icmp eq {indices} {n}.back, <{down}>",
        f"  {n}.runs = or {flags} {n}.head, {n}.tail",
        f"  {n}.each = bitcast {flags} {n}.runs to i{lanes}",
        f"  {n}.split = icmp eq i{lanes} {n}.each, -1",
    ]


def load_runs(gather: Gather, name: str, known: str, first: str, form: str) -> list[str]:
    """The lines that load `gather`, whose first index is `first`, as `{name}.value` in a block of its own if it is
    `known` to be two runs, and go on to the block `{name}.else` otherwise. `form` is what masked loads are like."""
    n, o, lanes, index = f"%{name}", f"%{known}", gather.lanes, gather.index_type
    vector, flags = f"<{lanes} x {gather.type}>", f"<{lanes} x i1>"
    align, _, notes = gather.notes.partition(", ")

    def load(place: str, mask: str, other: str) -> str:
        where = f"ptr {place}, i32 {align.split()[1]}" if "i32" in form else f"ptr {align} {place}"
        call = f"call {vector} {masked_load(gather)}({where}, {flags} {mask}, {vector} {other})"
        return f"{call}, {notes}" if notes else call

    return [
        f"  br i1 {o}.split, label {n}, label {n}.else",
        "",
        f"{name}:",
        f"  {n}.end = add {index} {first}, {o}.span",
        f"  {n}.start = sub {index} {n}.end, {lanes - 1}",
        *(f"  {n}.{end}64 = {widened(value, index)}" for end, value in (("p", first), ("q", f"{n}.start"))),
        *(f"  {n}.{end} = getelementptr {gather.type}, ptr {gather.base}, i64 {n}.{end}64" for end in "pq"),
        f"  {n}.run = {load(f'{n}.p', f'{o}.head', 'poison')}",
        f"  {n}.value = {load(f'{n}.q', f'{o}.tail', f'{n}.run')}",
    ]


def masked_load(gather: Gather) -> str:
    """LLVM's function for a load of such a vector with a mask."""
    return f"@llvm.masked.load.v{gather.lanes}{_SUFFIX.get(gather.type, gather.type)}.p0"


def declaration(gather: Gather, form: str) -> str:
    """Of the function, with the arguments of `form`."""
    vector = f"<{gather.lanes} x {gather.type}>"
    return f"declare {vector} {masked_load(gather)}({form}<{gather.lanes} x i1>, {vector})"


def form_of(ir: str) -> str:
    """The first arguments of masked loads: Halide's LLVM gives their alignment as one."""
    declared = _DECLARED.search(ir)
    return "ptr, i32, " if declared and ", i32 immarg" in declared[0] else "ptr, "
