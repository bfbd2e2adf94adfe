"""Writes docs/reference/records.md: the fields of `KernelRecord`, and what its records say of an example."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import sys
from pathlib import Path

from halide_backend.inspection import records_example
from halide_backend.kernel_records.journal import KEPT
from halide_backend.kernel_records.record import KernelRecord

HEAD = f"""\
# Records of kernels

<!-- Written by `make reference` from halide_backend/kernel_records/record.py; do not edit. -->

`halide_backend.records()` returns a `KernelRecord` for each kernel of this process, in the order in which they were
captured or, where the wrapper came from one of Inductor's caches, loaded. A record is a frozen value and holds no
tensor and no graph. The last {KEPT:,} are kept; `halide_backend.stats()` sums over all there were, and
`halide_backend.reset_stats()` forgets them.

A kernel is what one Halide pipeline computes; a launch in Inductor's wrapper may run several, which have its name and
differ in their `position`. Kernels and templates that Inductor's own backend runs have a record as well.

Noting a kernel takes 0.1 to 0.3 ms while it is compiled; what costs more is computed when it is asked for.
With `TORCH_TRACE=folder` each record is an artifact of torch's structured trace, which `tlparse` shows as
`halide_backend_<name>_<position>`; it is written when the kernel is scheduled, so it says nothing of cache and loads.

## Fields
"""

METHODS = ("source_lines", "program_digest", "artifact", "loop_nest", "assembly", "to_json")

EXAMPLE = """\
## Example

```python
{source}```

prints, with the option `target` set to `avx2`,

```
{output}```
"""


def page() -> str:
    """The text of the page; it compiles the example, with whatever cache of kernels the environment names."""
    return "\n".join([HEAD, *_fields(), "", *_methods(), "", EXAMPLE.format(source=_source(), output=_output())])


def _fields() -> list[str]:
    """A row for each field, from the docstring of the class."""
    described = dict(re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", inspect.getdoc(KernelRecord) or "", re.MULTILINE))
    rows = [
        f"| `{name}` | `{str(field.type).replace(' | ', ' or ')}` | {' '.join(described[name].split())} |"
        for name, field in KernelRecord.__dataclass_fields__.items()
    ]
    return ["| field | type | meaning |", "|---|---|---|", *rows]


def _methods() -> list[str]:
    rows = []
    for name in METHODS:
        method = getattr(KernelRecord, name)
        first = (inspect.getdoc(method) or "").split("\n\n")[0]
        rows.append(f"| `{name}{'()' * inspect.isfunction(method)}` | {' '.join(first.split())} |")
    return ["| computed when asked for | |", "|---|---|", *rows]


def _source() -> str:
    text = Path(records_example.__file__).read_text()
    code = re.sub(r'^ *""".*"""\n', "", text, flags=re.MULTILINE)
    return f"{code.partition('annotations')[2].strip()}\n\n\nshow()\n"


def _output() -> str:
    from torch._inductor import config as inductor_config

    from halide_backend import config, reset_stats

    reset_stats()
    printed = io.StringIO()
    patches = config.patch(target="avx2"), inductor_config.patch(force_disable_caches=True)
    with patches[0], patches[1], contextlib.redirect_stdout(printed):
        records_example.show()
    return "\n".join(line.rstrip() for line in printed.getvalue().strip().splitlines()) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
