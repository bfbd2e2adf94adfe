"""What is chosen from a program before its text is written: which values are Funcs, and the tiling of a GPU."""

from __future__ import annotations
