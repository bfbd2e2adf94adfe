"""Stage: what a scheduling rule knows of one Func."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum


class Role(Enum):
    """What a Func is in its pipeline."""

    INLINE = "inline"  # cheap: computed wherever it is used, unless a rule stores it
    SHARED = "shared"  # expensive and used more than once: worth storing where there is a place for it
    PRESERVED = "preserved"  # the old value of memory that an output overwrites: read before any output is written
    SNAPSHOT = "snapshot"  # old values that are overwritten before they are read: all of them are read first
    STAGED_LOAD = (
        "staged_load"  # strided loads, or what is made of them, to be copied into a tile; on CUDA a chunk's words
    )
    SHARED_TILE = "shared_tile"  # a strided load, to be copied into shared memory (CUDA)
    SERIAL = "serial"  # a loop of as many steps as its data say: never part of a vector
    REDUCTION = "reduction"  # an initial value and one update over an RDom
    GROUP_REDUCTION = "group_reduction"  # of the partial results of a group's threads, or of a warp's (CUDA)
    SCAN = "scan"  # of a scan: an update, if any, whose steps need those before them; on CUDA in threads' registers
    PACKED = "packed"  # the words of an output, gathered in registers (CUDA)
    OUTPUT = "output"
    SCATTER = "scatter"  # an output whose update writes at computed positions


class LoopKind(Enum):
    """What a loop steps through; every kind but AXIS is a GPU's alone."""

    AXIS = "axis"  # an axis of the program, or pieces of adjacent elements along it
    ELEMENT = "element"  # the elements of such a piece
    WORD = "word"  # the 32-bit words of such a piece
    THREAD = "thread"  # the threads of a group, or of one warp of it
    WARP = "warp"  # the warps of a thread group
    CHUNK = "chunk"  # parts of a column that a thread reduces at once, each in an expression over all its points
    STEP = "step"  # chunks, or points of a column, that one thread of a group does one after another
    ROUND = "round"  # parts of a column that a block scans one after another
    SINGLE = "single"  # nothing: one step, for an output without axes


@dataclass(frozen=True, repr=False)
class Loop:
    """A loop variable of a Func and its number of steps. RVars carry a "$" in their name, as Halide spells them.

    `axis` is the program's name for the loop, equal in all Funcs that step through the same coordinates, `kind` what
    the rules know it by, whatever its name. Where the number is not `fixed` but computed when the kernel is called,
    `extent` is a typical one: it may decide what is fast, never what is right. `size` is the name of the argument that
    is the number, if one is; it is not part of a kernel's text.
    """

    name: str
    extent: int
    axis: str
    fixed: bool = True
    kind: LoopKind = LoopKind.AXIS
    size: str = field(default="", compare=False)

    def __repr__(self) -> str:
        """The constructor call as a kernel text contains it: one text serves all lengths of a computed loop."""
        return (
            f"Loop({self.name!r}, {self.extent if self.fixed else 0}, {self.axis!r}{'' if self.fixed else ', False'})"
        )


def rvar(rdom: str, dimension: int) -> str:
    """Halide's own name of dimension `dimension` of the RDom called `rdom`."""
    return f"{rdom}${'xyzw'[dimension] if dimension < 4 else dimension}"


@dataclass(frozen=True, repr=False)
class Stage:
    """One Func: its pure `loops` and, for a reduction or scatter, the `updates` loops of its RDom, innermost first.

    `calls` are the Funcs in its definition. `operator` is the reduction's ("sum", "max", ...), of a Tuple of values
    those of all with spaces in between, `bits` the width of its elements, `gathers` whether its load has an index that
    is data, `shifted` the axes along which it is read at other coordinates than its own, so that it may have more
    points than its loops say, `reads` how many elements an output loads for one step of a thread other than through
    Funcs of words, `overwrites` whether the memory of an output is also read, `old` whether the words of a load are of
    memory that an output overwrites, and another one needs them, `replaces` whether it may be that of an operand which
    nothing else needs, `work` an estimate of arithmetic operations for one point, `contiguous` the bytes that the
    memory accesses of its definition touch with stride 1 along each axis, `traffic` the bytes they touch in all, `runs`
    those where steps along a second axis are as long as all of a first one, by both, `across` the bytes of one point
    whose place depends on an axis, but not with stride 1, `cases` whether a load has an index that needs no clamp, or
    is another one, at some steps of loops, `gathered` the axes along which a load is contiguous whose index is data,
    `looked_up` how many numbers, which are data and differ along an axis, the indices of loads are made of,
    `strided` those along which one has a stride that is neither 0 nor 1, `lines` the bytes of loads that take a line of
    memory, or nearly, for each step along a first axis, of which steps along a second one take other elements, by both,
    `branches` whether a function has a branch for arguments of a rare range, `overlaps` how many loads take, one step
    earlier along an axis, what another one takes, `values` how many an output is a Tuple of,
    `distinct` the axes along which a scatter stores side by side at places that are no data: no two of such steps meet.
    """

    name: str
    role: Role
    loops: tuple[Loop, ...]
    calls: tuple[str, ...] = ()
    updates: tuple[Loop, ...] = ()
    operator: str = ""
    bits: int = 32
    gathers: bool = False
    shifted: tuple[str, ...] = ()
    reads: int = 0
    overwrites: bool = False
    old: bool = False
    replaces: bool = False
    work: int = 1
    contiguous: dict[str, int] = field(default_factory=dict)
    traffic: int = 0
    runs: dict[tuple[str, str], int] = field(default_factory=dict)
    across: dict[str, int] = field(default_factory=dict)
    cases: bool = False
    gathered: tuple[str, ...] = ()
    looked_up: dict[str, int] = field(default_factory=dict)
    strided: tuple[str, ...] = ()
    lines: dict[tuple[str, str], int] = field(default_factory=dict)
    branches: bool = False
    overlaps: dict[str, int] = field(default_factory=dict)
    values: int = 1
    distinct: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """The constructor call as a kernel text contains it: what legality looks at, not what is fast."""
        parts = [repr(self.name), str(self.role), repr(self.loops)]
        for name in ("calls", "updates", "operator", "bits", "shifted", "overwrites", "old", "distinct"):
            value = getattr(self, name)
            if value != getattr(Stage, name):
                parts.append(f"{name}={value!r}")
        return f"Stage({', '.join(parts)})"

    @property
    def operators(self) -> tuple[str, ...]:
        """The operator of each value of a reduction."""
        return tuple(self.operator.split())

    @property
    def points(self) -> int:
        """Points of the whole iteration space, updates included: a reduction's are over other axes than its result's, a
        scan's over one of those."""
        updated = {loop.axis for loop in self.updates} if self.role is Role.SCAN else set()
        loops = (*(loop for loop in self.loops if loop.axis not in updated), *self.updates)
        return math.prod(loop.extent for loop in loops)


@dataclass(frozen=True)
class StageGraph:
    """All Funcs of a kernel, producers before consumers, and the outer axes that all of them share, outermost first.

    Beyond the end of an axis in `clamped` all loads read what lies at its end, or nothing. Beyond the end of the axis
    `narrow` reductions take nothing, so what they read does not have to be there.
    """

    stages: tuple[Stage, ...]
    outer: tuple[str, ...]
    clamped: tuple[str, ...] = ()
    narrow: str = ""

    def __getitem__(self, name: str) -> Stage:
        return next(stage for stage in self.stages if stage.name == name)

    @property
    def outputs(self) -> tuple[Stage, ...]:
        return tuple(s for s in self.stages if s.role in (Role.OUTPUT, Role.SCATTER))

    @property
    def work(self) -> int:
        """Estimate of the kernel's arithmetic operations."""
        return sum(stage.points * stage.work for stage in self.stages)

    def consumers(self, name: str) -> tuple[Stage, ...]:
        """The stages that call Func `name`."""
        return tuple(stage for stage in self.stages if name in stage.calls)
