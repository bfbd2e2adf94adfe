"""The kernels of a benchmark: checked against eager, timed against another backend, on a CPU or a GPU."""

from __future__ import annotations
