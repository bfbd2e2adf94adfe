"""The one check that every plan goes through, whoever made it: rules, a file, a search, or an editor of a text."""

from __future__ import annotations

from collections.abc import Sequence

from halide_backend.schedule.legality.blocks import check_blocks
from halide_backend.schedule.legality.directives import Directives
from halide_backend.schedule.legality.limits import check_limits
from halide_backend.schedule.legality.nests import Nests
from halide_backend.schedule.legality.old_values import check_old_values
from halide_backend.schedule.legality.places import check_places
from halide_backend.schedule.legality.shared_memory import check_shared_memory
from halide_backend.schedule.legality.together import check_together
from halide_backend.schedule.legality.users import check_users
from halide_backend.schedule.stage import StageGraph
from halide_backend.schedule.steps import Step
from halide_backend.schedule.tiling import Tiling


def check(graph: StageGraph, steps: Sequence[Step], tiling: Tiling | None = None) -> None:
    """Check `steps` for the Funcs of `graph`, which are written for the `tiling` of a GPU, or for a CPU.

    What passes has the result of every other plan that does, or Halide refuses it with an error of its own.

    Raises:
        IllegalPlan: names the step and the reason.
    """
    listed, nests = list(steps), Nests.of(graph, tiling)
    Directives(nests).follow(listed)
    check_places(nests, listed)
    check_old_values(nests)
    check_together(nests, listed)
    check_limits(nests, listed)
    if tiling is not None:
        check_blocks(nests, listed, tiling)
        check_shared_memory(nests, listed)
    check_users(nests)
