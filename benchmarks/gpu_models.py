"""A transformer on a GPU, training and inference, default mode and reduce-overhead: this backend against Triton.

    python benchmarks/gpu_models.py [--out results.json]

Milliseconds are medians of steps that end with a synchronisation; the backends take turns. The generated code and a
profile of a step of each show whose kernels run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import halide_backend
from halide_backend.bench.provenance import provenance
from halide_backend.inspection.compiled import Compiled, compile_for

BACKENDS = ("triton", "halide_backend")
WIDTH, HEADS, LAYERS, TOKENS, BATCH, WORDS = 768, 12, 6, 512, 16, 8192
STEPS = 15


class Block(torch.nn.Module):
    """Pre-norm attention and a gated feed-forward layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.mix, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 8 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        q, k, v = (t.view(batch, tokens, HEADS, -1).transpose(1, 2) for t in self.mix(self.norm1(x)).chunk(3, -1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, WIDTH))
        gate, value = self.up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * value)


class Model(torch.nn.Module):
    """A language model without its tokenizer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        self.blocks = torch.nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.head = torch.nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.words(tokens))))  # type: ignore[no-any-return]


def trial(mode: str, training: bool, backend: str) -> tuple[Callable[[], float], Compiled, dict[str, Any]]:
    """A step that returns its loss, compiled and warm, its compiled model, and what is known of its kernels."""
    torch.manual_seed(0)
    halide_backend.reset_stats()
    model = Model().cuda()
    tokens = torch.randint(0, WORDS, (BATCH, TOKENS), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    compiled = compile_for(backend, model, options=torch._inductor.list_mode_options(mode))

    def step() -> float:
        with torch.autocast("cuda", torch.bfloat16), torch.set_grad_enabled(training):
            logits = compiled.call(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens.roll(-1, 1).flatten())
        if training:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return float(loss)

    begin = time.perf_counter()
    losses = [step() for _ in range(6)]
    stats = halide_backend.stats()
    compiled.check_code()
    facts = {
        "warm_up_s": round(time.perf_counter() - begin, 2),
        "losses": losses,
        "native": stats["native_kernels"],
        "delegated": stats["delegation_reasons"],
        "kernels": dict(compiled.kernels()),
    }
    return step, compiled, facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results = []
    for training in (False, True):
        for mode in ("default", "reduce-overhead"):
            trials = {backend: trial(mode, training, backend) for backend in BACKENDS}
            ran = {backend: compiled.check_run(step) for backend, (step, compiled, _) in trials.items()}
            samples: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
            for _ in range(STEPS):
                for backend, (step, _, _) in trials.items():
                    torch.cuda.synchronize()
                    begin = time.perf_counter()
                    step()
                    torch.cuda.synchronize()
                    samples[backend].append((time.perf_counter() - begin) * 1e3)
            medians = {backend: statistics.median(each) for backend, each in samples.items()}
            ratio = medians["triton"] / medians["halide_backend"]
            facts = {backend: {**known, "ran": ran[backend]} for backend, (_, _, known) in trials.items()}
            results.append(
                {"training": training, "mode": mode, "ms": medians, "ratio": ratio, "samples": samples, "facts": facts}
            )
            print(f"training={training} {mode}: {medians} ratio {ratio:.3f} {facts['halide_backend']}", flush=True)
            print(f"    triton {facts['triton']}", flush=True)
    if options.out:
        options.out.write_text(json.dumps({"machine": provenance("cuda"), "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
