"""The command line of `halide-backend tune`."""

from __future__ import annotations

import argparse
import re

from halide_backend.command_parser import count

DESCRIPTION = """\
Search for settings of the knobs that the rules of schedules have (docs/design/schedules.md) which make
the kernels of a program faster on this machine. SOURCE is a Python file, which runs with this backend; a
function, "module:function", which is called without arguments; or a file of records or of trials.

Candidates are compiled in worker processes and measured in a process of their own, in turns with the
best so far; results are compared with those of the rules' kernel. Every trial is written to FILE.
Ctrl-C ends the search and keeps the best so far. Exit code 1 when nothing could be tuned.
"""

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `halide-backend`."""
    from halide_backend.tune.search.names import AUTOSCHEDULERS, STRATEGIES

    parser = commands.add_parser(
        "tune",
        help="search for faster schedules of the kernels of a program",
        description=DESCRIPTION,
    )
    parser.add_argument("source", metavar="SOURCE", help="MODEL.py, module:function, RECORDS.json or TRIALS.jsonl")
    parser.add_argument(
        "--budget", type=seconds, default=600.0, metavar="TIME", help="90s, 10m or 1h in all (default: 10m)"
    )
    parser.add_argument("--kernels", default="*", metavar="PATTERN", help="names or digests of kernels (default: all)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: %(default)s")
    parser.add_argument("--strategy", choices=STRATEGIES, default=STRATEGIES[0], help="default: %(default)s")
    parser.add_argument(
        "--autoschedulers",
        nargs="+",
        choices=AUTOSCHEDULERS,
        default=(),
        metavar="NAME",
        help=f"try the schedules of these of Halide's autoschedulers first, on a CPU: {', '.join(AUTOSCHEDULERS)}",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of what a strategy does by chance")
    parser.add_argument(
        "--threads", type=count, default=0, metavar="N", help="threads of kernels (default: one a core)"
    )
    parser.add_argument(
        "--caches",
        choices=("auto", "cold", "warm"),
        default="auto",
        help="whether operands are in the processor's caches when a call begins; auto: unless they are larger "
        "than the L2 (default: %(default)s)",
    )
    parser.add_argument("--output", default="halide-trials.jsonl", metavar="FILE", help="trials (default: %(default)s)")
    parser.add_argument("--resume", action="store_true", help="go on from the trials that FILE holds")
    parser.add_argument(
        "--schedules",
        default="",
        metavar="FILE",
        help="add what is faster than the rules to FILE, as schedules in the place of earlier ones of these kernels",
    )
    parser.add_argument("--report", default="", metavar="FILE", help="write a page about the session, as HTML")
    parser.add_argument(
        "--ray", default="", metavar="ADDRESS", help="tune on all machines of this Ray cluster; auto, local, host:port"
    )
    parser.add_argument("--list", action="store_true", help="print the kernels and do not tune them")
    parser.add_argument(
        "--compare-strategies",
        action="store_true",
        help="compare the strategies on the trials that SOURCE holds; nothing is compiled or measured",
    )
    parser.set_defaults(run=_run)


def seconds(text: str) -> float:
    """A time of the command line, "90s", "10m" or "1.5h"; a number alone is seconds.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; 90s, 10m and 1h are")
    return float(match[1]) * _UNITS[match[2]]


def _run(asked: argparse.Namespace) -> int:
    # Imported here: showing the help of the command line must not load libraries.
    if asked.compare_strategies:
        from halide_backend.tune import comparison

        return comparison.run(asked.source, seed=asked.seed)
    from halide_backend.tune import run

    request = run.Request(
        source=asked.source,
        budget=asked.budget,
        kernels=asked.kernels,
        device=asked.device,
        strategy=asked.strategy,
        seed=asked.seed,
        threads=asked.threads,
        cold={"auto": None, "cold": True, "warm": False}[asked.caches],
        output=asked.output,
        resume=asked.resume,
        report=asked.report,
        schedules=asked.schedules,
        ray=asked.ray,
        autoschedulers=tuple(asked.autoschedulers),
    )
    return run.show(request) if asked.list else run.tune(request)
