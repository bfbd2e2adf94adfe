"""Text of calls of Funcs and of their arguments."""

from __future__ import annotations

from collections.abc import Sequence


def call_text(func: str, arguments: Sequence[str]) -> str:
    """A call of Func `func`, which may have no dimensions."""
    return f"{func}[{', '.join(arguments)}]" if arguments else f"{func}[()]"


def multiple_text(name: str, step: int, skip: int) -> str:
    """`name*step + skip`, without what changes nothing."""
    text = name if step == 1 else f"{name}*{step}"
    return f"{text} + {skip}" if skip else text


def tuple_text(items: Sequence[str]) -> str:
    """A Python tuple."""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
