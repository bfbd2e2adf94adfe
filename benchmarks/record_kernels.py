"""The kernels of models, for `halide-backend bench --recorded FILE`: every fused kernel, as a function of its own.

    python benchmarks/record_kernels.py FILE [--only bert gpt2 ...] [--dtypes float32 bfloat16]

Compiles the architectures of benchmarks/cpu_models.py for this backend, inference and training, and takes what each
kernel computes (`halide_backend/bench/recorder.py`). Tells which kernels it has to leave out.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import torch
from cpu_models import MODELS, step_of, widened

from halide_backend.bench.recorded import write
from halide_backend.bench.recorder import Recorder
from halide_backend.inspection.compiled import compile_for


def run(name: str, dtype: torch.dtype, training: bool) -> None:
    """Compile one model, and run it once."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model.train(training).to(dtype)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    step_of(compile_for("halide_backend", model).call, model, widened(inputs, dtype), training)()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help='compressed if its name ends in ".gz"')
    parser.add_argument("--only", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--dtypes", nargs="*", choices=("float32", "bfloat16"), default=["float32"])
    parser.add_argument("--modes", nargs="*", choices=("inference", "training"), default=["inference", "training"])
    asked = parser.parse_args()
    recorder = Recorder()
    for name in asked.only:
        for dtype in asked.dtypes:
            for mode in asked.modes:
                before, recorder.model, recorder.left_out = len(recorder.kernels), f"{name}_{mode}", Counter()
                with recorder:
                    run(name, getattr(torch, dtype), mode == "training")
                new = len(recorder.kernels) - before
                print(f"{name} {dtype} {mode}: {new} new kernels, left out: {dict(recorder.left_out)}", flush=True)
    write(recorder.kernels.values(), asked.file)
    print(f"{len(recorder.kernels)} kernels")


if __name__ == "__main__":
    main()
