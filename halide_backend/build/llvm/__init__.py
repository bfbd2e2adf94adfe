"""LLVM IR: what is repaired in Halide's, and how it becomes an object."""

from __future__ import annotations
