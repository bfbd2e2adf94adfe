"""Writes docs/reference/refusals.md from the tables of codes."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping
from pathlib import Path

from halide_backend.refusals import ERROR_CODES, FUSION_CODES, KERNEL_CODES, TEMPLATE_CODES, Code

HEAD = """\
# Refusals

<!-- Written by `make reference` from halide_backend/refusals.py; do not edit. -->

What this backend does not do it leaves to Inductor's own backend, and it says why: by a code, which is stable, a
detail, which has the numbers and limits of the case, and a hint, what can be done. `halide_backend.stats()` counts
kernels by code (`delegation_reasons`, `unfusing_reasons`). The log "halide_backend" has all three: delegations are
warnings, refused fusions are on the debug level.
"""

KERNELS = """\
## Kernels

Raised as `halide_backend.errors.Unsupported`. Several nodes that were fused are then compiled one by one; a single one
is delegated, or with `halide_backend.config.delegate = False` the error is the user's.
"""

ERRORS = """\
A kernel is delegated as well when building it fails. Its code is the error's name then ([errors](errors.md)).
"""

TEMPLATES = """\
Templates have a record of their own, too; `stats()` counts them as `delegated_templates`.
"""

FUSION = """\
## Fusion

Why two groups of nodes did not become one kernel. The codes above are reasons, too: those of the kernel that would have
been.
"""


def page() -> str:
    """The text of the page."""
    parts = ((KERNELS, KERNEL_CODES), (ERRORS, ERROR_CODES), (TEMPLATES, TEMPLATE_CODES), (FUSION, FUSION_CODES))
    return "\n".join([HEAD, *itertools.chain(*([text, *_table(codes), ""] for text, codes in parts))])


def _table(codes: Mapping[str, Code]) -> list[str]:
    rows = [f"| `{name}` | {code.meaning} | {code.hint} |" for name, code in codes.items()]
    return ["| code | meaning | what to do |", "|---|---|---|", *rows]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
