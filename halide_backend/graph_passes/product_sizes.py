"""Sizes of the operands of a product in the example that is compiled."""

from __future__ import annotations

from typing import Any


def hint(size: Any) -> int:
    """What `size` is in the example that is compiled; 0 if it is known only when the graph runs."""
    if isinstance(size, int):
        return size
    return int(size.node.hint) if size.node.has_hint() else 0
