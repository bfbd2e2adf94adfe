"""Text of calls of Funcs."""

from __future__ import annotations

from collections.abc import Sequence


def call_text(func: str, arguments: Sequence[str]) -> str:
    """A call of Func `func`, which may have no dimensions."""
    return f"{func}[{', '.join(arguments)}]" if arguments else f"{func}[()]"
