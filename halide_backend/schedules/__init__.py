"""Schedules that a person wrote or a search found: entries, the files they stand in, and where kernels find them."""

from __future__ import annotations
