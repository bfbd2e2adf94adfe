"""Digests of this package's own sources, for keys and records of what was made with them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path


def sources_digest(parts: Iterable[str] = (".",)) -> str:
    """SHA-256 over the names and contents of the sources in `parts`, as hexadecimal digits.

    Args:
        parts: folders and files of this package; without, all of it.
    """
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for part in parts:
        place = package / part
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            content = path.read_bytes()
            digest.update(f"{path.relative_to(package).as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()
