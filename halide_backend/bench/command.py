"""The command line of `halide-backend bench`."""

from __future__ import annotations

import argparse
import os

from halide_backend.command_parser import count

DESCRIPTION = """\
Compile some three hundred kernels at three sizes, in float32 and bfloat16 and some in other types;
check every result against eager in float32; time this backend and others in turns. Before that, a
control: a backend against itself, and against itself deliberately slowed. On a GPU a sample is the
replay of a CUDA graph of calls on operands that are together larger than the cache. Each case has its
share of the roofline, which loops of the same run measure; on a GPU that is the bandwidth of an
elementwise kernel of torch's, and cases below a tenth of it are named at the end. Kernels have the
schedules of the rules, also where this machine has tuned ones.

About half of the cases, by a digest of their names, are held back: rules are tuned without looking
at them, and they are reported as a whole. Exit code 1 when a result is wrong.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `halide-backend`."""
    parser = commands.add_parser(
        "bench",
        help="check and time kernels against other backends",
        description=DESCRIPTION,
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: %(default)s")
    parser.add_argument(
        "--against",
        nargs="+",
        choices=("cpp", "triton", "triton-max-autotune", "eager", "itself"),
        default=["eager"],
        help="what to compare with; several take turns (default: eager). itself: this backend again, "
        "with --dynamic its static kernels",
    )
    parser.add_argument("--list", action="store_true", help="print the cases and do not run them")
    parser.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="groups, or parts of the names of cases")
    parser.add_argument(
        "--sizes",
        nargs="+",
        choices=("small", "medium", "large", "odd", "even"),
        default=[],
        help="small, medium and large on a CPU: within its second-level cache, its third-level one, "
        "and beyond; odd, even and large on a GPU (default: all)",
    )
    parser.add_argument("--dtypes", nargs="+", default=[], metavar="DTYPE", help="torch's names (default: all)")
    parser.add_argument("--dynamic", action="store_true", help="compile with every size dynamic")
    parser.add_argument(
        "--threads", type=count, default=0, metavar="N", help="threads of kernels on a CPU (default: torch's number)"
    )
    parser.add_argument(
        "--target", choices=("avx2", "avx512"), default="", help="limit this backend and cpp to these instructions"
    )
    parser.add_argument("--held-back", action="store_true", help="show the figures of held-back cases one by one, too")
    parser.add_argument("--no-timing", action="store_true", help="check results only")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), metavar="S", help="begin no case after this time"
    )
    parser.add_argument(
        "--recorded",
        default="",
        metavar="FILE",
        help="run the kernels of FILE instead, which benchmarks/record_kernels.py took from models; they have one size",
    )
    parser.add_argument("--json", default="", metavar="FILE", help="write every sample to FILE")
    parser.add_argument("--plot", default="", metavar="FILE", help="draw the ratios (needs matplotlib)")
    parser.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    # torch's profiler, which shows what ran, otherwise writes two lines for each profile; it reads this when loaded.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from halide_backend.bench import suite
    from halide_backend.bench.case import Selection
    from halide_backend.bench.contestants import Contestants

    request = suite.Request(
        device=asked.device,
        contestants=Contestants(tuple(dict.fromkeys(asked.against)), asked.dynamic, asked.target),
        selection=Selection(tuple(asked.only), tuple(asked.sizes), tuple(asked.dtypes)),
        timing=not asked.no_timing,
        seconds=asked.seconds,
        threads=asked.threads,
        held_back=asked.held_back,
        json_file=asked.json,
        plot_file=asked.plot,
        recorded=asked.recorded,
    )
    return suite.show(request) if asked.list else suite.run(request)
