"""Rewrites of Inductor's FX graphs, before it lowers them."""

from __future__ import annotations
