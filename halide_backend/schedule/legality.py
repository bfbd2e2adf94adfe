"""What a schedule must keep for the kernel to be right; Halide checks everything else itself."""

from __future__ import annotations

from collections.abc import Sequence

from halide_backend.errors import Unsupported
from halide_backend.schedule.stage import Role, StageGraph
from halide_backend.schedule.steps import ComputeAt, ComputeWith, Step


def check(graph: StageGraph, steps: Sequence[Step]) -> None:
    """Check that overwritten memory is read before it is written.

    `ComputeWith` runs the parent before its children in each fused iteration, and Halide knows nothing of two buffers
    over one pointer. So the old value must be stored inside the innermost loop that all outputs share: it is then
    read before any output of that iteration is written, and iterations touch disjoint memory.

    Raises:
        Unsupported: the schedule does not guarantee this.
    """
    preserved = [stage for stage in graph.stages if stage.role is Role.PRESERVED]
    if not preserved:
        return
    places = {step.func: step for step in steps if isinstance(step, ComputeAt)}
    children = {step.func: step for step in steps if isinstance(step, ComputeWith)}
    outputs = [stage.name for stage in graph.outputs if stage.name != "status"]
    for stage in preserved:
        place = places.get(stage.name)
        if place is None:
            raise Unsupported(
                "overwritten-memory-read-apart", f"{stage.name} is computed outside the loops of {', '.join(outputs)}"
            )
        for output in outputs:
            child = children.get(output)
            with_parent = child is not None and child.parent == place.consumer
            if output != place.consumer and not (with_parent and child and child.var == place.var):
                raise Unsupported(
                    "overwritten-memory-read-apart",
                    f"{output} does not share the loop {place.var} in which {stage.name} is computed",
                )
