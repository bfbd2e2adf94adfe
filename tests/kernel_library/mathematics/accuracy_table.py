"""Largest errors in ulps, beside those of Inductor's C++ backend over the same arguments.

`python tests/kernel_library/mathematics/accuracy_table.py [NAME...]` prints them, and compile times, for some functions
or all; with `--page FILE` it writes docs/reference/accuracy.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import mpmath
import numpy as np
import torch
from arguments import STRIDE_32, Floats
from special_truth import SPECIALS
from test_accuracy import BOUNDS, inputs_of, truth_64
from test_special_accuracy import errors as special_errors
from test_special_accuracy import kernel as special_kernel
from test_special_accuracy import problem
from truth import Number, float64_truth, torch_function
from ulps import errors_in_ulps, ulp_64
from vector_kernel import HOST, VectorKernel, vector_kernel

from halide_backend.inspection import machine
from halide_backend.inspection.compiled import compile_for

COUNT_64 = 3000
COUNT_SPECIAL = 400
#: Errors from here on are not told apart.
MANY = 1e5
PAGE = Path(__file__).with_name("accuracy_page.md")


@dataclass(frozen=True)
class Errors:
    """Ours and C++'s largest error over `count` arguments; seconds: what compiling ours took."""

    ours: float
    cpp: float
    count: int
    seconds: float


def cpp(name: str, *inputs: Floats) -> Floats:
    compiled = compile_for("cpp", torch_function(name))
    results = compiled(*map(torch.from_numpy, inputs))
    compiled.check_code()
    return np.asarray(results.numpy())


def largest_64(values: Floats, truth: list[Number], floor: float) -> float:
    return max(ulp_64(v, t, floor) for v, t in zip(values.tolist(), truth, strict=True))


def fastest_compiled(name: str, bits: int) -> VectorKernel:
    return min((vector_kernel(name, BOUNDS[name].arity, bits) for _ in range(3)), key=lambda k: k.seconds)


def usual(name: str) -> tuple[Errors, Errors]:
    """Of one of `BOUNDS`: float32 and float64."""
    floor = BOUNDS[name].floor
    x = inputs_of(name, 32, 1 << 20, STRIDE_32)
    truth = float64_truth(name, *x)
    single = fastest_compiled(name, 32)
    ours, other = (float(errors_in_ulps(values, truth, floor).max()) for values in (single(*x), cpp(name, *x)))
    wide, exact = truth_64(name, COUNT_64)
    double = fastest_compiled(name, 64)
    ours_64, other_64 = (largest_64(values, exact, floor) for values in (double(*wide), cpp(name, *wide)))
    return Errors(ours, other, x[0].size, single.seconds), Errors(ours_64, other_64, wide[0].size, double.seconds)


def special(name: str) -> tuple[Errors, Errors]:
    """Of one of `SPECIALS`: float32 and float64."""
    found = []
    for bits in (32, 64):
        x, truth = problem(name, bits, COUNT_SPECIAL)
        compiled = special_kernel(name, bits, HOST)
        ours, other = (float(special_errors(name, v, x, truth).max()) for v in (compiled(*x), cpp(name, *x)))
        found.append(Errors(ours, other, x[0].size, compiled.seconds))
    return found[0], found[1]


def table(names: list[str]) -> Iterator[str]:
    yield "function   max ulp: 32        C++        64       C++  compile ms: 32, 64"
    for name in names:
        single, double = usual(name) if name in BOUNDS else special(name)
        figures = " ".join(f"{error:9.3g}" for error in (single.ours, single.cpp, double.ours, double.cpp))
        yield f"{name:10s} {figures}  {single.seconds * 1e3:5.0f} {double.seconds * 1e3:5.0f}"


def rows(names: list[str]) -> Iterator[str]:
    yield "| function | float32 | C++ | arguments | float64 | C++ | arguments |"
    yield "|---|---|---|---|---|---|---|"
    for name in names:
        single, double = usual(name) if name in BOUNDS else special(name)
        cells = [f"{_size(e.ours)} | {_size(e.cpp)} | {e.count:,}" for e in (single, double)]
        yield f"| `{name}` | {' | '.join(cells)} |"


def _size(error: float) -> str:
    if not error < MANY:
        return "over 1e5"
    return f"{error:.2f}" if error < 100 else f"{error:.0f}"


def page() -> str:
    start = time.monotonic()
    of_usual, of_special = "\n".join(rows(list(BOUNDS))), "\n".join(rows(list(SPECIALS)))
    facts = machine.facts()
    versions = f"{facts['versions']}, numpy {np.__version__}, mpmath {mpmath.__version__}"
    return PAGE.read_text().format(
        date=datetime.now(timezone.utc).date(),
        machine=facts["machine"],
        versions=versions.replace("halide-backend missing, ", ""),  # on the path, not installed
        minutes=round((time.monotonic() - start) / 60),
        stride=STRIDE_32,
        usual=of_usual,
        special=of_special,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--page", type=Path, metavar="FILE")
    given = parser.parse_args()
    with np.errstate(all="ignore"):
        if given.page:
            given.page.write_text(page())
        else:
            for line in table(given.names or list(BOUNDS)):
                print(line, flush=True)
