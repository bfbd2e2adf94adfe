"""The Funcs that turn the tiles of a transposition, as text and as stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from halide_backend.schedule.mapping.transposition import Transposition
from halide_backend.schedule.stage import Loop, Role, Stage, rvar


@dataclass(frozen=True)
class TurnedTiles:
    """`line` defines the Funcs, of which `last` holds the turned tiles; `element` is the text of one element of it."""

    line: str
    stages: tuple[Stage, ...]
    last: str
    element: str


def turned_tiles(
    source: str,
    loops: Sequence[Loop],
    transposition: Transposition,
    extents: tuple[str, str],
    bits: int,
    beside_others: bool,
) -> TurnedTiles:
    """The Funcs that turn what Func `source` holds, elements of `bits` bits.

    Args:
        loops: those of `source`, innermost first; its arguments have their names.
        extents: texts of the extents of the axes `column` and `across`.
        beside_others: whether the kernel has other arrays on the stack, of which it is not known what is read when: the
            accumulators of reductions of computed length.
    """
    column, across, side = transposition.column, transposition.across, transposition.side
    axes = [loop.name for loop in loops]
    names = [f"{source}_{number}" for number in range(side.bit_length())]
    arguments = f'"{source}", {source}, [{", ".join(axes)}], {column}, {across}, ({", ".join(extents)}), {side}'
    if beside_others:
        arguments += ", as_bits=True"
    tile = (Loop("i", side, "i"), Loop("j", side, "j"), *(replace(loop, extent=1) for loop in loops))
    stages = [
        Stage(name, Role.STAGED_LOAD, tile, calls=(needed,), bits=bits, work=0)
        for name, needed in zip(names, [source, *names])
    ]
    if not (extents[1].isdecimal() and int(extents[1]) % side == 0):
        stages[0] = replace(stages[0], updates=(Loop(rvar(f"{source}_r", 0), side, "i"),))
    places = [f"{column} % {side}", f"{across} % {side}"]
    places += [f"{axis} // {side}" if axis in (column, across) else axis for axis in axes]
    line = f"{', '.join(names)} = memory.transposed({arguments})"
    element = f"hl.Expr({names[-1]}[{', '.join(places)}])"
    if beside_others:
        element = f"memory.from_bits({element}, {source})"
    return TurnedTiles(line, tuple(stages), names[-1], element)
