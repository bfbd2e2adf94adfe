"""`halide-backend calibrate`: measures which library is fast for matrix products on this machine, and keeps it."""

from __future__ import annotations

import argparse
import json

from halide_backend.command_parser import count
from halide_backend.errors import HalideBackendError

DESCRIPTION = """\
Measure how fast ATen and oneDNN compute float32 matrix products on this machine, 375 of them with sides
of 1 to 2048, in about 20 seconds, and keep the result in the cache directory. From then on the library of
each product that is compiled is chosen by it, instead of by a rule for the family of the processor. It
holds for this version of torch, this processor and this number of threads. Run it while nothing else does.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `halide-backend`."""
    parser = commands.add_parser(
        "calibrate",
        help="measure which library is fast for matrix products on this machine",
        description=DESCRIPTION,
    )
    parser.add_argument(
        "--threads", type=count, default=0, metavar="N", help="threads of a product (default: torch's number)"
    )
    parser.add_argument("--forget", action="store_true", help="drop what was measured, and measure nothing")
    parser.add_argument("--json", action="store_true", help="print what was measured as JSON")
    parser.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    import torch

    from halide_backend.products import calibration_store
    from halide_backend.products.calibration import measure

    if not torch.backends.mkldnn.is_available():
        raise HalideBackendError(
            "this torch was built without oneDNN, so there is nothing to choose",
            where="calibrate",
            cure="Use a wheel of torch for x86-64; until then ATen computes all products.",
        )
    if asked.threads:
        torch.set_num_threads(asked.threads)
    threads = torch.get_num_threads()
    if asked.forget:
        print("forgotten" if calibration_store.discard(threads) else "there was none", f"({threads} threads)")
        return 0
    calibration = measure()
    calibration_store.save(calibration, threads)
    if asked.json:
        print(json.dumps({"threads": threads, **calibration.to_json()}))
    else:
        print(report(calibration.gains, threads))
    return 0


def report(gains: dict[str, tuple[float, ...]], threads: int) -> str:
    """A table of what was measured, by form of the operands."""
    from halide_backend.products.choice import LEAST_GAIN

    lines = [f"ATen's time over oneDNN's, float32, {threads} threads; oneDNN computes what exceeds {LEAST_GAIN}:"]
    for form, each in gains.items():
        ordered, faster = sorted(each), sum(gain > LEAST_GAIN for gain in each)
        lines.append(
            f"  {form}: oneDNN for {faster} of {len(each)}; "
            f"lowest {ordered[0]:.2f}, median {ordered[len(each) // 2]:.2f}, highest {ordered[-1]:.2f}"
        )
    return "\n".join(lines)
