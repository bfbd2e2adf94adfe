"""Checks of what each element of an output looks up: in the loops of that output, which load the same indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from halide_backend.schedule.cpu.kernel import CpuKernel
from halide_backend.schedule.cpu.vector_reductions import reduce_in_lanes
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.stage import Role, Stage
from halide_backend.schedule.steps import ComputeRoot, ComputeWith, Reorder, Split, Step, Unroll, Vectorize

BESIDE = Knob(
    "checks.beside", (False, True), "check indices in the loops that look up elements, instead of before them"
)


def checked_beside(kernel: CpuKernel, steps: Sequence[Step]) -> list[Step]:
    """Steps that compute what a check says of each element, a byte, in the loops that `steps` make of the one output,
    and reduce these bytes.

    A check that is reduced by itself loads all indices once more, from a farther cache if they are many, and nothing
    else is done meanwhile.
    """
    output, graph = kernel.parent, kernel.graph
    alone = len(graph.outputs) == 2 and kernel.transposition is None
    plain = all(stage.role is Role.INLINE for stage in kernel.behind([output]))
    own = [step for step in steps if step.func == output.name]
    shifted = any(isinstance(step, Split) and step.tail != Split.tail for step in own)
    written = [step.var for step in own if isinstance(step, (Unroll, Vectorize))]
    order = next((step.order for step in reversed(own) if isinstance(step, Reorder)), ())
    serial = [name for name in order if name not in written]
    checks = [(stage, users) for stage in graph.stages if (users := _reductions(kernel, stage))]
    if not (checks and alone and plain and serial) or shifted or output.overwrites or output.replaces:
        return []
    if not kernel.choices.flag(BESIDE, True, "each element has an index of its own, which is loaded once"):
        return []
    found: list[Step] = []
    for stage, users in checks:
        same = [replace(step, func=stage.name) for step in own]
        found += [ComputeRoot(stage.name), *same, ComputeWith(stage.name, output.name, serial[0])]
        for user in users:
            found += reduce_in_lanes(
                user,
                along=output.loops[0].axis,
                lanes=kernel.device.vector_bytes,
                short=False,
                at=None,
                row="",
                several=False,
                parallel=kernel.parallel,
                choices=kernel.choices,
                bounded=lambda stage, funcs: [],
            )
    return found


def _reductions(kernel: CpuKernel, stage: Stage) -> tuple[Stage, ...]:
    """The reductions of `stage`, if it is what a check says of each element of the one output."""
    users = kernel.graph.consumers(stage.name)
    reduced = all(user.role is Role.REDUCTION and user.name not in kernel.inside for user in users)
    return users if reduced and stage.role is Role.INLINE and stage.loops == kernel.parent.loops else ()
