"""What a measuring process is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from halide_backend.build.artifacts import Artifact
from halide_backend.program.loop_program import LoopProgram


@dataclass(frozen=True)
class Contestant:
    """A compiled kernel; `key` tells kernels apart."""

    key: str
    object: bytes
    manifest: Mapping[str, Any]
    entry: str
    image: bytes = b""

    @property
    def artifact(self) -> Artifact:
        """What the loader takes."""
        return Artifact(self.object, self.manifest, self.entry, self.image)


@dataclass(frozen=True)
class Contest:
    """Measure `candidate` in turns with `incumbent`, after comparing its results with those of `rules`.

    Attributes:
        program: what all three compute. digest: its digest.
        device: "cpu" or "cuda:0". threads: of a kernel on a CPU.
        cold: whether operands are thrown out of the caches before each call; None: if they are larger than `l2_bytes`.
        complete: take all samples, whatever the first ones say.
    """

    program: LoopProgram
    digest: str
    rules: Contestant
    incumbent: Contestant
    candidate: Contestant
    device: str = "cpu"
    threads: int = 1
    cold: bool | None = None
    l2_bytes: int = 1 << 20
    complete: bool = False


@dataclass(frozen=True)
class Measured:
    """Seconds of one call, in the order in which they were taken, and whether the candidate is better; or what is
    `wrong` with its results, and no samples."""

    samples: tuple[float, ...] = ()
    incumbent: tuple[float, ...] = ()
    better: bool = False
    cold: bool = False
    wrong: str = ""

    @property
    def ratios(self) -> list[float]:
        """The incumbent's time over the candidate's, pair by pair."""
        return [theirs / ours for theirs, ours in zip(self.incumbent, self.samples, strict=True)]
