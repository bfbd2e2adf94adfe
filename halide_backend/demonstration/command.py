"""The command line of `halide-backend demo`."""

from __future__ import annotations

import argparse

from halide_backend.demonstration.catalogue import ROWS

DESCRIPTION = """\
Run a GPT-style transformer (inference, training), a ResNet-style network (training) and an image
pipeline; check every result against eager; time cold compilation, the start of a second process, and
runs in alternating rounds. Caches are fresh temporary folders. Exit code 1 when a result differs or a
part of the demo fails.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `halide-backend`."""
    parser = commands.add_parser(
        "demo",
        help="compile, check and time three models against eager and Inductor's C++ backend",
        description=DESCRIPTION,
    )
    parser.add_argument("--quick", action="store_true", help="small models and few rounds, about a minute")
    parser.add_argument("--only", choices=tuple(ROWS), default="", help="run one model only")
    parser.add_argument(
        "--output", default="demo-output", metavar="DIR", help="where the pictures go (default: %(default)s)"
    )
    parser.add_argument("--json", default="", metavar="FILE", help="also write every figure to FILE")
    parser.add_argument(
        "--audit",
        action="store_true",
        help="count every process that is started; exit code 1 when one is neither a compile worker nor the demo's "
        "own; leaves the C++ backend out",
    )
    parser.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    from halide_backend.demonstration import demo

    return demo.run(
        demo.Request(quick=asked.quick, only=asked.only, output=asked.output, json_file=asked.json, audit=asked.audit)
    )
