"""Whether what a kernel stores has a call of a Func in more than one place, as Halide sees it."""

from __future__ import annotations

from collections.abc import Collection

from halide_backend.program.dtypes import NARROW_FLOATS
from halide_backend.program.loop_program import LoopProgram, Reduction

#: Operations whose text has each operand once, also of integers that wrap.
_ONCE = frozenset(("add", "sub", "mul", "truediv", "neg", "sqrt", "rsqrt", "reciprocal", "identity"))

#: Reductions whose result is what they accumulate.
_PLAIN = frozenset(("sum", "prod"))


def repeats_calls(program: LoopProgram, stored: Collection[int]) -> bool:
    """Whether the element of an output names a reduction, or a value of those that may have Funcs, `stored`, twice.

    Operations that are not known to name an operand once count as two places; Funcs may be inlined.
    """
    dtypes = {buffer.name: buffer.dtype for buffer in program.outputs}
    for store in program.stores:
        places = [0] * len(program.values)
        places[store.value] = 2 if dtypes[store.buffer] in (*NARROW_FLOATS, "bool") else 1
        for position in reversed(range(store.value + 1)):
            value, count = program.values[position], places[position]
            if not count:
                continue
            if isinstance(value.attribute, Reduction):
                if count > 1 or value.attribute.kind not in _PLAIN:
                    return True
                continue
            if count > 1 and position in stored:
                return True
            for operand in value.operands:
                places[operand] += count if value.operation in _ONCE else 2 * count
    return False
