"""The environment variables of this package; nothing else in it reads the environment."""

from __future__ import annotations

import os

DIRECTORY = "HALIDE_BACKEND_CACHE_DIR"
SHARED = "HALIDE_BACKEND_CACHE_SHARED"
STRICT = "HALIDE_BACKEND_CACHE_STRICT"


def directory() -> str | None:
    """Return the root that the user asked for, None when unset or empty."""
    return os.environ.get(DIRECTORY) or None


def shared() -> tuple[str, ...]:
    """Return the read-only roots that the user asked for, in the order of their look-up."""
    return tuple(path for path in os.environ.get(SHARED, "").split(os.pathsep) if path)


def strict() -> bool:
    """Tell whether cache trouble shall raise instead of warn."""
    return os.environ.get(STRICT, "").strip().lower() in {"1", "true", "yes", "on"}
