"""Patterns of LLVM's textual IR."""

from __future__ import annotations

import re

#: A local value.
NAME = r'%(?:[-\w.$]+|"[^"]*")'

#: The definition of a function, with its body.
FUNCTION = re.compile(r"^define .*?^}$", re.MULTILINE | re.DOTALL)
