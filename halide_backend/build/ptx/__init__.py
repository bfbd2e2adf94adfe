"""PTX: parsed once, completed with what Halide cannot say, printed again, and assembled."""

from __future__ import annotations
