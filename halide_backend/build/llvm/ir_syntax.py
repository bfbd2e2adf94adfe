"""Patterns of LLVM's textual IR."""

from __future__ import annotations

import re

#: A local value.
NAME = r'%(?:[-\w.$]+|"[^"]*")'

#: The definition of a function, with its body.
FUNCTION = re.compile(r"^define .*?^}$", re.MULTILINE | re.DOTALL)


def shuffle_mask(first: int, count: int) -> str:
    """The mask of a `shufflevector` that takes `count` lanes from `first` on."""
    return f"<{count} x i32> <{', '.join(f'i32 {lane}' for lane in range(first, first + count))}>"
