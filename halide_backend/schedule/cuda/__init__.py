"""Rules for CUDA: a file for each, and what they share."""

from __future__ import annotations
