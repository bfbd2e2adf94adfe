"""Rule: one way to map programs of a kind to a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from halide_backend.schedule.cuda.facts import Facts
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel
from halide_backend.schedule.knobs import Choices
from halide_backend.schedule.steps import Step
from halide_backend.schedule.tiling import Tiling


@dataclass(frozen=True)
class Rule:
    """`tile` gives a program its tiling, or None if the rule is not for it; `steps` are for the Funcs that are written
    for that tiling. Both ask for the rule's knobs where they need them.

    `tile` raises Unsupported for a program of its kind that fits no tiling; both raise IllegalPlan for a requested
    setting that the program cannot have.
    """

    name: str
    tile: Callable[[Facts, Choices], Tiling | None]
    steps: Callable[[TiledKernel], tuple[Step, ...]]
