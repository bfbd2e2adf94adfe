"""The commands `halide-backend package` and `halide-backend inspect`: making AOTInductor packages, and reading them."""

from __future__ import annotations
