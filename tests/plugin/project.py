"""The project under test: where its sources are, and what pyproject.toml says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import halide_backend

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: The folder that holds the packages and pyproject.toml.
ROOT = Path(halide_backend.__file__).parents[1]


def described() -> dict[str, Any]:
    """The [project] table of pyproject.toml."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project
