"""What kernel texts for CUDA import besides: memory as 32-bit words, warp shuffles, PTX instructions."""

from __future__ import annotations
