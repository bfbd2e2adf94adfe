"""The command line of `halide-backend bench`."""

from __future__ import annotations

import argparse

DESCRIPTION = """\
Compile some fifty kernels, each at a size that vectors divide and at an odd one, in float32 and
bfloat16; check every result against eager in float32; time this backend and another one in turns.
On a GPU a sample is the replay of a CUDA graph of calls on operands that are together larger than
the cache. Exit code 1 when a result is wrong.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `halide-backend`."""
    parser = commands.add_parser(
        "bench",
        help="check and time kernels against another backend",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: %(default)s")
    others = ("triton", "triton-max-autotune", "cpp", "eager")
    parser.add_argument("--against", choices=others, default="eager", help="default: %(default)s")
    parser.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="cases whose name contains one of these")
    parser.add_argument("--no-timing", action="store_true", help="check results only")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after this time")
    parser.add_argument("--json", default="", metavar="FILE", help="write every sample to FILE")
    parser.add_argument("--plot", default="", metavar="FILE", help="draw the ratios (needs matplotlib)")
    parser.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    from halide_backend.bench import suite

    return suite.run(
        suite.Request(
            device=asked.device,
            against=asked.against,
            only=tuple(asked.only),
            timing=not asked.no_timing,
            seconds=asked.seconds,
            json_file=asked.json,
            plot_file=asked.plot,
        )
    )
