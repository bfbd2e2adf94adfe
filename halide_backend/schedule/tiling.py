"""Tiling: how the axes of a kernel are laid on the blocks and threads of a GPU."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from enum import Enum

#: Threads that exchange values without memory.
WARP = 32

#: Var of a thread's number: in its group or, if each warp of a group has a contiguous part of the line, in its warp.
#: And the Var of a thread's iterations. Funcs that the kernel builder gives to threads use the same as those of rules.
THREAD, STEP = "t", "u"

#: Var of a line's number among those of a block whose neighbouring threads have neighbouring lines.
LINE = "y"

#: Var of the rounds in which threads of a block scan columns, each of which carries on from the one before.
ROUND = "o"


class TilingKind(Enum):
    """Which threads compute one point of the outer axes, and where its line lies."""

    THREAD = "a thread"  # every thread on its own: pointwise kernels, sums over an outer axis
    REGISTERS = "registers of a thread group"  # part of a warp, a warp, or all warps of a block
    BLOCK = "a block"  # the line lies in the shared memory of a block, or is read again
    COLUMNS = "threads of a block that has several columns"  # reductions over an outer axis, where columns are few
    SCANNED_COLUMNS = "threads of a block that scans several columns"  # scans over an outer axis
    SHARED_TRANSPOSE = "a tile in shared memory"  # what is read along one axis and written along another
    REGISTER_TRANSPOSE = "a tile in registers"  # the same where whole vectors lie along both axes


@dataclass(frozen=True, repr=False)
class Tiling:
    """The program's axes by what runs along them, and the elements that one thread moves at a time.

    The `outer` axes are divided among thread groups, the `inner` axes, which make a line, among the `threads` of a
    group; both outermost axis first. Axis `chunk` ("" for none) is divided into chunks of `elements` adjacent elements,
    of which the last may be `short`. A line has `chunks` of them; the threads of a group take turns at adjacent ones.
    Where their number is `computed` from sizes when the kernel is called, `chunks` is a typical one, and a thread's
    loop is unrolled by `unroll`. In a group of several `warps`, each of `threads` threads, each warp has a contiguous
    part of the line. If rows of a line, along its last axis, are apart in memory, the threads of REGISTERS take a whole
    `row` of chunks at a time, of which threads beyond its end have none, and `chunks` counts these, too.

    A transpose reads along the first of its two `inner` axes and writes along the second. A block's tile in shared
    memory has `lines` elements of the first by `side` chunks of the second, a thread's tile in registers `lines`
    elements of the first by one chunk of the second. Of COLUMNS a block has `side` points of the outer axis along which
    memory is contiguous, `across` if the last block may go beyond its end, and `threads` for each. Of SCANNED_COLUMNS
    it has `side` chunks of that axis, and walks along the scanned one in rounds, in each of which a thread has `lines`
    adjacent points. The last outer axis of REGISTERS is padded to a multiple of `side` lines, those of a warp, if that
    is not 0; or neighbouring threads have lines that are `adjacent` along an outer axis, `side` of them in a block.
    Moments are reduced `unroll` points at a time. A THREAD has `lines` points along the outer axis `across`,
    if there is one: it computes once where they lie along the others. That of a scatter is the innermost, and has no
    others. Neighbouring ones, or a block's columns, are `adjacent` along this outer axis, or, if it is "", along the
    memory of the output.
    Where sizes say how far apart a THREAD's points are along what it reduces, these strides are `computed`. It may have
    all of them in registers, `held`, if it needs them more than once.
    Where neighbouring threads of REGISTER_TRANSPOSE have two lines each, lines `alternate` if they swap one, so that
    what they store at a time is adjacent.
    """

    kind: TilingKind
    outer: tuple[str, ...]
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
    across: str = ""
    row: int = 0
    adjacent: str = ""
    alternate: bool = False
    held: bool = False

    def __repr__(self) -> str:
        """The constructor call, without arguments that have their default: what a kernel text contains, and one text
        serves all computed lengths."""
        hidden = ("kind", "chunks") if self.computed else ("kind",)
        values = ((f, getattr(self, f.name)) for f in fields(self) if f.name not in hidden)
        arguments = [f"{f.name}={value!r}" for f, value in values if f.default is MISSING or value != f.default]
        return f"Tiling({', '.join([str(self.kind), *arguments])})"

    @property
    def cuts(self) -> dict[str, int]:
        """The axes along which a thread has several adjacent elements, and how many."""
        found = {self.chunk: self.elements} if self.chunk else {}
        return {**found, self.inner[0]: self.lines} if self.kind is TilingKind.REGISTER_TRANSPOSE else found

    @property
    def line_elements(self) -> int:
        """Adjacent elements of a line that a thread has at a time: a chunk may also be of neighbouring lines."""
        return self.elements if self.chunk in self.inner else 1

    @property
    def exchanges(self) -> bool:
        """Whether threads exchange values, so that all of a warp, or of a block, have to come to the same instructions:
        none of them may have a case of its own."""
        return self.kind not in (TilingKind.THREAD, TilingKind.SHARED_TRANSPOSE, TilingKind.REGISTER_TRANSPOSE)

    @property
    def interleaved(self) -> bool:
        """Whether neighbouring threads hold parts of neighbouring lines, not of one."""
        return self.kind is TilingKind.REGISTERS and bool(self.adjacent)

    @property
    def shares_lines(self) -> bool:
        """Whether several threads compute one point of the outer axes."""
        return self.kind in (TilingKind.REGISTERS, TilingKind.BLOCK, TilingKind.COLUMNS)

    @property
    def holds_lines(self) -> bool:
        """Whether threads hold what they load of a line in registers."""
        return self.held or (self.kind is TilingKind.REGISTERS and not self.computed)

    @property
    def steps(self) -> int:
        """Chunks that one thread does one after another, typically so many if their number is computed."""
        return -(-self.chunks // (self.threads * self.warps))

    @property
    def round_points(self) -> int:
        """Points of a column that a block scans in one round."""
        return self.threads * self.lines

    @property
    def ragged(self) -> bool:
        """Whether some threads have less to do than others."""
        return self.computed or self.chunks % (self.threads * self.warps) != 0
