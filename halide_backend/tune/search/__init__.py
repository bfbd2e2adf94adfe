"""Strategies: which settings to try next, given the trials so far."""

from __future__ import annotations
