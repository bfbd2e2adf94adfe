"""What the demo runs: a model with one step to time and a few values to compare with eager's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    import torch

#: `torch.compile` with its options bound, or the identity for eager.
Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True)
class Tolerance:
    """Passes where |actual - expected| <= absolute + relative * |expected|."""

    relative: float
    absolute: float


#: What `check_model` of torch's own test/inductor/test_torchinductor.py asks of float32:
#: torch.testing's default.
ONE_GRAPH = Tolerance(relative=1.3e-6, absolute=1e-5)
#: What torch's own benchmarks/dynamo/torchbench.py asks of a whole model on CPU, inference and
#: training.
WHOLE_MODEL = Tolerance(relative=1e-4, absolute=1e-4)


class Trial(Protocol):
    """One model under one compiler, from a fixed seed."""

    def step(self) -> object:
        """The unit that is timed: one pass, or one training step."""

    def values(self) -> dict[str, torch.Tensor]:
        """Run from the start and return what has to equal eager's; called before any `step`."""


@dataclass(frozen=True)
class Workload:
    """One row of the demo's table."""

    name: str
    model: str
    summary: str
    quick_summary: str
    tolerances: dict[str, Tolerance]
    start: Callable[[Compiler, bool], Trial]
    """(compiler, quick) -> Trial; builds the model, compiles nothing yet."""
    write_pictures: Callable[[Trial, Path], list[Path]] | None = None
