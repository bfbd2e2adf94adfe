"""What kernel texts import: operations, mathematics, memory and reductions as Halide expressions."""

from __future__ import annotations
