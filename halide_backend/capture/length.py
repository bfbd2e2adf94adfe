"""One kernel for all lengths: elementwise programs over contiguous memory that differ only in their length.

An optimizer has such a program for every size of parameter, and each would be compiled on its own (docs/design/why.md).
On a CPU the kernel loops over whole blocks, so that only their number is an argument and the vectors in them stay
whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from halide_backend.program.index import SizeSymbol
from halide_backend.program.loop_program import Axis, Buffer, Load, LoopProgram, Nest, Number, Size

#: Elements of a block: enough for one task of a parallel loop, or else whole vectors of every dtype.
BLOCKS = 1024, 64
#: For a GPU, whose kernels store part of a vector where a length ends within it.
ELEMENTS = (1,)
_COUNT = SizeSymbol("n0", nonnegative=True)


def share_lengths(
    programs: Iterable[LoopProgram], blocks: Sequence[int] = BLOCKS
) -> Mapping[LoopProgram, tuple[LoopProgram, int]]:
    """For those of `programs` that differ in their length alone, the program that takes it as an argument: the number
    of its blocks, as large as one of `blocks` can be; and that number.
    """
    families: dict[LoopProgram, list[_OfLength]] = defaultdict(list)
    for program in dict.fromkeys(programs):
        if (member := _OfLength.of(program, blocks)) is not None:
            families[member.with_argument(hint=1)].append(member)
    return {
        member.program: (member.with_argument(max(each.length for each in family)), member.length // member.block)
        for family in families.values()
        if len(family) > 1
        for member in family
    }


@dataclass(frozen=True)
class _OfLength:
    """A program whose one loop goes through the buffers `along` it, `length` elements in blocks of `block`."""

    program: LoopProgram
    length: int
    block: int
    along: frozenset[str]

    @staticmethod
    def of(program: LoopProgram, blocks: Sequence[int]) -> _OfLength | None:
        """The program's length, or None unless it is elementwise over contiguous memory, in whole blocks."""
        if program.sizes or len(program.axes) != 1:
            return None
        (axis,) = program.axes
        loads = [value.attribute for value in program.values if isinstance(value.attribute, Load)]
        rest = [value.attribute for value in program.values if not isinstance(value.attribute, Load)]
        if (
            not isinstance(axis.extent, int)
            or axis.extent % min(blocks)
            or any(s.nest != Nest((axis,)) or s.index != axis.symbol or s.mode for s in program.stores)
            or any(load.coordinates or not (load.index == axis.symbol or load.index.is_Integer) for load in loads)
            # Reductions and indices are left out: their attributes may contain the length.
            or any(not (attribute is None or isinstance(attribute, Number)) for attribute in rest)
        ):
            return None
        along = {load.buffer for load in loads if load.index == axis.symbol} | {s.buffer for s in program.stores}
        buffers = (*program.inputs, *program.outputs)
        if any(b.extent != axis.extent for b in buffers if b.name in along):
            return None
        block = next(block for block in blocks if axis.extent % block == 0)
        return _OfLength(program, axis.extent, block, frozenset(along))

    def with_argument(self, hint: int) -> LoopProgram:
        """The program for any length, typically `hint`."""
        (axis,) = self.program.axes
        loops = [Axis("x0", _COUNT, max(1, hint // self.block))]
        if self.block > 1:
            loops.append(Axis("x1", self.block, self.block))
        placed = {axis.symbol: sum(loop.symbol * size for loop, size in zip(loops, (self.block, 1)))}
        nest = Nest(tuple(loops))
        names = frozenset(loop.name for loop in loops)
        values = (
            replace(
                value,
                attribute=replace(value.attribute, index=value.attribute.index.xreplace(placed))
                if isinstance(value.attribute, Load)
                else value.attribute,
                axes=names if value.axes else value.axes,
            )
            for value in self.program.values
        )
        return replace(
            self.program,
            inputs=tuple(map(self._buffer, self.program.inputs)),
            sizes=(Size(_COUNT.name, _COUNT),),
            outputs=tuple(map(self._buffer, self.program.outputs)),
            values=tuple(values),
            stores=tuple(
                replace(s, nest=Nest(tuple(loops)), index=s.index.xreplace(placed)) for s in self.program.stores
            ),
            outer=nest.axes if self.program.outer else (),
        )

    def _buffer(self, buffer: Buffer) -> Buffer:
        return replace(buffer, extent=self.block * _COUNT) if buffer.name in self.along else buffer
