"""Models on a GPU, inference and training steps, default mode and reduce-overhead: this backend against Triton.

    python benchmarks/gpu_models.py [--only bert gpt2 ...] [--dtypes float32 bfloat16] [--compile-modes ...]
                                    [--candidates N] [--jobs 12] [--out results.json]

Architectures of transformers (`pip install transformers`, which no other part of the project needs) with random
weights. Outputs and gradients are compared with those of float64. A profile shows what ran: the device's time in the
kernels that either backend wrote, and in all others. Ratios are of medians of steps that end with a synchronisation;
the backends take turns. A training step is forward, mean of squares, backward. float32 products are TF32. Where
products are tuned, templates are counted, which are Triton's in both; `--candidates` limits what is tried for each, and
leaves out the search from neighbour to neighbour around the best one, which compiles one kernel after another.

`--jobs` processes compile at once, each a model; then they measure one after another, when none compiles.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import multiprocessing
import os
import statistics
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from multiprocessing.synchronize import Barrier, Lock
from pathlib import Path
from typing import Any

import torch
import transformers
from cpu_models import AGAINST_EAGER, Output, step_of, tokens, values, widened
from torch import Tensor, nn
from torch._inductor import config as inductor_config

import halide_backend
from halide_backend.bench.provenance import provenance
from halide_backend.inspection.compiled import Compiled, compile_for

BACKENDS = ("triton", "halide_backend")
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

#: Largest error of outputs and gradients, relative to the largest value, against float64; also a factor of eager's.
BOUNDS = {torch.float32: 5e-3, torch.bfloat16: 0.05}

#: Fewest rounds, and seconds after which no round begins.
ROUNDS, SECONDS = 15, 1.0

#: Seconds that a batch of models may compile.
PATIENCE = 420.0

Made = tuple[nn.Module, tuple[Tensor, ...]]


def bert() -> Made:
    config = transformers.BertConfig(num_hidden_layers=4)
    return Output(transformers.BertModel(config, add_pooling_layer=False)), (tokens(16, 384),)


def gpt2() -> Made:
    config = transformers.GPT2Config(n_layer=4, vocab_size=8192, use_cache=False)
    return Output(transformers.GPT2LMHeadModel(config), "logits"), (tokens(8, 512),)


def llama() -> Made:
    config = transformers.LlamaConfig(
        hidden_size=1024, intermediate_size=2816, num_hidden_layers=4, num_attention_heads=16, num_key_value_heads=8,
        vocab_size=8192, use_cache=False,
    )  # fmt: skip
    return Output(transformers.LlamaForCausalLM(config), "logits"), (tokens(4, 1024),)


def t5() -> Made:
    config = transformers.T5Config(d_model=512, num_layers=3, use_cache=False)
    return Pair(transformers.T5Model(config)), (tokens(8, 512), tokens(8, 128))


def bart() -> Made:
    config = transformers.BartConfig(
        d_model=768, encoder_layers=2, decoder_layers=2, encoder_attention_heads=12, decoder_attention_heads=12,
        encoder_ffn_dim=3072, decoder_ffn_dim=3072, vocab_size=8192, use_cache=False, dropout=0.0,
    )  # fmt: skip
    return Pair(transformers.BartModel(config)), (tokens(8, 512), tokens(8, 128))


def vit() -> Made:
    config = transformers.ViTConfig(num_hidden_layers=4)
    return Output(transformers.ViTModel(config, add_pooling_layer=False)), (torch.randn(32, 3, 224, 224),)


def swin() -> Made:
    config = transformers.SwinConfig(depths=[2, 2, 2, 2], drop_path_rate=0.0)
    return Output(transformers.SwinModel(config, add_pooling_layer=False)), (torch.randn(16, 3, 224, 224),)


def whisper() -> Made:
    config = transformers.WhisperConfig(d_model=512, encoder_layers=3, encoder_attention_heads=8)
    encoder = transformers.models.whisper.modeling_whisper.WhisperEncoder(config)
    return Output(encoder), (torch.randn(4, 80, 3000),)


def wav2vec2() -> Made:
    config = transformers.Wav2Vec2Config(
        num_hidden_layers=4, layerdrop=0.0, apply_spec_augment=False, attention_dropout=0.0
    )
    return Output(transformers.Wav2Vec2Model(config)), (torch.randn(4, 80000),)


def convnext() -> Made:
    return Output(transformers.ConvNextModel(transformers.ConvNextConfig())), (torch.randn(16, 3, 224, 224),)


def resnet() -> Made:
    return Output(transformers.ResNetModel(transformers.ResNetConfig())), (torch.randn(16, 3, 224, 224),)


def efficientnet() -> Made:
    # With weights as small as the default's, 0.02, values vanish on their way: outputs are 0.
    config = transformers.EfficientNetConfig(
        width_coefficient=1.0, depth_coefficient=0.5, hidden_dim=1280, image_size=224, drop_connect_rate=0.0,
        initializer_range=0.5,
    )  # fmt: skip
    return Output(transformers.EfficientNetModel(config)), (torch.randn(16, 3, 224, 224),)


class Pair(Output):
    """A text-to-text model as a function from the tokens of both sides."""

    def forward(self, read: Tensor, written: Tensor) -> Tensor:
        return getattr(self.model(input_ids=read, decoder_input_ids=written), self.name)  # type: ignore[no-any-return]


MODELS = {
    each.__name__: each
    for each in (bert, gpt2, llama, t5, bart, vit, swin, whisper, wav2vec2, convnext, resnet, efficientnet)
}


def options_of(mode: str, candidates: int) -> dict[str, Any]:
    """Inductor's options for a mode; with a number of candidates only these are tried."""
    options = dict(torch._inductor.list_mode_options(mode))
    return {**options, "coordinate_descent_tuning": False} if candidates else options


def compiled_steps(name: str, dtype: torch.dtype, training: bool, modes: list[str], candidates: int) -> dict[str, Any]:
    """Steps by mode and backend, compiled and compared with float64, and what is known of them."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model, inputs = model.cuda().train(training), tuple(each.cuda() for each in inputs)
    # Batch norm trains, but nothing is dropped.
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    state = copy.deepcopy(model.state_dict())
    wide = copy.deepcopy(model).double()
    wanted = values(step_of(wide, wide, widened(inputs, torch.float64), training), wide, training)
    del wide
    model.to(dtype)
    inputs = widened(inputs, dtype)

    def errors_of(step: Callable[[], Tensor]) -> list[float]:
        model.load_state_dict(state)
        got = values(step, model, training)
        return [float((g - w).abs().max() / w.abs().max()) for g, w in zip(got, wanted, strict=True)]

    eager = errors_of(step_of(model, model, inputs, training))
    steps: dict[str, dict[str, Callable[[], Tensor]]] = {}
    facts: dict[str, dict[str, Any]] = {}
    for mode in modes:
        steps[mode], facts[mode] = {}, {}
        for backend in BACKENDS:
            halide_backend.reset_stats()
            compiled = compile_for(backend, model, options=options_of(mode, candidates))
            step = in_turn(step_of(compiled.call, model, inputs, training))
            begin = time.perf_counter()
            errors = errors_of(step)
            seconds = time.perf_counter() - begin
            for _ in range(3):  # CUDA graphs are recorded by the second call or the third.
                step()
            compiled.check_code()
            steps[mode][backend] = step
            facts[mode][backend] = {
                "errors": errors,
                "right": all(e <= max(BOUNDS[dtype], AGAINST_EAGER * o) for e, o in zip(errors, eager, strict=True)),
                "compile_s": round(seconds, 2),
                "kernels": dict(compiled.kernels()),
                "delegated": halide_backend.stats()["delegation_reasons"],
                "templates": halide_backend.stats()["delegated_templates"],
                "compiled": compiled,
            }
    return {"steps": steps, "facts": facts, "eager": eager}


def in_turn(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """A step whose results are gone when the next one begins, as CUDA graphs want it."""

    def begun() -> Tensor:
        torch.compiler.cudagraph_mark_step_begin()
        return step()

    return begun


def profiled(step: Callable[[], Tensor]) -> dict[str, float]:
    """Microseconds of the device in a step: those of each kernel that a backend wrote, and of all others together."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
        step()
        torch.cuda.synchronize()
    spent: Counter[str] = Counter()
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            spent[event.name if event.name.startswith(("halide_", "triton_")) else "others"] += event.device_time_total
    return {name: round(time, 2) for name, time in spent.items()}


def measured(steps: dict[str, Callable[[], Tensor]]) -> dict[str, list[float]]:
    """Milliseconds of each step, in turns whose order is reversed every time."""
    samples: dict[str, list[float]] = {backend: [] for backend in steps}
    order = list(steps)
    for backend in order:
        steps[backend]()
    end = time.perf_counter() + SECONDS
    while len(samples[order[0]]) < ROUNDS or time.perf_counter() < end:
        for backend in order:
            torch.cuda.synchronize()
            begin = time.perf_counter()
            steps[backend]()
            torch.cuda.synchronize()
            samples[backend].append(round((time.perf_counter() - begin) * 1e3, 4))
        order.reverse()
    return samples


def trial(
    name: str, dtype: str, training: bool, modes: list[str], candidates: int, ready: Barrier, turn: Lock, results: Any
) -> None:
    """Compile, wait until the others have, and measure."""
    torch.set_float32_matmul_precision("high")
    inductor_config.test_configs.max_mm_configs = candidates or None
    found: dict[str, Any] = {"model": name, "dtype": dtype, "training": training}
    prepared: dict[str, Any] = {}
    try:
        prepared = compiled_steps(name, getattr(torch, dtype), training, modes, candidates)
    except Exception as error:
        found["failed"] = f"{type(error).__name__}: {error}"
        traceback.print_exc()
    try:
        ready.wait(PATIENCE)
    except threading.BrokenBarrierError:
        found["others"] = "were still compiling"
    if prepared:
        found["eager_errors"] = prepared["eager"]
        with turn:
            for mode, steps in prepared["steps"].items():
                facts = prepared["facts"][mode]
                for backend, step in steps.items():
                    compiled: Compiled = facts[backend].pop("compiled")
                    facts[backend]["ran"] = dict(compiled.check_run(step))
                    facts[backend]["us"] = profiled(step)
                samples = measured(steps)
                medians = {backend: statistics.median(each) for backend, each in samples.items()}
                ratio = medians["triton"] / medians["halide_backend"]
                found[mode] = {"ratio": ratio, "ms": medians, "samples_ms": samples, "facts": facts}
    results.put(found)


def shown(found: dict[str, Any]) -> str:
    title = f"{found['model']} {found['dtype']} {'training' if found['training'] else 'inference'}"
    if "failed" in found:
        return f"{title}: {found['failed'][:300]}"
    lines = []
    for mode in (each for each in MODES if each in found):
        facts = found[mode]["facts"]
        own = [sum(us for name, us in facts[each]["us"].items() if name != "others") for each in BACKENDS]
        delegated = sum(facts["halide_backend"]["delegated"].values())
        wrong = [each for each in BACKENDS if not facts[each]["right"]]
        ms = found[mode]["ms"]
        lines.append(
            f"{title} {mode}: {found[mode]['ratio']:.3f} (Triton {ms['triton']:.3f} ms), generated kernels "
            f"{own[0] / own[1]:.3f} ({own[0]:.0f} us) wrong {wrong or 'nobody'} delegated {delegated} "
            f"templates {facts['halide_backend']['templates']} "
            f"compiled in {facts['halide_backend']['compile_s']} s, Triton {facts['triton']['compile_s']} s"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--dtypes", nargs="*", choices=("float32", "bfloat16"), default=["float32", "bfloat16"])
    parser.add_argument("--modes", nargs="*", choices=("inference", "training"), default=["inference", "training"])
    parser.add_argument("--compile-modes", nargs="*", choices=MODES, default=["default", "reduce-overhead"])
    parser.add_argument("--candidates", type=int, default=0, help="tried for each product that is tuned; 0 for all")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("it needs a GPU, and a torch with CUDA")
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "2")
    context = multiprocessing.get_context("spawn")
    tasks = [(name, dtype, mode == "training") for dtype in asked.dtypes for mode in asked.modes for name in asked.only]
    trials: list[dict[str, Any]] = []
    for first in range(0, len(tasks), asked.jobs):
        batch = tasks[first : first + asked.jobs]
        ready, turn, results = context.Barrier(len(batch)), context.Lock(), context.Queue()
        workers = [
            context.Process(target=trial, args=(*task, asked.compile_modes, asked.candidates, ready, turn, results))
            for task in batch
        ]
        for worker in workers:
            worker.start()
        for _ in batch:
            trials.append(results.get(timeout=PATIENCE + 150))
            print(shown(trials[-1]), flush=True)
            if asked.out:
                facts = {**provenance("cuda"), "transformers": transformers.__version__}
                asked.out.write_text(json.dumps({"machine": facts, "trials": trials}) + "\n")
        for worker in workers:
            worker.join()
    ratios = [each[mode]["ratio"] for each in trials for mode in MODES if mode in each]
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"{len(ratios)} ratios: geometric mean {mean:.3f}, lowest {min(ratios):.3f}")


if __name__ == "__main__":
    main()
