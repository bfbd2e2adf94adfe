"""Inference of models on a CPU with freezing, against OpenVINO and ONNX Runtime.

    python -m venv .engines && .engines/bin/pip install torch==2.13.0 transformers openvino onnxruntime onnxscript .
    .engines/bin/python benchmarks/serving_engines.py [--only bert vit ...] [--threads 2] [--out results.json]

The architectures of `cpu_models.py`, float32, random weights. This backend and Inductor's C++ backend compile with
`torch._inductor.config.freezing`, and the generated code shows that weights became constants; OpenVINO and ONNX Runtime
get the model as torch.onnx exports it, with the same number of threads, float32 asked for, and latency as their aim.
Each has a process of its own, for the threads of one runtime spin for a while after its call, into the next one's; the
processes take turns, this backend in a second one as the control, and the first calls of a turn are not counted.
Outputs are compared with those of float64. Ratios are of medians; above 1 this backend is faster. Afterwards calls of
this backend and of OpenVINO are profiled: the time of each kind of operator says where they differ.
"""

from __future__ import annotations

import argparse
import copy
import multiprocessing
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import onnxruntime
import openvino
import torch
import transformers
from cpu_models import BOUNDS, MODELS, add_result, widened
from torch import Tensor, nn
from torch._inductor import config

from halide_backend.bench.provenance import provenance
from halide_backend.inspection.compiled import Compiled, compile_for

#: Those that `torch.compile` makes, and the backend that each is compiled for.
COMPILED = {"halide": "halide_backend", "itself": "halide_backend", "cpp": "cpp"}
ENGINES = ("openvino", "onnxruntime")

Step = Callable[[], Tensor]

#: Calls of a turn, besides those at first, in which others' data leave the caches; seconds before a turn, in which
#: others' threads fall asleep; fewest turns of each, and seconds after which no round of turns begins.
CALLS, LEFT_OUT, PAUSE, ROUNDS, SECONDS = 5, 2, 0.02, 7, 20.0

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


def in_openvino(path: str, inputs: tuple[Tensor, ...], threads: int) -> Step:
    request, arrays = request_of_openvino(path, threads), [each.numpy() for each in inputs]
    return lambda: torch.from_numpy(request.infer(arrays, share_inputs=True, share_outputs=True)[0])


def in_onnxruntime(path: str, inputs: tuple[Tensor, ...], threads: int) -> Step:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = {each.name: value.numpy() for each, value in zip(session.get_inputs(), inputs, strict=True)}
    return lambda: torch.from_numpy(session.run(None, given)[0])


def operators_of_openvino(path: str, inputs: tuple[Tensor, ...], threads: int) -> dict[str, float]:
    """Milliseconds of a call, by operator and what computes it."""
    request, arrays = request_of_openvino(path, threads, profiled=True), [each.numpy() for each in inputs]
    request.infer(arrays)  # packs weights
    packing = totals_of_openvino(request, 1)
    for _ in range(PROFILED):
        request.infer(arrays)
    spent = totals_of_openvino(request, PROFILED + 1)
    spent.subtract(packing)
    return longest({name: time / PROFILED for name, time in spent.items()})


def totals_of_openvino(request: openvino.InferRequest, calls: int) -> Counter[str]:
    """Milliseconds of all `calls` that a request has made: it tells their means."""
    spent: Counter[str] = Counter()
    for node in request.profiling_info:
        spent[f"{node.node_type} {node.exec_type}"] += node.real_time.total_seconds() * 1e3 * calls
    return spent


def operators_of_torch(step: Step) -> dict[str, float]:
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


def made(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    return model.eval(), inputs


def serve(connection: Connection, side: str, name: str, path: str, threads: int) -> None:
    """What a process does: prepare `side`, and answer with its output and facts, times of calls, and a profile."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    model, inputs = made(name)
    facts: dict[str, Any] = {}
    if side in ENGINES:
        step = {"openvino": in_openvino, "onnxruntime": in_onnxruntime}[side](path, inputs, threads)
    else:
        # Not as an option of the callable: Dynamo asks for it before Inductor sees that one's options, and hands over
        # weights as arguments otherwise, which nothing packs or folds.
        config.freezing = True
        found = compile_for(COMPILED[side], model)
        step = lambda: found.call(*inputs)  # noqa: E731
        step()
        facts = {"constants": constants(found), "kernels": dict(found.kernels()), "ran": dict(found.check_run(step))}
    connection.send((step().numpy(), facts))
    # An engine does not look whether its model is still the same; with this switch, which is for serving, neither does
    # Dynamo, whose guards of a model take 0.3 to 0.5 ms.
    with torch.compiler.set_stance("default", skip_guard_eval_unsafe=True):
        while connection.recv() == "turn":
            connection.send([milliseconds(step) for _ in range(CALLS + LEFT_OUT)][LEFT_OUT:])
    profiles = {
        "halide": lambda: operators_of_torch(step),
        "openvino": lambda: operators_of_openvino(path, inputs, threads),
    }
    connection.send(profiles[side]() if side in profiles else None)


def milliseconds(step: Step) -> float:
    begin = time.perf_counter()
    step()
    return round((time.perf_counter() - begin) * 1e3, 3)


def trial(name: str, threads: int) -> dict[str, Any]:
    model, inputs = made(name)
    context = multiprocessing.get_context("spawn")
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        wanted = copy.deepcopy(model).double()(*widened(inputs, torch.float64))
        path = exported(model, inputs, folder)
        sides: dict[str, Connection] = {}
        for side in (*COMPILED, *ENGINES):
            sides[side], theirs = context.Pipe()
            context.Process(target=serve, args=(theirs, side, name, path, threads), daemon=True).start()
            theirs.close()  # so that a process that fails ends the wait for its answer
        answers = {side: connection.recv() for side, connection in sides.items()}
        samples: dict[str, list[float]] = {side: [] for side in sides}
        order, end = [*sides], time.perf_counter() + SECONDS
        while time.perf_counter() < end or len(samples["halide"]) < ROUNDS * CALLS:
            for side in order:
                time.sleep(PAUSE)
                sides[side].send("turn")
                samples[side] += sides[side].recv()
            order.reverse()
        operators = {}
        for side, connection in sides.items():
            connection.send("profile")
            operators[side] = connection.recv()
    found = {side: torch.from_numpy(output).double() for side, (output, _) in answers.items()}
    errors = {side: float((each - wanted).abs().max() / wanted.abs().max()) for side, each in found.items()}
    medians = {side: statistics.median(times) for side, times in samples.items()}
    return {
        "model": name,
        "threads": threads,
        "right": {side: error <= BOUNDS[torch.float32] for side, error in errors.items()},
        "errors": errors,
        "ratios": {side: medians[side] / medians["halide"] for side in sides if side != "halide"},
        "against_faster_engine": min(medians[side] for side in ENGINES) / medians["halide"],
        **{fact: {side: answers[side][1][fact] for side in COMPILED} for fact in ("constants", "kernels", "ran")},
        "samples_ms": samples,
        "operators_ms": {side: each for side, each in operators.items() if each},
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
