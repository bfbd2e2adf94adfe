"""Descriptions of arguments as manifests have them."""

from __future__ import annotations

from typing import Any


def buffer(name: str, *dims: tuple[int, int] | int, code: int = 2, bits: int = 32, offset: int = 0) -> dict[str, Any]:
    """A manifest's buffer argument; a bare extent is a dim of stride 1; `offset` in bytes."""
    pairs = [[d, 1] if isinstance(d, int) else list(d) for d in dims]
    return {
        "kind": "buffer",
        "name": name,
        "code": code,
        "bits": bits,
        "offset": offset,
        "dims": pairs,
    }
