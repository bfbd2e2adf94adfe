"""Rules for CUDA: what becomes of the loops of a kernel, from its tiling and the structure of its stages.

All outputs share one grid: the others are computed with the first one, down to the thread. What a thread needs lies in
registers, which takes loops that unroll to constants; what threads of a block share lies in shared memory. The numbers
are explained in docs/design/cuda.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from halide_backend.schedule.device import Gpu
from halide_backend.schedule.grid import are_fixed, blocks, grid, innermost, plane
from halide_backend.schedule.knobs import Choices
from halide_backend.schedule.parts import parts, threads_of_a_block
from halide_backend.schedule.patches import patches
from halide_backend.schedule.rounds import ROUND, WALKED, round_alone, round_of_team
from halide_backend.schedule.scans import scanned
from halide_backend.schedule.scatters import scatters
from halide_backend.schedule.squares import squares
from halide_backend.schedule.stage import Loop, Role, Stage, StageGraph
from halide_backend.schedule.steps import (
    Bound,
    BoundExtent,
    ComputeAt,
    ComputeWith,
    Fuse,
    GpuBlocks,
    GpuThreads,
    NeverPartition,
    Reorder,
    Split,
    Step,
    StoreIn,
    Unroll,
    Vectorize,
)
from halide_backend.schedule.tiling import WARP, Team, Tiling

#: Warps of a block where a warp has a row, or several.
WARPS = 4

#: Lanes of the only vector that Halide turns into one memory instruction (of a 32-bit type).
LANES = 4

#: Stages that are computed inside the loops of the outputs.
_PLACED = (Role.STAGED_LOAD, Role.REDUCTION, Role.TEAM, Role.SCAN, Role.PACKED)


def cuda_steps(graph: StageGraph, tiling: Tiling, device: Gpu, choices: Choices) -> tuple[Step, ...]:
    """The steps that the rules choose for `graph`, whose Funcs are written for `tiling`, on `device`.

    Raises:
        Unsupported: its rows fit no grid.
        IllegalPlan: a requested knob has no such value.
    """
    rules = _Rules(graph, tiling, device, choices)
    rules.choose()
    return tuple(rules.steps)


@dataclass(frozen=True)
class _Levels:
    """Loops of the output that all others follow: of a block, of a thread, and of one step of a thread."""

    parent: str
    block: str
    thread: str
    step: str


class _Rules:
    def __init__(self, graph: StageGraph, tiling: Tiling, device: Gpu, choices: Choices) -> None:
        self.graph = graph
        self.tiling = tiling
        self.device = device
        self.choices = choices
        self.steps: list[Step] = []

    def add(self, *steps: Step) -> None:
        self.steps += steps

    def choose(self) -> None:
        outputs = sorted(self.graph.outputs, key=lambda stage: -stage.points)
        parent = outputs[0]
        if parent.role is Role.SCATTER:
            self.add(*scatters(parent, self.device))
            return
        if self.tiling.team is Team.TILE:
            self.add(*squares(self.graph, self.tiling))
            return
        if self.tiling.team is Team.PATCH:
            self.add(*patches(self.graph, self.tiling))
            return
        for stage in outputs:
            self._output(stage, parent)
        levels = self._levels(parent)
        for stage in outputs[1:]:
            same = self._walks(stage) and self._walks(parent)
            together = ("u" if self.tiling.team is not Team.THREAD else levels.step) if same else levels.thread
            self.add(ComputeWith(stage.name, parent.name, together))
        for stage in self.graph.stages:
            match stage.role:
                case Role.STAGED_LOAD:
                    self._load(stage, levels)
                case Role.REDUCTION:
                    self._reduction(stage, levels)
                case Role.TEAM:
                    self._together(stage, levels)
                case Role.SCAN:
                    self.add(*scanned(stage, levels.parent, levels.thread))
                case Role.PACKED:
                    self._pack(stage, levels)
            if len(outputs) > 1 and stage.role in _PLACED and not are_fixed(self._rows(parent, parent)):
                self._narrow(stage)

    def _pack(self, stage: Stage, levels: _Levels) -> None:
        """Pack the words of a chunk where they are stored: in a thread's loop along what others reduce, if it has one,
        since all of them together would lie in local memory."""
        (output,) = self.graph.consumers(stage.name)
        serial = self._serial(output) if self.tiling.team is Team.THREAD else []
        place = ComputeAt(stage.name, output.name, serial[0].name) if serial else None
        self.add(place or ComputeAt(stage.name, levels.parent, levels.step), Unroll(stage.name, stage.loops[0].name))

    def _narrow(self, stage: Stage) -> None:
        """Tell Halide that a thread needs one point of the row: of outputs that are computed together it sees that only
        where the loops' steps are known."""
        rows = [loop for loop in stage.loops if loop.axis in self.tiling.row and not self.tiling.is_element(loop.name)]
        self.add(*(BoundExtent(stage.name, loop.name, 1) for loop in rows))

    def _levels(self, parent: Stage) -> _Levels:
        if self.tiling.team is Team.THREAD:
            return _Levels(
                parent.name,
                "block",
                "thread",
                "part" if parts(self.graph, self.tiling, self.device, parent, self.choices) > 1 else "thread",
            )
        rows = self._rows(parent, parent)
        row = innermost(rows).name if len(rows) == 1 or are_fixed(rows) else "i"
        step = ("part" if self.tiling.computed else "u") if self._walks(parent) else "t"
        return _Levels(parent.name, "block" if self._teams_of_a_block() > 1 else row, "t", step)

    def _teams_of_a_block(self) -> int:
        if self.tiling.team is Team.REGISTERS and self.tiling.threads <= WARP and self.tiling.warps == 1:
            return WARPS * WARP // self.tiling.threads
        return 1

    def _walks(self, stage: Stage) -> bool:
        """Whether the output runs along the row rather than having one value for it."""
        return self.tiling.team is not Team.THREAD and any(
            loop.axis in (*self.tiling.inner, "u") for loop in stage.loops
        )

    # -- outputs -----------------------------------------------------------------------------------------------

    def _output(self, stage: Stage, parent: Stage) -> None:
        within = [loop for loop in stage.loops if self.tiling.is_element(loop.name)]
        order = self._elements(stage.name, within)
        if self.tiling.team is Team.THREAD:
            self._alone(stage, parent, order)
        else:
            self._team(stage, parent, order)

    def _elements(self, func: str, loops: list[Loop]) -> list[str]:
        """Steps for the loops within a chunk; returns their names, innermost first."""
        order: list[str] = []
        for loop in loops:
            if loop.name != "k" or loop.extent % LANES:
                self.add(Unroll(func, loop.name))
                order.append(loop.name)
            elif loop.extent == LANES:
                self.add(Vectorize(func, loop.name))
                order.append(loop.name)
            else:
                self.add(Split(func, loop.name, "ko", "kv", LANES), Vectorize(func, "kv"), Unroll(func, "ko"))
                order += ["kv", "ko"]
        return order

    def _fused(self, func: str, loops: list[Loop], name: str) -> str:
        """Make one loop of several, the first one innermost; returns its name."""
        inner = loops[0].name
        for number, loop in enumerate(loops[1:], start=2):
            fused = name if number == len(loops) else f"{name}{number}"
            self.add(Fuse(func, inner, loop.name, fused))
            inner = fused
        return inner

    def _rows(self, stage: Stage, parent: Stage) -> list[Loop]:
        """The loops over the row in the order of the parent's, which is that of its memory."""
        order = [loop.axis for loop in parent.loops]
        row = (*self.tiling.row, "z")
        rows = [loop for loop in stage.loops if loop.axis in row and not self.tiling.is_element(loop.name)]
        return sorted(rows, key=lambda loop: order.index(loop.axis))

    def _serial(self, stage: Stage) -> list[Loop]:
        """The loops along what the kernel reduces, of an output of a thread that works alone."""
        own = [loop for loop in stage.loops if not self.tiling.is_element(loop.name)]
        return [loop for loop in own if loop.axis not in (*self.tiling.row, "z")]

    def _alone(self, stage: Stage, parent: Stage, order: list[str]) -> None:
        rows, serial = self._rows(stage, parent), [loop.name for loop in self._serial(stage)]
        block = threads_of_a_block(self.graph, self.tiling, self.choices)
        self.add(Reorder(stage.name, (*order, *serial, *(loop.name for loop in rows))))
        if len(rows) > 1 and len(self.graph.outputs) > 1:
            self.add(*plane(stage.name, rows, [*order, *serial], block))
            return
        fused = self._fused(stage.name, rows, "i")
        if (count := parts(self.graph, self.tiling, self.device, stage, self.choices)) > 1:
            self.add(
                Split(stage.name, fused, "block", "within", count * block),
                Split(stage.name, "within", "part", "thread", block),
                Reorder(stage.name, (*order, *serial, "part", "thread", "block")),
                Unroll(stage.name, "part"),
                GpuThreads(stage.name, ("thread",)),
                GpuBlocks(stage.name, ("block",)),
            )
            whole = are_fixed(rows) and math.prod(loop.extent for loop in rows) % (count * block) == 0
            if whole and any(other.role is Role.STAGED_LOAD for other in self.graph.stages):
                self.add(NeverPartition(stage.name, "block"))
            return
        self.add(
            Split(stage.name, fused, "block", "thread", block),
            # LLVM would join the two versions again, and cut vectors that are loaded in both to pieces.
            NeverPartition(stage.name, "block"),
            GpuThreads(stage.name, ("thread",)),
            GpuBlocks(stage.name, ("block",)),
        )

    def _team(self, stage: Stage, parent: Stage, order: list[str]) -> None:
        tiling, rows = self.tiling, self._rows(stage, parent)
        if not are_fixed(rows):
            points = math.prod(loop.extent for loop in rows)
            rows = [Loop(self._fused(stage.name, rows, "i"), points, "i", fixed=False)]
        names = [loop.name for loop in rows]
        if self._walks(stage):
            if tiling.team is Team.BLOCK:
                walk = self._walk(stage)
                self.add(Reorder(stage.name, (*order, *(loop.name for loop in walk), *names)))
                self.add(*self._shares(stage.name, self._fused(stage.name, walk, "n")))
            if tiling.computed:
                order = [*order, "part"]
            elif tiling.team is Team.REGISTERS or tiling.steps <= ROUND:
                self.add(Unroll(stage.name, "u"))
            order = [*order, "u"]
        threads = ("t", "w")[: 1 + (tiling.warps > 1)]
        self.add(Reorder(stage.name, (*order, *threads, *names)))
        if (teams := self._teams_of_a_block()) > 1:
            first, *rest = rows
            self.add(Split(stage.name, first.name, "block", "y", teams), GpuThreads(stage.name, ("t", "y")))
            if not first.fixed or any(other.role is Role.SCAN for other in self.graph.stages):
                self.add(NeverPartition(stage.name, "block"))
            self.add(*grid(stage.name, [blocks(first, "block", teams), *rest]))
        else:
            self.add(GpuThreads(stage.name, threads))
            self.add(*grid(stage.name, rows))

    def _shares(self, func: str, row: str) -> Iterator[Step]:
        """Share out the loop `row` among the threads of a team; of computed ones several steps are written out."""
        threads = self.tiling.threads
        if not self.tiling.computed:
            yield Split(func, row, "u", "t", threads)
            return
        yield Split(func, row, "u", "round", threads * WALKED)
        yield Split(func, "round", "part", "t", threads)
        yield Unroll(func, "part")

    def _walk(self, stage: Stage) -> list[Loop]:
        """The loops along the row, in the order in which a team walks through them."""
        inner = list(reversed(self.tiling.inner))
        loops = [loop for loop in stage.loops if loop.axis in inner and not self.tiling.is_element(loop.name)]
        return sorted(loops, key=lambda loop: inner.index(loop.axis))

    # -- stages ------------------------------------------------------------------------------------------------

    def _sinks(self, name: str) -> set[str]:
        """The reductions and outputs that Func `name` flows into."""
        found: set[str] = set()
        stack, seen = [name], {name}
        while stack:
            for stage in self.graph.consumers(stack.pop()):
                if stage.role is Role.INLINE or stage.role is Role.STAGED_LOAD:
                    if stage.name not in seen:
                        seen.add(stage.name)
                        stack.append(stage.name)
                else:
                    found.add(stage.name)
        return found

    def _load(self, stage: Stage, levels: _Levels) -> None:
        """Load the words of a chunk at once, where its user wants them; without such a place one at a time."""
        sinks = self._sinks(stage.name)
        reductions = {name for name in sinks if self.graph[name].role in (Role.REDUCTION, Role.SCAN)}
        along = [loop for loop in stage.loops if loop.axis in (*self.tiling.inner, "u")]
        alone, held = self.tiling.team is Team.THREAD, self.tiling.team is Team.REGISTERS
        if not reductions:
            place = ComputeAt(stage.name, levels.parent, levels.step)
        elif held or (alone and not along):
            place = ComputeAt(stage.name, levels.parent, levels.thread)
        elif len(sinks) == 1:
            (reduction,) = reductions
            place = self._beside(stage, self.graph[reduction])
        elif alone:
            return
        else:
            self._share(stage, levels)
            return
        self.add(place)
        words = stage.loops[0]
        # Masks must not tell Halide that some words are not needed.
        self.add(Bound(stage.name, words.name, 0, words.extent))
        self._elements(stage.name, [words])
        if place.var == "t":
            for loop in (loop for loop in along if loop.name == "u"):
                # Where a guard tells that some threads have fewer steps, their number would not be a constant.
                self.add(Bound(stage.name, loop.name, 0, loop.extent), Unroll(stage.name, loop.name))

    def _beside(self, stage: Stage, reduction: Stage) -> ComputeAt:
        """Load for one step of a reduction, or for all steps of an unrolled part whose words lie side by side."""
        loop = reduction.updates[0 if self.tiling.team is Team.THREAD else 1]
        count = self._round(loop)
        if (loop.fixed and loop.extent == count) or count == 1:
            return ComputeAt(stage.name, reduction.name, loop.name)
        if self.tiling.team is not Team.THREAD or not loop.fixed or loop.extent % count:
            return ComputeAt(stage.name, reduction.name, f"{loop.name}i")
        self.add(*(Unroll(stage.name, own.name) for own in stage.loops if own.axis == loop.axis))
        return ComputeAt(stage.name, reduction.name, f"{loop.name}o")

    def _share(self, stage: Stage, levels: _Levels) -> None:
        """Keep a row that is read several times in shared memory; the block's threads load it together."""
        walk = self._walk(stage)
        self.add(ComputeAt(stage.name, levels.parent, levels.block), StoreIn(stage.name, "GPUShared"))
        vector = self._elements(stage.name, [stage.loops[0]])
        fused = self._fused(stage.name, walk, "n")
        self.add(Split(stage.name, fused, "u", "t", self.tiling.threads))
        if math.prod(loop.extent for loop in walk) <= self.tiling.threads * ROUND:
            self.add(Unroll(stage.name, "u"))
        self.add(Reorder(stage.name, (*vector, "u", "t")), GpuThreads(stage.name, ("t",)))

    def _reduction(self, stage: Stage, levels: _Levels) -> None:
        elements = [loop.name for loop in stage.loops if self.tiling.is_element(loop.name)]
        if self.tiling.team is Team.THREAD:
            self.add(ComputeAt(stage.name, levels.parent, levels.thread))
            self.add(Reorder(stage.name, (*elements, *(loop.name for loop in stage.updates)), update=0))
            for name in elements:
                self.add(Unroll(stage.name, name), Unroll(stage.name, name, update=0))
            self._unroll(stage, stage.updates[0])
            return
        (whole,) = (s.name for s in self.graph.consumers(stage.name) if s.role is Role.TEAM)
        element, step = stage.updates
        self.add(Unroll(stage.name, element.name, update=0))
        if self.tiling.team is Team.BLOCK:
            self.add(ComputeAt(stage.name, whole, "t"))
            self._unroll(stage, step)
        else:
            self.add(ComputeAt(stage.name, levels.parent, levels.thread), Unroll(stage.name, step.name, update=0))

    def _unroll(self, stage: Stage, loop: Loop) -> None:
        """Write out as many steps of a reduction's loop as divide it, or some of them if that is computed."""
        count = self._round(loop)
        if loop.fixed and loop.extent == count:
            self.add(Unroll(stage.name, loop.name, update=0))
        elif count > 1:
            inner = f"{loop.name}i"
            self.add(Split(stage.name, loop.name, f"{loop.name}o", inner, count, update=0))
            self.add(Unroll(stage.name, inner, update=0))

    def _round(self, loop: Loop) -> int:
        """Steps of a reduction's loop that are written out."""
        if self.tiling.team is not Team.THREAD:
            return round_of_team(loop)
        return round_alone(loop, max(stage.points for stage in self.graph.outputs))

    def _together(self, stage: Stage, levels: _Levels) -> None:
        if self.tiling.team is Team.REGISTERS:
            self.add(ComputeAt(stage.name, levels.parent, levels.thread))
            return
        self.add(
            ComputeAt(stage.name, levels.parent, levels.block),
            StoreIn(stage.name, "GPUShared"),
            Bound(stage.name, "t", 0, self.tiling.threads),
            GpuThreads(stage.name, ("t",)),
        )
