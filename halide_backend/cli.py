"""The command line `halide-backend <command>`; a command imports what it needs when it runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from halide_backend.bench import command as bench
from halide_backend.errors import HalideBackendError
from halide_backend.inspection import schedules_command
from halide_backend.opinfo import command as opinfo
from halide_backend.packages import command as packages
from halide_backend.products import command as calibrate
from halide_backend.tune import command as tune

EXIT_CODES = """\
exit codes:
  0  everything is as it should be
  1  the command ran and found something wrong
  2  the command line is not understood
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; what is not understood exits with code 2."""
    asked = _parser().parse_args(arguments)
    try:
        code: int = asked.run(asked)
    except HalideBackendError as error:
        print(f"halide-backend: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nhalide-backend: interrupted", file=sys.stderr)
        return 130
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="halide-backend",
        description="Inspect and try the halide_backend of torch.compile.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(title="commands", metavar="command", required=True)
    _add_doctor(commands)
    _add_demo(commands)
    opinfo.add(commands)
    bench.add(commands)
    tune.add(commands)
    calibrate.add(commands)
    schedules_command.add(commands)
    packages.add(commands)
    return parser


def _version() -> str:
    from halide_backend.inspection import machine

    return f"halide-backend {machine.version('halide-backend') or 'not installed'}"


def _add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "doctor",
        help="check this installation and say what to do about what is wrong",
        description=(
            "Check versions, native extension, OpenMP runtime, target, threads and cache folder; "
            "then compile one small kernel in a worker process, load it, run it and compare its "
            "result with a known one, counting every process that is started. Exit code 1 when a "
            "check fails."
        ),
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")
    parser.set_defaults(run=_doctor)


def _doctor(asked: argparse.Namespace) -> int:
    from halide_backend.inspection import doctor

    return doctor.run(as_json=asked.json)


def _add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from halide_backend.demonstration.catalogue import ROWS

    parser = commands.add_parser(
        "demo",
        help="compile, check and time three models against eager and Inductor's C++ backend",
        description=(
            "Run a GPT-style transformer (inference, training), a ResNet-style network (training) "
            "and an image pipeline; check every result against eager; time cold compilation, the "
            "start of a second process, and runs in alternating rounds. Caches are fresh temporary "
            "folders. Exit code 1 when a result differs or a part of the demo fails."
        ),
        allow_abbrev=False,
    )
    parser.add_argument("--quick", action="store_true", help="small models and few rounds, about a minute")
    parser.add_argument("--only", choices=tuple(ROWS), default="", help="run one model only")
    parser.add_argument(
        "--output",
        default="demo-output",
        metavar="DIR",
        help="where the pictures go (default: %(default)s)",
    )
    parser.add_argument("--json", default="", metavar="FILE", help="also write every figure to FILE")
    parser.add_argument(
        "--audit",
        action="store_true",
        help="count every process that is started; exit code 1 when one is neither a compile "
        "worker nor the demo's own; leaves the C++ backend out",
    )
    parser.set_defaults(run=_demo)


def _demo(asked: argparse.Namespace) -> int:
    from halide_backend.demonstration import demo

    return demo.run(
        demo.Request(
            quick=asked.quick,
            only=asked.only,
            output=asked.output,
            json_file=asked.json,
            audit=asked.audit,
        )
    )


if __name__ == "__main__":
    raise SystemExit(main())
