"""Where a line of elements that threads move in chunks may end: within one of them, if nothing shows that."""

from __future__ import annotations

import sympy

from halide_backend.program.access import first_word
from halide_backend.program.index import AxisSymbol, Mod
from halide_backend.program.loop_program import Load, LoopProgram


def may_be_short(program: LoopProgram, along: str, elements: int) -> bool:
    """Whether the axis `along` may end within a chunk, of no more than one vector of any number: all memory is moved in
    words along it, or, beside such, at the remainder by a size, and nothing else depends on what is read beyond the
    end, inside the vector that the tensor ends in.
    """
    if program.checks or any(value.operation == "indirect" for value in program.values):
        return False
    for value in program.values:
        if isinstance(value.attribute, Load) and along in value.axes and value.operands:
            return False
    buffers = {buffer.name: buffer for buffer in (*program.inputs, *program.outputs)}
    loads = [v.attribute for v in program.values if isinstance(v.attribute, Load) and along in v.axes]
    accesses = [(load.buffer, load.index) for load in loads if not _wraps(load.index, along)]
    if loads and not accesses:
        return False
    accesses += [(store.buffer, store.index) for store in program.stores]
    return all(
        buffers[name].aligned and first_word(index, along, buffers[name].dtype, elements) is not None
        for name, index in accesses
    )


def _wraps(index: sympy.Expr, along: str) -> bool:
    """Whether the coordinate along the axis is in `index` by its remainder alone, which is in range also beyond the
    axis' end: a column of a matrix whose rows are one axis with it."""
    symbol = AxisSymbol(along)
    remainders = [each for each in index.atoms(Mod) if each.args[0] == symbol and not each.args[1].has(symbol)]
    return bool(remainders) and not index.xreplace({each: sympy.Integer(0) for each in remainders}).has(symbol)
