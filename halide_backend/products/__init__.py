"""Which library computes a float32 matrix product on a CPU: ATen's (MKL), or oneDNN where that is faster."""

from __future__ import annotations
