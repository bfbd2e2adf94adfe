"""The command line of `halide-backend doctor`."""

from __future__ import annotations

import argparse

DESCRIPTION = """\
Check versions, native extension, OpenMP runtime, target, threads and cache directory; then compile one
small kernel in a worker process, load it, run it and compare its result with a known one, counting every
process that is started. Exit code 1 when a check fails.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `halide-backend`."""
    parser = commands.add_parser(
        "doctor",
        help="check this installation and say what to do about what is wrong",
        description=DESCRIPTION,
    )
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")
    parser.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    from halide_backend.inspection import doctor

    return doctor.run(as_json=asked.json)
