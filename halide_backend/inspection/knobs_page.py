"""Writes docs/reference/schedule-knobs.md from the knobs that the rules declare."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from halide_backend.schedule import cpu, cuda, mapping
from halide_backend.schedule.knobs import Knob, Setting

HEAD = """\
# Knobs of the rules

<!-- Written by `make reference` from the knobs that halide_backend/schedule declares; do not edit. -->

A knob is a number or a decision that a rule chooses for a kernel. A schedule file may choose otherwise
([how to](../how-to/tune-a-kernel.md)), and a search does. Values are written as in a schedule file. Besides those here
a knob may always have the one that the rule chooses, which a dumped schedule names with the reason. A setting that
would give another result, or none, is refused with a reason.

What was measured for the choices of the rules is in the pages on [CPU schedules](../design/schedules.md) and on
[CUDA](../design/cuda.md).
"""

#: The sections of the page: a title, and the folder of `halide_backend.schedule` whose knobs it has.
SECTIONS = (("Of the mapping", mapping), ("On a CPU", cpu), ("On a GPU", cuda))


def page() -> str:
    """The text of the page."""
    return HEAD + "".join(f"\n## {title}\n\n{_table(folder)}" for title, folder in SECTIONS)


def declared(folder: ModuleType) -> Iterator[tuple[str, Knob]]:
    """The knobs that the files of a folder of rules declare, each with its file's name."""
    for module in pkgutil.iter_modules(folder.__path__):
        for value in vars(importlib.import_module(f"{folder.__name__}.{module.name}")).values():
            if isinstance(value, Knob):
                yield f"{module.name}.py", value


def _table(folder: ModuleType) -> str:
    part = folder.__name__.rpartition(".")[2]
    rows = (
        f"| `{knob.name}` | {', '.join(map(_value, knob.values))} | {knob.meaning} | {part}/{file} |\n"
        for file, knob in declared(folder)
    )
    return "".join(["| knob | values | what it is | declared in |\n", "|---|---|---|---|\n", *rows])


def _value(setting: Setting) -> str:
    return f"`{json.dumps(setting)}`"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
