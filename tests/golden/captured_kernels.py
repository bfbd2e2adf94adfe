"""The kernels of a function for a fixed CPU or GPU, without running, compiling or having one.

The function is compiled on the CPU as far as the texts of its kernels; for a GPU with what Inductor and the rules of
fusion are told there. What the compiled function returns is uninitialised memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
from torch._inductor import config as inductor_config
from torch._inductor.codegen.common import BackendFeature

from halide_backend import config, loading, pipeline
from halide_backend.build.artifacts import Artifact, Build
from halide_backend.build.target import Target
from halide_backend.capture import fusion, recording, scheduling
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import device_of

#: What the scheduler is told of a GPU, and a CPU has not.
_GPU_FEATURES = (BackendFeature.BUCKETIZE, BackendFeature.SCAN, BackendFeature.TUPLE_REDUCTION)


@dataclass(frozen=True)
class CapturedKernel:
    """One kernel: its program, and its text for `target`."""

    program: LoopProgram
    text: str
    target: Target


def captured_kernels(
    function: Callable[..., Any], arguments: tuple[Any, ...], target: Target, dynamic: bool = False
) -> list[CapturedKernel]:
    """The kernels that `torch.compile(function)` makes of `arguments`, tensors on the CPU, in order.

    Raises:
        InductorError: one of them is refused; nothing is delegated.
    """
    found: list[CapturedKernel] = []
    compile_program = pipeline.compile_program

    def captured(program: LoopProgram, *rest: Any) -> Any:
        if target.capability:
            program = _with_gpu_memory(program)
        compilation = compile_program(program, *rest)
        found.append(CapturedKernel(program, compilation.text, target))
        return compilation

    settings = {"cpu_backend": "halide_backend", "force_disable_caches": True}
    with contextlib.ExitStack() as stack:
        stack.enter_context(inductor_config.patch(settings))
        stack.enter_context(config.patch(delegate=False))
        stack.enter_context(mock.patch.object(scheduling, "compile_program", captured))
        stack.enter_context(mock.patch.object(scheduling, "start_workers", lambda: None))
        stack.enter_context(mock.patch.object(pipeline, "current_target", lambda device: target))
        stack.enter_context(mock.patch.object(pipeline, "get_or_compile", _nothing))
        stack.enter_context(mock.patch.object(loading, "load_kernel", lambda *args, **kwargs: _nothing))
        if target.capability:
            stack.enter_context(_on_a_gpu(target))
        torch._dynamo.reset()
        torch.compile(function, dynamic=dynamic)(*arguments)
        torch._dynamo.reset()
    return found


def _nothing(*arguments: Any, **options: Any) -> Build:
    done: Future[Artifact] = Future()
    done.set_result(Artifact(b"", {}, ""))
    return Build("", done)


@contextlib.contextmanager
def _on_a_gpu(target: Target) -> Iterator[None]:
    """Capture nodes as if they were on a GPU."""
    features = scheduling.HalideScheduling.get_backend_features
    record = recording._record
    with (
        mock.patch.object(fusion, "device_for", lambda node: device_of(target)),
        mock.patch.object(recording, "_record", lambda group, *, on_cpu: record(group, on_cpu=False)),
        mock.patch.object(
            scheduling.HalideScheduling,
            "get_backend_features",
            lambda self, device: features(self, device) | _GPU_FEATURES,
        ),
    ):
        yield


def _with_gpu_memory(program: LoopProgram) -> LoopProgram:
    """The program over memory of CUDA's allocator, which is aligned."""
    return replace(
        program,
        inputs=tuple(replace(buffer, aligned=True) for buffer in program.inputs),
        outputs=tuple(replace(buffer, aligned=True) for buffer in program.outputs),
    )
