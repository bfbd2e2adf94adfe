"""From Inductor's scheduler nodes to a `LoopProgram`: fusion, alignment of loops, recording of loop bodies."""

from __future__ import annotations
