"""The kernels of a user's program: it runs in a process of its own, which writes its records down.

    python -m halide_backend.tune.capture DEVICE SOURCE FILE

The process is told to use this backend on DEVICE whatever the program chooses for itself, and no cache of Inductor's,
because a graph from there has no programs.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from halide_backend.errors import ScriptFailed
from halide_backend.tune.trial_log import documents

#: Lines of a program's traceback that an error repeats.
_LINES = 25


def records_of(source: str, device: str) -> list[Any]:
    """The records of a program as JSON, or those that a file holds.

    Args:
        source: a Python file; "module:function", called without arguments; or a file of records or trials, which ends
            in .json or .jsonl.
        device: "cpu" or "cuda", on which this backend is used.

    Raises:
        ScriptFailed: the program raised an exception, or there is none.
        TrialLogError: the file cannot be read.
    """
    path = Path(source)
    if path.suffix in (".json", ".jsonl"):
        return list(documents(path))
    if not path.is_file() and ":" not in source:
        raise ScriptFailed(
            "there is no such file", where=source, cure="name a Python file, module:function, or a file of records"
        )
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "records.json")
        done = subprocess.run(
            [sys.executable, "-m", "halide_backend.tune.capture", device, source, file],
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode or not os.path.exists(file):
            lines = "\n".join(done.stderr.strip().splitlines()[-_LINES:])
            raise ScriptFailed(
                f"it ended with status {done.returncode}\n{lines}", where=source, cure="make it run by itself first"
            )
        sys.stderr.write(done.stderr)
        return list(documents(Path(file)))


def main(device: str, source: str, file: str) -> None:
    """Run a program with this backend and write its records to `file`."""
    import torch._inductor.config as inductor

    import halide_backend

    setattr(inductor, "cpu_backend" if device == "cpu" else "cuda_backend", halide_backend.__name__)
    inductor.force_disable_caches = True
    # The program may choose max-autotune; what is asked for is its kernels.
    halide_backend.config.tune_seconds = 0.0
    try:
        _run(source)
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
    Path(file).write_text(json.dumps([record.to_json() for record in halide_backend.records()]))


def _run(source: str) -> None:
    if os.path.isfile(source):
        sys.argv = [source]
        sys.path.insert(0, os.path.dirname(os.path.abspath(source)))
        runpy.run_path(source, run_name="__main__")
    else:
        sys.path.insert(0, os.getcwd())
        module, _, name = source.partition(":")
        getattr(importlib.import_module(module), name)()


if __name__ == "__main__":
    main(*sys.argv[1:])
