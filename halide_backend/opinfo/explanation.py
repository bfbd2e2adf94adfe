"""An exception in a few lines: its message without torch's wrapping and advice, and its place."""

from __future__ import annotations

import traceback

_LONGEST = 600

#: From here on torch only gives advice.
_ADVICE = (
    "\n\nSet TORCHDYNAMO_VERBOSE",
    "\n\nTo suppress",
    "\n  Developer debug context",
    "\n\nfrom user code",
    "\n  args[0]",
)


def explain(error: BaseException) -> str:
    """Type, message and innermost place of the first cause of `error`."""
    inner = getattr(error, "inner_exception", None)
    if isinstance(inner, BaseException):
        return explain(inner)
    message = str(error)
    for advice in _ADVICE:
        message = message.partition(advice)[0]
    frames = traceback.extract_tb(error.__traceback__)
    place = ""
    if frames:
        name = frames[-1].filename
        for root in ("/site-packages/", "/halide_backend/"):
            name = name.rpartition(root)[2] if root in name else name
        place = f" [{name}:{frames[-1].lineno}]"
    return f"{type(error).__name__}: {message.strip()[:_LONGEST]}{place}"
