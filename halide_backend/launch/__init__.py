"""Launch: compiled kernels as Python callables, on torch's threads."""

from __future__ import annotations
