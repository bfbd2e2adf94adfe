"""Whether a change makes kernels slower: kernels of two checkouts, compiled and timed in turns.

    python benchmarks/two_checkouts.py BEFORE AFTER --cases FILE [--device cpu|cuda] [--only TEXT ...] [--json FILE]

BEFORE and AFTER are checkouts whose native extensions are built in place. FILE is a Python file with a generator
`cases(device)`, whose items have a name, `arguments()`, and a `kernel` with `function` and `compared` (whether eager
has the same results), as `halide_backend/bench/kernels.py` was at 5b29653.

Each checkout has a process of its own, AFTER a second one for the control. All three compile a case and compare it with
eager in float32; then they take samples in turns, A B C A B C. On a GPU a sample is the replay of a CUDA graph of calls
on operands that are together larger than the cache, on a CPU the mean of as many calls as fill 10 ms. Ratios are of
medians, BEFORE's time over AFTER's: above 1 a kernel is faster than before. Ctrl-C ends the run, not its results.

Nothing of `halide_backend.bench` is used: BEFORE may have another one, and what takes the samples has to be the same.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

ROUNDS, WARM_UP = 15, 2
SAMPLE_S = 0.01
#: Several times the 60 MB second-level cache of an H200.
FOOTPRINT, MOST_CALLS = 400 << 20, 24
#: (relative, absolute) tolerance against eager in float32, the absolute one in units of the result's mean.
TOLERANCE = {"torch.float32": (2e-4, 2e-4), "torch.bfloat16": (2e-2, 2e-2), "torch.int8": (0, 1)}


def cases(file: str, device: str) -> dict[str, Any]:
    """By name."""
    specification = importlib.util.spec_from_file_location("cases_of_both", file)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return {case.name: case for case in module.cases(device)}


def tensors(value: Any) -> list[Any]:
    return [value] if hasattr(value, "dtype") else [each for part in value for each in tensors(part)]


def check(found: Any, wanted: Any) -> None:
    """Raises:
    AssertionError: results differ.
    """
    import torch

    for a, b in zip(tensors(found), tensors(wanted), strict=True):
        if str(a.dtype) not in TOLERANCE:
            assert torch.equal(a, b.to(a.dtype)), f"{a.dtype} results differ"
            continue
        relative, absolute = TOLERANCE[str(a.dtype)]
        scale = max(1.0, float(b.float().abs().nan_to_num(0, 0, 0).mean())) if a.is_floating_point() else 1.0
        torch.testing.assert_close(a.float(), b.float(), rtol=relative, atol=absolute * scale, equal_nan=True)


def prepared(case: Any, device: str) -> Callable[[], float]:
    """Microseconds of a call, measured once; the kernels are compiled and right."""
    import torch

    import halide_backend

    torch._dynamo.reset()
    halide_backend.reset_stats()
    torch.manual_seed(0)
    first = case.arguments()
    function = torch.compile(case.kernel.function, dynamic=False, options={f"{device}_backend": "halide_backend"})
    found = function(*first)
    if case.kernel.compared:
        check(found, case.kernel.function(*(a.float() if a.is_floating_point() else a for a in first)))
    stats: Any = halide_backend.stats()
    assert stats["native_kernels"], f"no kernel is this backend's: {stats}"
    return replays(function, case, first) if device == "cuda" else calls(function, first)


def replays(function: Any, case: Any, first: Any) -> Callable[[], float]:
    import torch

    size = sum(tensor.numel() * tensor.element_size() for tensor in first) * 2
    operands = [first, *(case.arguments() for _ in range(max(2, min(MOST_CALLS, FOOTPRINT // max(size, 1))) - 1))]
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream), torch.no_grad():
        function(*first)
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            kept = [function(*each) for each in operands]
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def sample() -> float:
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3 / len(kept)

    return sample


def calls(function: Any, first: Any) -> Callable[[], float]:
    begin = time.perf_counter()
    function(*first)
    count = max(1, int(SAMPLE_S / max(time.perf_counter() - begin, 1e-7)))

    def sample() -> float:
        begin = time.perf_counter()
        for _ in range(count):
            function(*first)
        return (time.perf_counter() - begin) * 1e6 / count

    return sample


def serve(file: str, device: str, tree: str) -> None:
    """Do what each line of the standard input says: the name of a case to compile, or an empty one for a sample."""
    import torch._inductor.config as inductor_config

    import halide_backend

    assert Path(halide_backend.__file__).is_relative_to(tree), halide_backend.__file__
    inductor_config.force_disable_caches = True
    known = cases(file, device)
    answers, sys.stdout = sys.stdout, sys.stderr
    sample: Callable[[], float] = float
    for line in sys.stdin:
        answer: Any = None
        try:
            if name := line.strip():
                sample = float
                sample = prepared(known[name], device)
            else:
                answer = round(sample(), 3)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), file=answers, flush=True)


class Side:
    """A process of a checkout."""

    def __init__(self, tree: Path, file: Path, device: str, folder: str) -> None:
        caches = dict.fromkeys(("HALIDE_BACKEND_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"), folder)
        path = os.pathsep.join([str(tree), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", str(tree), "--cases", str(file), "--device", device],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **caches, "PYTHONPATH": path},
            cwd=folder,
            text=True,
        )

    def ask(self, line: str) -> None:
        _stream(self.process.stdin).write(line + "\n")
        _stream(self.process.stdin).flush()

    def answer(self) -> Any:
        line = _stream(self.process.stdout).readline()
        if not line:
            raise SystemExit(f"{self.process.args} ended with {self.process.wait()}")
        return json.loads(line)


def _stream(stream: Any) -> TextIO:
    assert stream is not None
    result: TextIO = stream
    return result


def measured(sides: dict[str, Side], name: str) -> dict[str, Any]:
    """Samples by side, or the error of a side that could not compile the case or was wrong."""
    for side in sides.values():
        side.ask(name)
    errors = {key: error for key, side in sides.items() if (error := side.answer())}
    if errors:
        return errors
    samples: dict[str, list[float]] = {key: [] for key in sides}
    for number in range(WARM_UP + ROUNDS):
        for key, side in sides.items():
            side.ask("")
            sample = side.answer()
            if number >= WARM_UP:
                samples[key].append(sample)
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, nargs="?")
    parser.add_argument("after", type=Path, nargs="?")
    parser.add_argument("--cases", type=Path, required=True, metavar="FILE")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="parts of the names of cases")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.cases, options.device, options.serve)
        return
    if options.before is None or options.after is None:
        parser.error("name two checkouts")
    before, after = options.before.resolve(), options.after.resolve()
    trees = {"before": before, "after": after, "control": after}
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        sides = {key: Side(tree, options.cases.resolve(), options.device, folder) for key, tree in trees.items()}
        chosen = [n for n in cases(options.cases, options.device) if any(part in n for part in options.only)]
        print(f"{'':44}{'before/after':>14}{'after/control':>15}")
        try:
            for name in chosen:
                found[name] = measured(sides, name)
                print(told(name, found[name]), flush=True)
        except KeyboardInterrupt:
            print(f"interrupted: {len(chosen) - len(found)} cases left out")
        for side in sides.values():
            _stream(side.process.stdin).close()
            side.process.wait()
    print(summary(found))
    if options.json:
        head = {key: tree.name for key, tree in trees.items()}
        options.json.write_text(
            json.dumps({"trees": head, "device": options.device, "samples": found}, indent=1) + "\n"
        )


def ratios(samples: dict[str, Any]) -> tuple[float, float] | None:
    """BEFORE's time over AFTER's, and AFTER's over the control's; None where there is an error."""
    if any(isinstance(each, str) for each in samples.values()):
        return None
    middle = {key: statistics.median(values) for key, values in samples.items()}
    return middle["before"] / middle["after"], middle["after"] / middle["control"]


def told(name: str, samples: dict[str, Any]) -> str:
    both = ratios(samples)
    return f"{name:44}{both[0]:14.3f}{both[1]:15.3f}" if both else f"{name:44}  {samples}"


def summary(found: dict[str, dict[str, Any]]) -> str:
    both = [each for samples in found.values() if (each := ratios(samples))]
    lines = [f"{len(both)} of {len(found)} cases compiled and right"]
    for number, what in enumerate(("before/after", "after/control")):
        values = sorted(each[number] for each in both)
        mean = math.exp(statistics.fmean(map(math.log, values)))
        lines.append(
            f"{what}: geometric mean {mean:.3f}, from {values[0]:.3f} to {values[-1]:.3f}, "
            f"{sum(value < 0.97 for value in values)} below 0.97"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
