"""What kernel texts for CUDA have of their own."""

from __future__ import annotations
