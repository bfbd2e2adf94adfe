"""Rules for the Funcs of a scan, which a thread keeps in its registers."""

from __future__ import annotations

from halide_backend.schedule.stage import Stage
from halide_backend.schedule.steps import Bound, ComputeAt, Reorder, Step, Unroll


def scanned(stage: Stage, parent: str, thread: str) -> tuple[Step, ...]:
    """Compute `stage` where each thread of output `parent` begins, all of its loops written out.

    The steps of an update are outermost: exchanges that do not wait for one another lie side by side.
    """
    loops = [loop for loop in stage.loops if loop.axis == "u" or loop.name.endswith("_e")]
    written, steps = [loop.name for loop in loops], [loop.name for loop in stage.updates]
    found: list[Step] = [ComputeAt(stage.name, parent, thread)]
    for loop in loops:
        # What is selected must not tell Halide that some of it is not needed.
        found += [Bound(stage.name, loop.name, 0, loop.extent), Unroll(stage.name, loop.name)]
    if steps:
        along = [name for name in written if name != stage.updates[0].axis]
        found.append(Reorder(stage.name, (*along, *steps), update=0))
        found += [Unroll(stage.name, name, update=0) for name in (*along, *steps)]
    return tuple(found)
