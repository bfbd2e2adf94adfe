"""Which values of a program are constants, which have to be exact, and which may be computed with fewer bits."""

from __future__ import annotations

from halide_backend.program.loop_program import Load, LoopProgram, Reduction, Scan

_ROUNDED = ("bfloat16", "float16")
_FLOATS = (*_ROUNDED, "float32", "float64")

#: Operations on floats that make a large difference of a small one.
_DISCONTINUOUS = frozenset({"ceil", "floor", "fmod", "mod", "nextafter", "remainder", "round", "sign", "trunc"})


def exact_values(program: LoopProgram) -> frozenset[int]:
    """Positions of the values whose last bits may show.

    They do not where a value flows through continuous operations into elements of 16 bits alone, or is rounded to 16
    bits on its way.
    """
    dtypes = {buffer.name: buffer.dtype for buffer in program.outputs}
    found = {check.condition for check in program.checks}
    for store in program.stores:
        if dtypes[store.buffer] not in _ROUNDED:
            found.add(store.value)
    for position in reversed(range(len(program.values))):
        value = program.values[position]
        positional = isinstance(value.attribute, Reduction) and value.attribute.position is not None
        positional = positional or isinstance(value.attribute, Scan)
        abrupt = value.dtype not in _FLOATS or value.operation in _DISCONTINUOUS or positional
        rounds = value.operation == "to_dtype" and value.dtype in _ROUNDED
        if (position in found and not rounds) or abrupt:
            found.update(value.operands)
    return frozenset(found)


def rounded_indices(program: LoopProgram) -> frozenset[int]:
    """Positions of floats that are converted to int64 for an index and for nothing else."""
    used = {store.value for store in program.stores} | {check.condition for check in program.checks}
    for value in program.values:
        if value.operation != "indirect":
            used.update(value.operands)
    return frozenset(
        position
        for position, value in enumerate(program.values)
        if value.operation == "to_dtype"
        and value.dtype == "int64"
        and program.values[value.operands[0]].dtype in (*_ROUNDED, "float32")
        and position not in used
    )


def constants(program: LoopProgram) -> frozenset[int]:
    """Positions of the values that depend neither on a loop nor on memory."""
    found: set[int] = set()
    for position, value in enumerate(program.values):
        alone = not value.axes and not isinstance(value.attribute, (Load, Reduction))
        if alone and found.issuperset(value.operands):
            found.add(position)
    return frozenset(found)


def narrow(program: LoopProgram, position: int) -> int:
    """What is converted to the value at `position`, if that changes nothing: 16 bits are computed with as 32."""
    value = program.values[position]
    if value.operation == "to_dtype" and value.dtype == "float32":
        (operand,) = value.operands
        if program.values[operand].dtype in _ROUNDED:
            return operand
    return position
