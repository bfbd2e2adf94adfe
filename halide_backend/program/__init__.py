"""What a kernel computes, as frozen data, and what can be told from that alone; imports sympy, and nothing else."""

from __future__ import annotations
