"""Models on a CPU, inference and training steps: this backend against Inductor's C++ backend and eager.

    python benchmarks/cpu_models.py [--only bert gpt2 ...] [--dtypes float32 bfloat16] [--out results.json]

Architectures of transformers (`pip install transformers`, which no other part of the project needs) with random
weights. Each is compiled for this backend, for it once more (the control) and for C++; the three take turns with eager.
Outputs and gradients are compared with those of float64, the generated code shows whose kernels each callable has, and
a profile whose ran. Ratios are of medians; above 1 this backend is faster. A training step is forward, mean of squares,
backward.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from halide_backend.bench.provenance import provenance
from halide_backend.inspection.compiled import Compiled, compile_for

#: Callable -> the backend that it is compiled for.
CONTESTANTS = {"halide": "halide_backend", "itself": "halide_backend", "cpp": "cpp", "eager": "eager"}

#: Largest error of outputs and gradients, relative to the largest value, against float64; in bfloat16 also this factor
#: times eager's.
BOUNDS = {torch.float32: 1e-3, torch.bfloat16: 0.05}
AGAINST_EAGER = 3.0

#: Fewest rounds, and seconds after which no round begins.
ROUNDS, SECONDS = 7, 6.0


class Output(nn.Module):
    """A model of transformers as a function from tensors to a tensor."""

    def __init__(self, model: nn.Module, name: str = "last_hidden_state") -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(self, *inputs: Tensor) -> Tensor:
        return getattr(self.model(*inputs), self.name)  # type: ignore[no-any-return]


def tokens(*size: int) -> Tensor:
    return torch.randint(0, 1000, size)


def bert() -> tuple[nn.Module, tuple[Tensor, ...]]:
    config = transformers.BertConfig(
        hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048
    )
    return Output(transformers.BertModel(config, add_pooling_layer=False)), (tokens(4, 128),)


def gpt2() -> tuple[nn.Module, tuple[Tensor, ...]]:
    config = transformers.GPT2Config(n_embd=512, n_layer=4, n_head=8, vocab_size=8192, use_cache=False)
    return Output(transformers.GPT2LMHeadModel(config), "logits"), (tokens(4, 128),)


def llama() -> tuple[nn.Module, tuple[Tensor, ...]]:
    config = transformers.LlamaConfig(
        hidden_size=512, intermediate_size=1408, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4,
        vocab_size=8192, use_cache=False,
    )  # fmt: skip
    return Output(transformers.LlamaForCausalLM(config), "logits"), (tokens(4, 128),)


def t5() -> tuple[nn.Module, tuple[Tensor, ...]]:
    config = transformers.T5Config(d_model=512, d_ff=1024, d_kv=64, num_layers=4, num_heads=8, use_cache=False)
    return Output(transformers.T5EncoderModel(config)), (tokens(4, 128),)


def vit() -> tuple[nn.Module, tuple[Tensor, ...]]:
    config = transformers.ViTConfig(hidden_size=384, num_hidden_layers=4, num_attention_heads=6, intermediate_size=1536)
    return Output(transformers.ViTModel(config, add_pooling_layer=False)), (torch.randn(2, 3, 224, 224),)


def whisper() -> tuple[nn.Module, tuple[Tensor, ...]]:
    config = transformers.WhisperConfig(d_model=384, encoder_layers=2, encoder_attention_heads=6, encoder_ffn_dim=1536)
    encoder = transformers.models.whisper.modeling_whisper.WhisperEncoder(config)
    return Output(encoder), (torch.randn(1, 80, 3000),)


def convnext() -> tuple[nn.Module, tuple[Tensor, ...]]:
    config = transformers.ConvNextConfig(depths=[2, 2, 3, 2], hidden_sizes=[64, 128, 256, 512])
    return Output(transformers.ConvNextModel(config)), (torch.randn(4, 3, 128, 128),)


def resnet() -> tuple[nn.Module, tuple[Tensor, ...]]:
    config = transformers.ResNetConfig(depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512], layer_type="basic")
    return Output(transformers.ResNetModel(config)), (torch.randn(4, 3, 128, 128),)


def efficientnet() -> tuple[nn.Module, tuple[Tensor, ...]]:
    # With weights as small as the default's, 0.02, values vanish on their way: outputs are 0.
    config = transformers.EfficientNetConfig(
        width_coefficient=1.0, depth_coefficient=0.5, hidden_dim=1280, image_size=128, drop_connect_rate=0.0,
        initializer_range=0.5,
    )  # fmt: skip
    return Output(transformers.EfficientNetModel(config)), (torch.randn(4, 3, 128, 128),)


MODELS = {each.__name__: each for each in (bert, gpt2, llama, t5, vit, whisper, convnext, resnet, efficientnet)}


def step_of(
    call: Callable[..., Tensor], model: nn.Module, inputs: tuple[Tensor, ...], training: bool
) -> Callable[[], Tensor]:
    def infer() -> Tensor:
        with torch.no_grad():
            return call(*inputs)

    def train() -> Tensor:
        model.zero_grad()
        output = call(*inputs)
        output.float().square().mean().backward()
        return output.detach()

    return train if training else infer


def values(step: Callable[[], Tensor], model: nn.Module, training: bool) -> list[Tensor]:
    """Output and, of training, all gradients in one tensor, in float64."""
    output = step().double()
    gradients = [each.grad.flatten().double() for each in model.parameters() if training and each.grad is not None]
    return [output, torch.cat(gradients)] if gradients else [output]


def prepared(name: str, dtype: torch.dtype, training: bool) -> tuple[nn.Module, tuple[Tensor, ...], list[Tensor]]:
    """A model in `dtype` without dropout (batch norm trains), its inputs, and the values of a step in float64."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model = model.train(training)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    wide = copy.deepcopy(model).double()
    wanted = values(step_of(wide, wide, widened(inputs, torch.float64), training), wide, training)
    model.to(dtype)
    return model, widened(inputs, dtype), wanted


def errors_of(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> list[float]:
    """The largest error of each tensor, relative to its largest value."""
    return [float((f - w).abs().max() / w.abs().max()) for f, w in zip(found, wanted, strict=True)]


def is_right(errors: Sequence[float], of_eager: Sequence[float], dtype: torch.dtype) -> bool:
    """Whether the errors of a step are within the bounds of its type, or near eager's."""
    bounds = (max(BOUNDS[dtype], AGAINST_EAGER * each) for each in of_eager)
    return all(error <= bound for error, bound in zip(errors, bounds, strict=True))


def trial(name: str, dtype: torch.dtype, training: bool) -> dict[str, Any]:
    model, inputs, wanted = prepared(name, dtype, training)
    state = copy.deepcopy(model.state_dict())
    compiled: dict[str, Compiled] = {}
    steps, errors, compile_s = {}, {}, {}
    for contestant, backend in CONTESTANTS.items():
        model.load_state_dict(state)
        compiled[contestant] = compile_for(backend, model)
        steps[contestant] = step_of(compiled[contestant].call, model, inputs, training)
        begin = time.perf_counter()
        got = values(steps[contestant], model, training)
        compile_s[contestant] = time.perf_counter() - begin
        errors[contestant] = errors_of(got, wanted)
        compiled[contestant].check_code()
    right = {contestant: is_right(each, errors["eager"], dtype) for contestant, each in errors.items()}
    ran = {each: dict(compiled[each].check_run(steps[each])) for each in ("halide", "itself", "cpp")}
    samples = alternate(steps)
    medians = {each: statistics.median(times) for each, times in samples.items()}
    return {
        "model": name,
        "dtype": str(dtype).removeprefix("torch."),
        "training": training,
        "right": right,
        "errors": errors,
        "against_cpp": medians["cpp"] / medians["halide"],
        "against_eager": medians["eager"] / medians["halide"],
        "control": medians["itself"] / medians["halide"],
        "compile_s": compile_s,
        "kernels": {each: dict(compiled[each].kernels()) for each in compiled},
        "onednn_products": sum(code.count("mkldnn._linear_pointwise.default(") for code in compiled["halide"].codes),
        "ran": ran,
        "samples_ms": samples,
    }


def widened(inputs: tuple[Tensor, ...], dtype: torch.dtype) -> tuple[Tensor, ...]:
    return tuple(each.to(dtype) if each.is_floating_point() else each for each in inputs)


def alternate(steps: dict[str, Callable[[], Tensor]]) -> dict[str, list[float]]:
    """Milliseconds of each, in turns whose order is reversed every time."""
    samples: dict[str, list[float]] = {name: [] for name in steps}
    order = list(steps)
    for name in order:
        steps[name]()
    end = time.perf_counter() + SECONDS
    rounds = 0
    while rounds < ROUNDS or time.perf_counter() < end:
        for name in order:
            begin = time.perf_counter()
            steps[name]()
            samples[name].append(round((time.perf_counter() - begin) * 1e3, 3))
        order.reverse()
        rounds += 1
    return samples


def add_result(path: Path, facts: dict[str, Any], found: dict[str, Any]) -> None:
    """Add a trial to those that a file of results holds, with the command that it comes from."""
    kept = json.loads(path.read_text())["trials"] if path.exists() else []
    results = {"machine": facts, "trials": [*kept, {"command": facts["command"], **found}]}
    path.write_text(json.dumps(results) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--dtypes", nargs="*", choices=("float32", "bfloat16"), default=["float32"])
    parser.add_argument("--modes", nargs="*", choices=("inference", "training"), default=["inference", "training"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="results are added to those that the file holds")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    facts = {**provenance("cpu"), "transformers": transformers.__version__}
    for name in asked.only:
        for dtype in asked.dtypes:
            for mode in asked.modes:
                found = trial(name, getattr(torch, dtype), mode == "training")
                wrong = [each for each, right in found["right"].items() if not right]
                print(
                    f"{name} {dtype} {mode}: C++ {found['against_cpp']:.3f} eager {found['against_eager']:.3f} "
                    f"control {found['control']:.3f} wrong {wrong or 'nobody'} oneDNN {found['onednn_products']} "
                    f"{ {each: round(statistics.median(times), 1) for each, times in found['samples_ms'].items()} } ms",
                    flush=True,
                )
                if asked.out:
                    add_result(asked.out, facts, found)


if __name__ == "__main__":
    main()
