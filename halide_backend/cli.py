"""The command line `halide-backend <command>`; a command imports what it needs when it runs."""

from __future__ import annotations

import argparse
import os
import select
import sys
from collections.abc import Sequence
from typing import TextIO

from halide_backend.bench import command as bench
from halide_backend.command_parser import CommandParser
from halide_backend.demonstration import command as demo
from halide_backend.errors import HalideBackendError
from halide_backend.inspection import doctor_command, schedules_command
from halide_backend.opinfo import command as opinfo
from halide_backend.packages import command as packages
from halide_backend.products import command as calibrate
from halide_backend.tune import command as tune

EXIT_CODES = """\
exit codes:
  0    everything is as it should be
  1    the command ran and found something wrong
  2    the command line is not understood
  130  interrupted (Ctrl-C)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; what is not understood exits with code 2."""
    asked = _parser().parse_args(arguments)
    try:
        code: int = asked.run(asked)
        sys.stdout.flush()
    except HalideBackendError as error:
        print(f"halide-backend: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        if not _has_no_reader(sys.stdout):
            raise
        # halide-backend bench --list | head; keep the interpreter's last flush quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("\nhalide-backend: interrupted", file=sys.stderr)
        return 130
    return code


def _has_no_reader(output: TextIO) -> bool:
    watched = select.poll()
    watched.register(output.fileno(), 0)
    return any(event & select.POLLERR for _, event in watched.poll(0))


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="halide-backend", description="Inspect and try the halide_backend of torch.compile.", epilog=EXIT_CODES
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(title="commands", metavar="command", required=True)
    for command in (doctor_command, demo, opinfo, bench, tune, calibrate, schedules_command, packages):
        command.add(commands)
    return parser


def _version() -> str:
    from halide_backend.inspection import machine

    return f"halide-backend {machine.version('halide-backend') or 'not installed'}"


if __name__ == "__main__":
    raise SystemExit(main())
