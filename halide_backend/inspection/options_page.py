"""Writes docs/reference/options.md from the options themselves."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from halide_backend.options import OPTIONS, Option
from kernels_cache import environment

HEAD = """\
# Options

<!-- Written by `make reference` from halide_backend/options.py; do not edit. -->

Set an option in one of three ways, the later ones win over the earlier:

```
export HALIDE_BACKEND_COMPILE_WORKERS=4                                        # for every process
halide_backend.config.compile_workers = 4                                      # for this process
torch.compile(model, backend="halide_backend", options={"compile_workers": 4})  # for one model
```

`with halide_backend.config.patch(compile_workers=4): ...` sets it for a block. An unknown name
is refused with the nearest one that exists. All options take part in Inductor's cache keys.
"""

CACHE = f"""\
## The cache of compiled kernels

These are read from the environment only, because other programs share the cache.

| variable | default | meaning |
|---|---|---|
| `{environment.DIRECTORY}` | the user's cache directory (`~/.cache/halide_backend`) | \
Directory of the cache. Only you (or root) may be able to write it. |
| `{environment.SHARED}` | none | Read-only caches that are looked up after it, a fleet's pre-built one \
for instance; several with `{os.pathsep}` between them. |
| `{environment.STRICT}` | off | With 1, trouble with the cache is an error, not one warning. |
"""


def page() -> str:
    """The text of the page."""
    head = "| option | type | default | environment | meaning |\n|---|---|---|---|---|"
    return "\n".join([HEAD, head, *map(_row, OPTIONS), "", CACHE])


def _row(option: Option) -> str:
    meaning = option.meaning
    if option.choices:
        of = "Of" if option.several else "One of"
        meaning += f" {of} {', '.join(f'`{choice!r}`' for choice in option.choices)}."
    if option.minimum is not None:
        meaning += f" At least {option.minimum:g}."
    return f"| `{option.name}` | {option.type.__name__} | `{option.default!r}` | `{option.environment}` | {meaning} |"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
