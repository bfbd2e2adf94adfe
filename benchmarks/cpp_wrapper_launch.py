"""What a launch costs from Inductor's C++ wrapper, and from its Python wrapper: graphs of small kernels, in turns.

    python benchmarks/cpp_wrapper_launch.py

The same function is compiled three times: with the Python wrapper, with the C++ one, and with the Python one again as
the control. Pipelines are a few elements each and are not fused, so that time is that of arguments, calls and
allocations of results. The ratio is that of a graph of many pipelines less one of few: what the call of a graph costs
is not in it. One launch runs all pipelines of a graph, in both wrappers.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from typing import Any

import torch

from halide_backend.inspection import machine
from halide_backend.inspection.compiled import Compiled, compile_for

FEW, MANY = 4, 36


def compiled(kernels: int, cpp_wrapper: bool) -> Compiled:
    """A function of so many kernels, checked against eager."""

    def chain(x: Any) -> Any:
        for _ in range(kernels):
            x = x - x.sum(0, keepdim=True)
        return x

    fast = compile_for("halide_backend", chain, options={"max_fusion_size": 1, "cpp_wrapper": cpp_wrapper})
    x = torch.randn(4, 8)
    torch.testing.assert_close(fast(x), chain(x), rtol=1e-4, atol=1e-4)
    assert all(("cpp_wrapper_src" in code) == cpp_wrapper for code in fast.codes) and not fast.delegated
    return fast


def launches(fast: Compiled) -> int:
    """Calls of kernels in the code of its graph; each runs several pipelines."""
    return sum(len(re.findall(r"^ *halide_fused_\w+\(", code, re.M)) for code in fast.codes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--json", default="")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    sides = {
        name: tuple(compiled(count, name == "C++") for count in (FEW, MANY))
        for name in ("Python", "C++", "Python again")
    }
    x = torch.randn(4, 8)
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(asked.rounds):
        for name in list(sides) if number % 2 else list(sides)[::-1]:
            spent = []
            for function in sides[name]:
                began = time.perf_counter()
                for _ in range(20):
                    function.call(x)
                spent.append(time.perf_counter() - began)
            times[name].append(spent[1] - spent[0])
    medians = {name: statistics.median(values) for name, values in times.items()}
    found = {
        **machine.facts(),
        "launches": {name: [launches(function) for function in pair] for name, pair in sides.items()},
        "C++ / Python": round(medians["C++"] / medians["Python"], 3),
        "Python again / Python": round(medians["Python again"] / medians["Python"], 3),
    }
    print(json.dumps(found, indent=1))
    if asked.json:
        with open(asked.json, "w") as file:
            file.write(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
