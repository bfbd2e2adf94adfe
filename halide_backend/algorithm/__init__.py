"""From a `LoopProgram` to a Halide algorithm: Funcs and reductions, without any schedule."""

from __future__ import annotations
