"""The command line of `halide-backend opinfo`."""

from __future__ import annotations

import argparse

from halide_backend.command_parser import count
from halide_backend.opinfo.case import DTYPES, TIME_LIMIT, Request

DESCRIPTION = """\
Run the operators of torch's own test database through torch.compile with this backend and compare
results, changed inputs and, with --gradients, gradients with eager, to the tolerances of torch's
test of Inductor. Operators run in worker processes: one that crashes or hangs is recorded, and the
run goes on. Exit code 1 when something failed that does not fail with --against, too.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `halide-backend`."""
    parser = commands.add_parser(
        "opinfo",
        help="run torch's operator database with this backend and compare with eager",
        description=DESCRIPTION,
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: %(default)s")
    parser.add_argument(
        "--dtypes",
        nargs="+",
        choices=DTYPES,
        default=list(DTYPES),
        metavar="DTYPE",
        help=f"default: {' '.join(DTYPES)}",
    )
    parser.add_argument(
        "--ops",
        nargs="+",
        default=[],
        metavar="NAME",
        help="names or shell patterns, 'nn.functional.*' for example; default: all",
    )
    parser.add_argument(
        "--all-samples",
        action="store_true",
        help="every sample input of an operator, not only its first one",
    )
    parser.add_argument("--gradients", action="store_true", help="compare gradients, too")
    parser.add_argument("--jobs", type=count, default=1, metavar="N", help="worker processes (default: 1)")
    parser.add_argument(
        "--against",
        choices=("cpp", "triton"),
        default="",
        help="run what fails with Inductor's own backend, too (cpp needs a C++ compiler), and tell "
        "apart what fails there in the same way",
    )
    parser.add_argument(
        "--pytorch-checkout",
        default="",
        metavar="PATH",
        help="run the test file of this PyTorch checkout itself, unmodified, in place of the "
        "comparison above; --dtypes, --gradients, --against and --resume have no meaning then",
    )
    parser.add_argument("--output", default="", metavar="FILE", help="write results as JSON to FILE")
    parser.add_argument("--resume", action="store_true", help="keep what FILE holds already and run the rest")
    parser.add_argument(
        "--time-limit",
        type=float,
        default=TIME_LIMIT,
        metavar="S",
        help="seconds that one sample may take, with its compilation (default: %(default)g)",
    )
    parser.add_argument("--list", action="store_true", help="print the operators and data types and do not run them")
    parser.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    request = Request(
        device=asked.device,
        dtypes=tuple(asked.dtypes),
        ops=tuple(asked.ops),
        all_samples=asked.all_samples,
        gradients=asked.gradients,
        jobs=asked.jobs,
        against=asked.against,
        time_limit=asked.time_limit,
        output=asked.output,
        resume=asked.resume,
        checkout=asked.pytorch_checkout,
    )
    # Imported here: showing the help of the command line must not read the machine.
    from halide_backend.opinfo import run

    return run.show_cases(request) if asked.list else run.run(request)
