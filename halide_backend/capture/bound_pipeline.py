"""BoundPipeline: one pipeline of a kernel that is called through its C function."""

from __future__ import annotations

from dataclasses import dataclass

from halide_backend.build.artifacts import Artifact
from halide_backend.pipeline import Compilation


@dataclass(frozen=True)
class BoundPipeline:
    """One pipeline of a kernel: `pointers` and `numbers` are the arguments of the kernel that it takes, by position."""

    compilation: Compilation
    pointers: tuple[int, ...]
    numbers: tuple[int, ...]

    @property
    def artifacts(self) -> list[Artifact]:
        """What is compiled for each target, the least demanding first."""
        return [each.build.artifact.result() for each in (self.compilation, *self.compilation.others)]

    @property
    def entry(self) -> str:
        """The pipeline's name: that of its function, in whatever process."""
        return self.artifacts[0].entry
