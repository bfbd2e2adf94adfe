"""What the rules for CUDA know about a kernel: Funcs that are written for a tiling, and the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from halide_backend.schedule.device import Gpu
from halide_backend.schedule.knobs import Choices
from halide_backend.schedule.stage import Loop, LoopKind, Role, Stage, StageGraph
from halide_backend.schedule.steps import Bound, BoundExtent, ComputeAt, Fuse, Split, Step, Unroll, Vectorize
from halide_backend.schedule.tiling import Tiling

#: Lanes of the only vector that Halide turns into one memory instruction (of a 32-bit type).
LANES = 4

#: Stages that are computed inside the loops of the outputs.
_PLACED = (Role.PRESERVED, Role.STAGED_LOAD, Role.REDUCTION, Role.GROUP_REDUCTION, Role.SCAN, Role.PACKED)


@dataclass(frozen=True)
class TiledKernel:
    """The stages of a kernel, the tiling that they are written for, the device and the requested knobs."""

    graph: StageGraph
    tiling: Tiling
    device: Gpu
    choices: Choices

    @property
    def outputs(self) -> list[Stage]:
        """The outputs; the first one is the largest, in whose loops the others are computed."""
        return sorted(self.graph.outputs, key=lambda stage: -stage.points)

    @property
    def parent(self) -> Stage:
        """The output whose loops the others share."""
        return self.outputs[0]

    def has(self, role: Role) -> bool:
        """Whether some stage has the role."""
        return any(stage.role is role for stage in self.graph.stages)

    def outer_loops(self, stage: Stage) -> list[Loop]:
        """The outer loops in the order of the parent's, which is that of its memory."""
        order = [loop.axis for loop in self.parent.loops]
        outer = [loop for loop in stage.loops if self._is_outer(loop)]
        return sorted(outer, key=lambda loop: order.index(loop.axis))

    def _is_outer(self, loop: Loop) -> bool:
        return loop.kind is LoopKind.SINGLE or (loop.kind is LoopKind.AXIS and loop.axis in self.tiling.outer)

    def line(self, stage: Stage) -> list[Loop]:
        """The loops along what the kernel reduces, in the order in which a thread group walks through them."""
        inner = list(reversed(self.tiling.inner))
        loops = [loop for loop in stage.loops if loop.axis in inner and not is_element(loop)]
        return sorted(loops, key=lambda loop: inner.index(loop.axis))

    def runs_along_line(self, stage: Stage) -> bool:
        """Whether the output runs along what the kernel reduces rather than having one value for it."""
        return any(loop.kind is LoopKind.STEP or loop.axis in self.tiling.inner for loop in stage.loops)

    def sinks(self, name: str) -> set[str]:
        """The reductions, scans and outputs that Func `name` flows into."""
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

    def reductions_of(self, name: str) -> list[Stage]:
        """The reductions and scans that Func `name` flows into."""
        stages = (self.graph[sink] for sink in self.sinks(name))
        return [stage for stage in stages if stage.role in (Role.REDUCTION, Role.SCAN)]

    def narrowed(self, stage: Stage) -> list[Step]:
        """Steps that tell Halide that a thread needs one outer point: where outputs are computed together, it sees
        that only if the loops' steps are known."""
        if len(self.outputs) == 1 or stage.role not in _PLACED or are_fixed(self.outer_loops(self.parent)):
            return []
        return [BoundExtent(stage.name, loop.name, 1) for loop in stage.loops if self._is_outer(loop)]


def is_element(loop: Loop) -> bool:
    """Whether `loop` counts the elements of a chunk, or its words."""
    return loop.kind in (LoopKind.ELEMENT, LoopKind.WORD)


def are_fixed(loops: Sequence[Loop]) -> bool:
    """Whether the extents of all `loops` are static."""
    return all(loop.fixed for loop in loops)


def unroll_chunk(steps: list[Step], func: str, loops: Sequence[Loop]) -> list[str]:
    """Unroll those of `loops` that lie within a chunk, whose words are vectors; their names, innermost first."""
    order: list[str] = []
    for loop in loops:
        if not is_element(loop):
            continue
        if loop.kind is LoopKind.ELEMENT or loop.extent % LANES:
            steps.append(Unroll(func, loop.name))
            order.append(loop.name)
        elif loop.extent == LANES:
            steps.append(Vectorize(func, loop.name))
            order.append(loop.name)
        else:
            steps += [Split(func, loop.name, "ko", "kv", LANES), Vectorize(func, "kv"), Unroll(func, "ko")]
            order += ["kv", "ko"]
    return order


def fuse(steps: list[Step], func: str, loops: Sequence[Loop], name: str) -> str:
    """Fuse loops, the first one innermost; returns the fused loop's name: `name`, or that of the only loop."""
    inner = loops[0].name
    for number, loop in enumerate(loops[1:], start=2):
        fused = name if number == len(loops) else f"{name}{number}"
        steps.append(Fuse(func, inner, loop.name, fused))
        inner = fused
    return inner


def load_words(steps: list[Step], stage: Stage, place: ComputeAt) -> None:
    """Load the words of a chunk at once, at `place`."""
    words = stage.loops[0]
    # Masks must not tell Halide that some words are not needed.
    steps += [place, Bound(stage.name, words.name, 0, words.extent)]
    unroll_chunk(steps, stage.name, stage.loops)
