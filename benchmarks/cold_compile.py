"""Whether a change makes compilation slower: what two checkouts need to compile the same things, in turns.

    python benchmarks/cold_compile.py BEFORE AFTER [--device cpu|cuda] [--rounds N] [--together] [--only MODEL ...]
        [--json FILE]

BEFORE and AFTER are checkouts whose native extensions are built in place. Every figure is the first call of fresh
processes without caches: for a CPU the demo's models, each in a process of its own; for a GPU one process that compiles
the functions of `functions()` one after another. The order of the two alternates from round to round, and a third turn
of each round, AFTER once more, is the control. With `--together` the three turns of a round run at the same time, each
on a third of the cores, another one every round: what else happens on the machine then meets all of them. Ratios are
medians over the rounds, AFTER's time over BEFORE's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

BACKEND = "halide_backend"
#: The demo's models, by their names in its table.
MODELS = ("gpt inference", "gpt training", "cnn training", "image pipeline")


def functions() -> dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]]:
    """What is compiled for a GPU: a function, and the shapes of its operands."""
    import torch
    import torch.nn.functional as F

    def rms_norm(x: Any, w: Any) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w

    def cross_entropy(x: Any) -> Any:
        return F.cross_entropy(x, torch.zeros(x.shape[0], dtype=torch.long, device=x.device))

    def rope(x: Any, c: Any, s: Any) -> Any:
        low, high = x.chunk(2, -1)
        return x * c + torch.cat((-high, low), -1) * s

    square = (1024, 1024)
    return {
        "gelu": (lambda x: F.gelu(x), [square]),
        "add_relu": (lambda x, y: torch.relu(x + y), [square, square]),
        "softmax": (lambda x: torch.softmax(x, -1), [square]),
        "layer_norm": (lambda x, w, b: F.layer_norm(x, (1024,), w, b), [square, (1024,), (1024,)]),
        "rms_norm": (rms_norm, [square, (1024,)]),
        "column_sum": (lambda x: x.sum(0), [square]),
        "full_sum": (lambda x: (x * x).sum(), [square]),
        "argmax": (lambda x: x.argmax(-1), [square]),
        "cumsum": (lambda x: x.cumsum(-1), [square]),
        "transpose_add": (lambda x, y: x.t() + y, [square, square]),
        "cross_entropy": (cross_entropy, [square]),
        "rope": (rope, [(4, 32, 256, 128), (256, 128), (256, 128)]),
        "max_pool": (lambda x: F.max_pool2d(x, 3, 2), [(8, 32, 64, 64)]),
        "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), [(16, 32, 28, 28)]),
    }


def session() -> dict[str, float]:
    """Seconds of the first call of each function, in this process."""
    import torch
    import torch._inductor.compile_fx

    import halide_backend

    found = {}
    for name, (function, shapes) in functions().items():
        operands = [torch.randn(*shape, device="cuda") for shape in shapes]
        begin = time.perf_counter()
        result = torch.compile(function, options={"cuda_backend": BACKEND})(*operands)
        torch.cuda.synchronize()
        found[name] = time.perf_counter() - begin
        torch.testing.assert_close(result, function(*operands), rtol=1e-3, atol=1e-3)
    stats = halide_backend.stats()
    if not stats["native_kernels"]:
        raise SystemExit(f"no kernel was this backend's: {stats}")
    return found


def measured(tree: Path, device: str, models: Sequence[str], cores: Collection[int]) -> dict[str, float]:
    """Seconds by name, with nothing compiled before, on some of the cores."""
    if device == "cuda":
        return _child(tree, [__file__, "--session"], "", cores)
    seconds = {}
    for row in models:
        with tempfile.TemporaryDirectory() as cache:
            task = {
                "kind": "start",
                "row": row,
                "caches": {BACKEND: cache},
                "quick": False,
                "audit": False,
                "pictures": "",
            }
            answer = _child(tree, ["-m", f"{BACKEND}.demonstration.session"], json.dumps(task), cores)
        seconds[row] = answer["result"]["seconds"]
    return seconds


def _child(tree: Path, command: list[str], given: str, cores: Collection[int]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as cache:
        caches = dict.fromkeys(("HALIDE_BACKEND_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"), cache)
        path = os.pathsep.join([str(tree), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(
            ["taskset", "-c", ",".join(map(str, cores)), sys.executable, *command],
            input=given,
            env={**os.environ, **caches, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            cwd=cache,
        )
    if done.returncode:
        raise SystemExit(f"{tree}: {' '.join(command)} failed:\n{done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, nargs="?")
    parser.add_argument("after", type=Path, nargs="?")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--together", action="store_true", help="all turns of a round at the same time; needs taskset")
    parser.add_argument("--only", nargs="+", choices=MODELS, default=MODELS, metavar="MODEL", help="some of the models")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--session", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.session:
        print(json.dumps(session()))
        return
    if options.before is None or options.after is None:
        parser.error("name two checkouts")
    if options.together and len(os.sched_getaffinity(0)) < 3:
        parser.error("three turns at the same time need three cores")
    trees = {"before": options.before.resolve(), "after": options.after.resolve(), "control": options.after.resolve()}
    for tree in {*trees.values()}:
        # As installed packages have it, whatever PYTHONDONTWRITEBYTECODE says: without, imports are 4 % of a session.
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(tree / BACKEND)], check=True)
    commits = {
        side: subprocess.check_output(["git", "-C", str(tree), "rev-parse", "--short", "HEAD"], text=True).strip()
        for side, tree in trees.items()
    }
    head = {"commits": commits, "machine": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    samples: dict[str, list[dict[str, float]]] = {side: [] for side in trees}
    for number in range(options.rounds):
        order = list(trees)[:: 1 if number % 2 == 0 else -1]
        for side, found in zip(order, _round([trees[side] for side in order], number, options)):
            samples[side].append(found)
            print(f"round {number + 1}, {side}: {sum(found.values()):.1f} s", file=sys.stderr, flush=True)
        rows = {name: {side: [each[name] for each in samples[side]] for side in trees} for name in found}
        if options.json:
            content = {**head, "device": options.device, "together": options.together, "seconds": rows}
            options.json.write_text(json.dumps(content, indent=1) + "\n")
    rows["all"] = {side: [sum(each.values()) for each in samples[side]] for side in trees}
    print(f"{'':18}{'after/before':>14}{'after/control':>15}")
    for name, row in rows.items():
        print(f"{name:18}{_ratio(row['after'], row['before']):14.3f}{_ratio(row['after'], row['control']):15.3f}")


def _round(order: Sequence[Path], number: int, options: argparse.Namespace) -> list[dict[str, float]]:
    """What each tree needs, in turns or at the same time."""
    cores = sorted(os.sched_getaffinity(0))
    if not options.together:
        return [measured(tree, options.device, options.only, cores) for tree in order]
    share = len(cores) // len(order)
    shares = [cores[n * share : (n + 1) * share] for n in range(len(order))]
    turned = shares[number % len(order) :] + shares[: number % len(order)]
    with ThreadPoolExecutor(len(order)) as threads:
        return list(threads.map(lambda tree, some: measured(tree, options.device, options.only, some), order, turned))


def _ratio(after: Sequence[float], other: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(after, other))


if __name__ == "__main__":
    main()
