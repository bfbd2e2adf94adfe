"""Six models of Hugging Face's transformers as AOTInductor packages, beside those of Inductor's C++ backend.

    pip install transformers
    python benchmarks/packaged_models.py --json benchmarks/results/packaged-models.json

Weights are random, configurations small. Each model is exported once and packaged by both backends several times, in
turns and without caches; the last packages are loaded, in Python and by a C++ program that knows nothing of Python, and
compared with eager; then they run in turns, in one process. Ratios are the C++ backend's time over this backend's.
Controls: of packaging, the ratios of the C++ backend's times to the one before; of running, this backend's package
loaded once more.

With --folder packages are kept there, and made only if they are not there yet: to time on a quiet machine what was
packaged on a busy one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

import halide_backend
from halide_backend.inspection import machine

_PROGRAM = r"""
#include <torch/csrc/inductor/HEADER>
#include <torch/torch.h>
#include <cstdio>
#include <fstream>
#include <iterator>
// MODEL INPUTS WANTED: prints the largest difference, relative to the largest value
static std::vector<torch::Tensor> loaded(const char* name) {
  std::ifstream file(name, std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  return torch::pickle_load(bytes).toTensorVector();
}
int main(int, char** arguments) {
  c10::InferenceMode mode;
  torch::inductor::LOADER model(arguments[1]);
  auto got = model.run(loaded(arguments[2])), wanted = loaded(arguments[3]);
  if (got.size() != wanted.size()) return 1;
  double largest = 0;
  for (size_t k = 0; k < got.size(); k++)
    largest = std::max(largest, ((got[k] - wanted[k]).abs().max() / wanted[k].abs().max()).item<double>());
  printf("%.3g\n", largest);
}
"""


def program(header: str, loader: str) -> str:
    """A C++ program that runs a model with the class `loader` of `header`."""
    return _PROGRAM.replace("HEADER", header).replace("LOADER", loader)


class First(torch.nn.Module):
    """The first result of a model that returns a structure."""

    def __init__(self, model: Any, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Any) -> Any:
        return self.model(**dict(zip(self.names, inputs)), return_dict=False)[0]


def models() -> dict[str, Callable[[], tuple[Any, dict[str, Any]]]]:
    """By kind: what makes the model, and its inputs by name."""
    import transformers as t

    def tokens(rows: int, length: int, words: int = 1000) -> Any:
        return torch.randint(0, words, (rows, length))

    small = {"vocab_size": 1000, "hidden_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2}
    return {
        "encoder (BERT)": lambda: (
            t.BertModel(t.BertConfig(**small, intermediate_size=512)),
            {"input_ids": tokens(2, 64)},
        ),
        "decoder (GPT-2)": lambda: (
            t.GPT2LMHeadModel(t.GPT2Config(vocab_size=1000, n_embd=128, n_layer=2, n_head=4, use_cache=False)),
            {"input_ids": tokens(2, 64)},
        ),
        "vision (ViT)": lambda: (
            t.ViTModel(
                t.ViTConfig(
                    hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512, image_size=64
                )
            ),
            {"pixel_values": torch.randn(2, 3, 64, 64)},
        ),
        "speech (Wav2Vec2)": lambda: (
            t.Wav2Vec2Model(t.Wav2Vec2Config(**{**small, "vocab_size": 32}, intermediate_size=256, conv_dim=(64,) * 7)),
            {"input_values": torch.randn(1, 8000)},
        ),
        "convolutional (ResNet)": lambda: (
            t.ResNetModel(t.ResNetConfig(embedding_size=32, hidden_sizes=[32, 64], depths=[1, 1], layer_type="basic")),
            {"pixel_values": torch.randn(2, 3, 64, 64)},
        ),
        "text-to-text (T5)": lambda: (
            t.T5ForConditionalGeneration(
                t.T5Config(vocab_size=1000, d_model=128, d_kv=32, d_ff=256, num_layers=2, num_heads=4, use_cache=False)
            ),
            {"input_ids": tokens(2, 32), "decoder_input_ids": tokens(2, 16)},
        ),
    }


def difference(got: Any, wanted: Any) -> float:
    """The largest one, relative to the largest value."""
    return float((got - wanted).abs().max() / wanted.abs().max())


def measured(
    kind: str,
    make: Callable[[], tuple[Any, dict[str, Any]]],
    program: Path,
    folder: Path,
    packagings: int,
    found: dict[str, Any],
) -> dict[str, Any]:
    """One model: times in seconds, ratios, differences from eager, kernels; in the place of what was `found` before."""
    torch.manual_seed(0)
    model, named = make()
    module, inputs = First(model.eval(), tuple(named)), tuple(named.values())
    with torch.no_grad():
        wanted = module(*inputs)
        exported = torch.export.export(module, inputs, strict=False)
    found = {**found, "python": {}, "cpp": {}}
    paths = {name: folder / f"{kind.partition(' ')[0]}.{name}.pt2" for name in ("cpp", "halide_backend")}
    if not all(path.exists() for path in paths.values()):
        warm_up()
        seconds: dict[str, list[float]] = {name: [] for name in paths}
        for _ in range(packagings):
            for backend, path in paths.items():
                halide_backend.reset_stats()
                seconds[backend].append(round(packaged(exported, backend, path), 2))
        counts = halide_backend.stats()
        found["native"], found["delegated"] = counts["native_kernels"], counts["delegated_kernels"]
        found["packaging_s"] = seconds
        found["packaging"] = {
            "cpp / ours": round(statistics.median(seconds["cpp"]) / statistics.median(seconds["halide_backend"]), 3),
            "cpp again / cpp": [round(b / a, 3) for a, b in pairwise(seconds["cpp"])],
        }
    packages = {name: torch._inductor.aoti_load_package(str(path)) for name, path in paths.items()}
    packages["halide_backend again"] = torch._inductor.aoti_load_package(str(paths["halide_backend"]))
    found["python"] = {name: difference(package(*inputs), wanted) for name, package in packages.items()}
    for file, tensors in (("inputs", list(inputs)), ("wanted", [wanted])):
        (folder / file).write_bytes(torch._C._pickle_save(tensors))
    for name, path in paths.items():
        run = [str(program), str(path), str(folder / "inputs"), str(folder / "wanted")]
        found["cpp"][name] = float(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
    found["run"] = ratios(packages, inputs)
    print(f"{kind}: {json.dumps(found)}", flush=True)
    assert max(*found["python"].values(), *found["cpp"].values()) < 1e-4
    return found


def packaged(exported: Any, backend: str, path: Path) -> float:
    """Make a package; returns seconds."""
    settings = {"cpu_backend": backend, "force_disable_caches": True}
    began = time.perf_counter()
    torch._inductor.aoti_compile_and_package(exported, package_path=str(path), inductor_configs=settings)
    return time.perf_counter() - began


@cache
def warm_up() -> None:
    """Let Inductor precompile its headers, which later packages share, and try the compiler out."""
    with torch.no_grad():
        exported = torch.export.export(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()), (torch.ones(2, 8),))
    with tempfile.TemporaryDirectory() as folder:
        for backend in ("cpp", "halide_backend"):
            packaged(exported, backend, Path(folder) / "first.pt2")


def ratios(packages: dict[str, Any], inputs: tuple[Any, ...], rounds: int = 60) -> dict[str, float]:
    """Medians of ratios of times in turns, each the sum of a few calls."""
    times: dict[str, list[float]] = {name: [] for name in packages}
    for _ in range(5):
        for package in packages.values():
            package(*inputs)
    for number in range(rounds):
        for name in list(packages) if number % 2 else list(packages)[::-1]:
            began = time.perf_counter()
            for _ in range(3):
                packages[name](*inputs)
            times[name].append(time.perf_counter() - began)
    ours = times["halide_backend"]
    return {
        "cpp / ours": round(statistics.median(a / b for a, b in zip(times["cpp"], ours)), 3),
        "ours again / ours": round(statistics.median(a / b for a, b in zip(times["halide_backend again"], ours)), 3),
    }


def build(folder: Path) -> Path:
    """The C++ program."""
    if (folder / "program").exists():
        return folder / "program"
    home = Path(torch.__file__).parent
    (folder / "program.cpp").write_text(program("aoti_package/model_package_loader.h", "AOTIModelPackageLoader"))
    include = [f"-I{home / 'include'}", f"-I{home / 'include/torch/csrc/api/include'}"]
    link = [f"-L{home / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{home / 'lib'}", "-pthread"]
    command = ["g++", "-std=c++20", "-O0", "program.cpp", "-o", "program", *include, *link]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "program"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="kinds that contain this text")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--packagings", type=int, default=2, help="by each backend (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="for packages; default: one that is removed at the end")
    parser.add_argument("--json", type=Path, required=True, help="results are kept and added to")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    found = json.loads(asked.json.read_text())["models"] if asked.json.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        program = build(folder)
        for kind, make in models().items():
            if asked.only in kind:
                found[kind] = measured(kind, make, program, folder, asked.packagings, found.get(kind, {}))
                facts = {**machine.facts(), "threads": asked.threads, "models": found}
                asked.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
