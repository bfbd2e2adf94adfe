"""Rules for CPUs, one file each."""

from __future__ import annotations
