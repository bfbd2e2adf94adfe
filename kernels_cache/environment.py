"""The two environment variables of this package; nothing else in it reads the environment."""

from __future__ import annotations

import os

DIRECTORY = "HALIDE_BACKEND_CACHE_DIR"
STRICT = "HALIDE_BACKEND_CACHE_STRICT"


def directory() -> str | None:
    """Return the root that the user asked for, None when unset or empty."""
    return os.environ.get(DIRECTORY) or None


def strict() -> bool:
    """Tell whether cache trouble shall raise instead of warn."""
    return os.environ.get(STRICT, "").strip().lower() in {"1", "true", "yes", "on"}
