"""How large the operands of a program typically are: its sizes as numbers where they depend on a dynamic shape."""

from __future__ import annotations

from halide_backend.errors import NothingToTune
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.loop_program import Extent, LoopProgram


def number(extent: Extent, program: LoopProgram) -> int:
    """An extent as a number: a typical one if it depends on sizes.

    Raises:
        NothingToTune: the program does not say what is typical of a size.
    """
    found = program.typical(extent)
    if found is None:
        raise NothingToTune(
            f"the program does not say what {extent} typically is",
            where="operands",
            cure="record it again, or tune it with static shapes",
        )
    return found


def operand_bytes(program: LoopProgram) -> int:
    """Bytes of the memory behind all arguments, each counted once.

    Raises:
        NothingToTune: a size cannot be told from the program.
    """
    sizes: dict[int, int] = {}
    for buffer in (*program.inputs, *program.outputs):
        size = number(buffer.extent, program) * ELEMENT[buffer.dtype][1] // 8
        sizes[buffer.memory] = max(size, sizes.get(buffer.memory, 0))
    return sum(sizes.values())
