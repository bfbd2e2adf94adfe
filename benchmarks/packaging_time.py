"""How long a package takes that is made without a compiler, beside Inductor's own, with cold caches.

    python benchmarks/packaging_time.py --rounds 3 --json benchmarks/results/packaging-time.json

Each package is made in a process of its own, the two in turns, and by stock twice in each round: the ratio of those is
the control. Importing torch and exporting the model are not counted. The packages are loaded and compared with eager.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from halide_backend.bench.provenance import provenance

PROGRAM = """
import sys, time, torch
from torch import nn
import halide_backend, torch._inductor.compile_fx
import halide_backend.packages.bytecode.make
torch.manual_seed(0)
torch.set_grad_enabled(False)
model = nn.Sequential(nn.Linear(64, 256), nn.LayerNorm(256), nn.GELU(), nn.Linear(256, 64), nn.Softmax(-1)).eval()
x = torch.randn(8, 64)
exported = torch.export.export(model, (x,))
begin = time.perf_counter()
if sys.argv[1] == "bytecode":
    halide_backend.package_without_compiler(exported, "model.pt2")
else:
    torch._inductor.aoti_compile_and_package(exported, package_path="model.pt2")
seconds = time.perf_counter() - begin
torch.testing.assert_close(torch._inductor.aoti_load_package("model.pt2")(x), model(x))
native = halide_backend.stats()["native_kernels"]
assert (native > 0) == (sys.argv[1] == "bytecode"), native
print("SECONDS", seconds)
"""


def seconds(kind: str) -> float:
    """The time in which one package is made by a new process."""
    with tempfile.TemporaryDirectory() as folder:
        caches = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "HALIDE_BACKEND_CACHE_DIR": f"{folder}/kernels"}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, kind],
            cwd=folder,
            env={**os.environ, **caches},
            capture_output=True,
            text=True,
            check=True,
        )
    return float(done.stdout.split("SECONDS")[1])


def main() -> None:
    """Measure, and print the ratios as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args()
    samples: dict[str, list[float]] = {"stock": [], "bytecode": [], "stock again": []}
    for _ in range(options.rounds):
        for side, found in samples.items():
            found.append(seconds(side.split()[0]))
    stock, own, again = samples.values()
    ratios = [a / b for a, b in zip(stock, own)]
    result = {
        "stock over bytecode": statistics.median(stock) / statistics.median(own),
        "range": [min(ratios), max(ratios)],
        "control, stock over stock": statistics.median(stock) / statistics.median(again),
        "seconds": samples,
        **provenance("cpu"),
    }
    text = json.dumps(result, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
