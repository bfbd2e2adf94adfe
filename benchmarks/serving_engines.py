"""Inference of models on a CPU with freezing, against OpenVINO and ONNX Runtime.

    python -m venv .engines && .engines/bin/pip install torch==2.13.0 transformers openvino onnxruntime onnxscript .
    .engines/bin/python benchmarks/serving_engines.py [--only bert vit ...] [--threads 2] [--out results.json]

The architectures of `cpu_models.py`, float32, random weights. This backend and Inductor's C++ backend compile with
`torch._inductor.config.freezing`, and the generated code shows that weights became constants; OpenVINO and ONNX Runtime
get the model as torch.onnx exports it, with the same number of threads, float32 asked for, and latency as their aim.
All take turns, this backend a second time as the control. Outputs are compared with those of float64. Ratios are of
medians; above 1 this backend is faster. Afterwards calls of this backend and of OpenVINO are profiled: the time of each
kind of operator says where they differ.
"""

from __future__ import annotations

import argparse
import copy
import re
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnxruntime
import openvino
import torch
import transformers
from cpu_models import BOUNDS, MODELS, add_result, alternate, widened
from torch import Tensor, nn
from torch._inductor import config

from halide_backend.bench.provenance import provenance
from halide_backend.inspection.compiled import Compiled, compile_for

#: Those that `torch.compile` makes, and the backend that each is compiled for.
COMPILED = {"halide": "halide_backend", "itself": "halide_backend", "cpp": "cpp"}
ENGINES = ("openvino", "onnxruntime")

#: Calls that are profiled, and how many kinds of operators are kept.
PROFILED, KINDS = 5, 12


def exported(model: nn.Module, inputs: tuple[Tensor, ...], folder: str) -> str:
    """Path of the model as ONNX."""
    path = f"{folder}/model.onnx"
    torch.onnx.export(model, inputs, path, dynamo=True, verbose=False)
    return path


def request_of_openvino(path: str, threads: int, profiled: bool = False) -> openvino.InferRequest:
    engine = openvino.Core().compile_model(
        path,
        "CPU",
        {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": "f32",
            "ENABLE_CPU_PINNING": False,
            "PERF_COUNT": profiled,
        },
    )
    return engine.create_infer_request()


def in_openvino(path: str, inputs: tuple[Tensor, ...], threads: int) -> Callable[[], Tensor]:
    request, arrays = request_of_openvino(path, threads), [each.numpy() for each in inputs]
    return lambda: torch.from_numpy(request.infer(arrays, share_inputs=True, share_outputs=True)[0])


def in_onnxruntime(path: str, inputs: tuple[Tensor, ...], threads: int) -> Callable[[], Tensor]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = {each.name: value.numpy() for each, value in zip(session.get_inputs(), inputs, strict=True)}
    return lambda: torch.from_numpy(session.run(None, given)[0])


def operators_of_openvino(path: str, inputs: tuple[Tensor, ...], threads: int) -> dict[str, float]:
    """Milliseconds of a call, by operator and what computes it."""
    request, arrays = request_of_openvino(path, threads, profiled=True), [each.numpy() for each in inputs]
    spent: Counter[str] = Counter()
    for _ in range(PROFILED):
        request.infer(arrays)
        for node in request.profiling_info:
            spent[f"{node.node_type} {node.exec_type}"] += node.real_time.total_seconds() * 1e3 / PROFILED
    return longest(spent)


def operators_of_torch(step: Callable[[], Tensor]) -> dict[str, float]:
    """Milliseconds of a call, by operator or kernel, without what it calls."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(PROFILED):
            step()
    return longest({each.key: each.self_cpu_time_total / 1e3 / PROFILED for each in profile.key_averages()})


def longest(spent: Mapping[str, float]) -> dict[str, float]:
    """The operators that take longest, and the sum of all."""
    ranked = sorted(spent.items(), key=lambda each: -each[1])[:KINDS]
    return {name: round(time, 3) for name, time in (*ranked, ("all", sum(spent.values())))}


def constants(found: Compiled) -> int:
    """Number of weights that `freezing` made constants of the generated code.

    Raises:
        RuntimeError: none, so that what was timed is not what its name says.
    """
    names = {name for code in found.codes for name in re.findall(r"\b_(?:frozen_param|packed_weight)\d+", code)}
    if not names:
        raise RuntimeError(f"the code for {found.backend} takes its weights as arguments")
    return len(names)


def trial(name: str, threads: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model.eval()
    # Not as an option of each callable: Dynamo asks for it before Inductor sees that one's options, and hands over
    # weights as arguments otherwise, which nothing packs or folds.
    with torch.no_grad(), config.patch(freezing=True), tempfile.TemporaryDirectory() as folder:
        wanted = copy.deepcopy(model).double()(*widened(inputs, torch.float64))
        compiled = {each: compile_for(COMPILED[each], model) for each in COMPILED}
        steps: dict[str, Callable[[], Tensor]] = {
            each: (lambda call=found.call: call(*inputs)) for each, found in compiled.items()
        }
        path = exported(model, inputs, folder)
        steps["openvino"] = in_openvino(path, inputs, threads)
        steps["onnxruntime"] = in_onnxruntime(path, inputs, threads)
        errors = {
            each: float((run().double() - wanted).abs().max() / wanted.abs().max()) for each, run in steps.items()
        }
        weights = {each: constants(found) for each, found in compiled.items()}
        ran = {each: dict(found.check_run(steps[each])) for each, found in compiled.items()}
        # An engine does not look whether its model is still the same; with this switch, which is for serving, neither
        # does Dynamo, whose guards of a model take 0.3 to 0.5 ms.
        with torch.compiler.set_stance("default", skip_guard_eval_unsafe=True):
            samples = alternate(steps)
        operators = {
            "halide": operators_of_torch(steps["halide"]),
            "openvino": operators_of_openvino(path, inputs, threads),
        }
    medians = {each: statistics.median(times) for each, times in samples.items()}
    return {
        "model": name,
        "threads": threads,
        "right": {each: error <= BOUNDS[torch.float32] for each, error in errors.items()},
        "errors": errors,
        "ratios": {each: medians[each] / medians["halide"] for each in steps if each != "halide"},
        "against_faster_engine": min(medians[each] for each in ENGINES) / medians["halide"],
        "constants": weights,
        "kernels": {each: dict(found.kernels()) for each, found in compiled.items()},
        "ran": ran,
        "samples_ms": samples,
        "operators_ms": operators,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="results are added to those that the file holds")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    versions = {each.__name__: each.__version__ for each in (transformers, openvino, onnxruntime)}
    facts = {**provenance("cpu"), **versions}
    for name in asked.only:
        found = trial(name, asked.threads)
        ratios = " ".join(f"{each} {ratio:.3f}" for each, ratio in found["ratios"].items())
        print(f"{name} {asked.threads} threads: {ratios} right {found['right']}", flush=True)
        if asked.out:
            add_result(asked.out, facts, found)


if __name__ == "__main__":
    main()
