"""Which of two kernels is faster, or what is wrong with one: found out in a process that may be lost."""

from __future__ import annotations
