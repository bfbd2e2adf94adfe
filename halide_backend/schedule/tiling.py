"""Tiling: how the axes of a kernel are laid on the blocks and threads of a GPU."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from enum import Enum

#: Threads that exchange values without memory.
WARP = 32

#: The Var of a thread's number in its team or, if warps of a team have stretches of the row, in its warp; and the one
#: of a thread's steps. Funcs that the writer gives to threads and those that a rule does have the same.
THREAD, STEP = "t", "u"


class Team(Enum):
    """Who computes one point of the row."""

    THREAD = "a thread"  # every thread on its own: pointwise kernels, sums over an outer axis
    REGISTERS = "threads that hold the row"  # part of a warp, a warp, or all warps of a block
    BLOCK = "a block"  # the row lies in the shared memory of a block, or is read again
    COLUMNS = "threads of a block that has several columns"  # reductions over an outer axis, where columns are few
    TILE = "a block of a square"  # transposes: what is read along one axis and written along another
    PATCH = "a thread of a patch"  # the same where whole vectors lie along both axes


@dataclass(frozen=True, repr=False)
class Tiling:
    """The program's axes by what runs along them, and the piece of memory that one thread takes at a time.

    For `Team.TILE` and `Team.PATCH` the `inner` axes are the one that reads run along and the one that writes do. A
    block of a TILE has `lines` elements of the first by `side` chunks of the second, a thread of a PATCH `lines`
    elements of the first by one chunk of the second. The row's last axis of REGISTERS is padded to a multiple of
    `side` lines, those of a warp, if that is not 0. A block of COLUMNS has `side` points of the row's axis along which
    memory is adjacent, with `threads` for each.

    Axis `chunk` ("" for none) is cut into chunks of `elements` adjacent elements, of which the last may be `short`.
    `row` axes are shared out among teams, `inner` axes among the `threads` of a team, which has `chunks` chunks to do;
    both outermost axis first. Where that number is `computed` from sizes when the kernel is called, `chunks` is a
    typical one, and the steps of a thread come in rounds of `unroll`. The threads of a team take turns at adjacent
    chunks; a team of several `warps`, each of so many threads, gives each of them a stretch of the row.
    """

    team: Team
    row: tuple[str, ...]
    inner: tuple[str, ...] = ()
    chunk: str = ""
    elements: int = 1
    chunks: int = 1
    threads: int = 1
    warps: int = 1
    short: bool = False
    side: int = 0
    lines: int = 0
    computed: bool = False
    unroll: int = 1

    def __repr__(self) -> str:
        """The constructor call, without arguments that have their default: what a kernel text contains, and one text
        serves all computed lengths."""
        hidden = ("team", "chunks") if self.computed else ("team",)
        values = ((f, getattr(self, f.name)) for f in fields(self) if f.name not in hidden)
        told = [f"{f.name}={value!r}" for f, value in values if f.default is MISSING or value != f.default]
        return f"Tiling({', '.join([str(self.team), *told])})"

    @property
    def cuts(self) -> dict[str, int]:
        """The axes of which a thread has pieces of adjacent elements, and the elements of a piece."""
        found = {self.chunk: self.elements} if self.chunk else {}
        return {**found, self.inner[0]: self.lines} if self.team is Team.PATCH else found

    @property
    def shares_lines(self) -> bool:
        """Whether several threads make one point of the row."""
        return self.team in (Team.REGISTERS, Team.BLOCK, Team.COLUMNS)

    @property
    def steps(self) -> int:
        """Chunks that one thread does one after another, typically so many if their number is computed."""
        return -(-self.chunks // (self.threads * self.warps))

    @property
    def ragged(self) -> bool:
        """Whether some threads have less to do than others."""
        return self.computed or self.chunks % (self.threads * self.warps) != 0
