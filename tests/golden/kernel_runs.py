"""Texts of CPU kernels, compiled and run on random data in a process that may be lost."""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import torch
from kernel_values import CudaKernel

from halide_backend.build.compiler import compile_kernel
from halide_backend.build.loader import load_object
from halide_backend.build.target import Target
from halide_backend.errors import HalideBackendError
from halide_backend.launch.launcher import Pipeline, make_launcher, native
from halide_backend.program.loop_program import LoopProgram

#: Seconds that compiling and running one kernel may take, and bytes of memory.
SECONDS, MEMORY = 20, 6 << 30


@dataclass(frozen=True)
class Outcome:
    """What became of a kernel: its `inputs` and `outputs` as numbers by memory, or the `error` that names why there are
    none, which is `typed` if it is one of this package."""

    outputs: dict[int, np.ndarray[Any, Any]] | None
    error: str = ""
    typed: bool = True
    inputs: dict[int, np.ndarray[Any, Any]] | None = None


class KernelRuns:
    """A process that forks for each kernel that it compiles and runs, and has no threads; a context manager."""

    def __enter__(self) -> KernelRuns:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None) -> None:
        self._process.communicate()

    def run(self, text: str, program: LoopProgram, on_gpu: bool = False, *, compile_only: bool = False) -> Outcome:
        """Compile `text` and call it once, on this machine or, for a GPU, as numpy runs its PTX."""
        assert self._process.stdin and self._process.stdout
        pickle.dump((text, program, on_gpu, compile_only), self._process.stdin)
        self._process.stdin.flush()
        raw = pickle.load(self._process.stdout)
        if not isinstance(raw, bytes):
            return Outcome(None, f"the process ended with status {raw}", typed=False)
        outcome: Outcome = pickle.loads(raw)
        return outcome


def _serve() -> None:
    # What it pickles is read by the module of this name.
    Outcome.__module__ = "kernel_runs"
    sys.modules["kernel_runs"] = sys.modules["__main__"]
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            task = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(_forked(*task), answers)
        answers.flush()


def _forked(*task: Any) -> bytes | int:
    """The pickled outcome of `task`, or the status with which its process ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            signal.alarm(SECONDS)
            # Halide prints its errors.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            answer = _answer(*task)
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(answer, pipe)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        raw = pipe.read()
    _, status = os.waitpid(child, 0)
    return status or raw


def _answer(text: str, program: LoopProgram, on_gpu: bool, compile_only: bool) -> Outcome:
    try:
        if compile_only:
            CudaKernel(text)
            return Outcome(None)
        outputs = _run_on_gpu(text, program) if on_gpu else _run(text, program)
        memory = _memory(program)
        inputs = {buffer.memory: memory[buffer.memory].double().numpy() for buffer in program.inputs}
        return Outcome(outputs, inputs=inputs)
    except HalideBackendError as error:
        return Outcome(None, f"{type(error).__name__}: {error}")
    except BaseException:
        return Outcome(None, traceback.format_exc(), typed=False)


def _run(text: str, program: LoopProgram) -> dict[int, np.ndarray[Any, Any]]:
    compiled = compile_kernel(text, Target.host(), "mutant")
    code = load_object(compiled.object, "mutant_argv", native().symbols())
    manifest = compiled.manifest
    memory, values = _arguments(program, manifest["arguments"])
    arity = len(values)
    pipeline = Pipeline(
        code.address, manifest["arguments"], range(arity), manifest["checks"], manifest["release_gil"], code
    )
    with contextlib.suppress(IndexError, ZeroDivisionError):
        # Of random numbers some are no indices; what is written is compared all the same.
        make_launcher("mutant", [pipeline], arity)(*values)
    return _written(program, memory)


def _run_on_gpu(text: str, program: LoopProgram) -> dict[int, np.ndarray[Any, Any]]:
    kernel = CudaKernel(text)
    memory, values = _arguments(program, kernel.arguments)
    raw = {key: np.array(tensor.view(torch.uint8).numpy()) for key, tensor in memory.items()}
    numbers = {tensor.data_ptr(): place for place, tensor in enumerate(memory.values())}
    kernel(list(raw.values()), [numbers[v.data_ptr()] if isinstance(v, torch.Tensor) else v for v in values])
    return _written(program, {key: torch.from_numpy(raw[key]).view(tensor.dtype) for key, tensor in memory.items()})


def _arguments(
    program: LoopProgram, arguments: Sequence[Mapping[str, Any]]
) -> tuple[dict[int, torch.Tensor], list[Any]]:
    """Tensors by memory, and what the kernel is called with."""
    buffers, memory = {buffer.name: buffer for buffer in (*program.inputs, *program.outputs)}, _memory(program)
    sizes = {size.name: size for size in program.sizes}
    values: list[Any] = []
    for argument in arguments:
        name = argument["name"]
        if name in buffers:
            values.append(memory[buffers[name].memory])
        elif argument["kind"] != "status":
            values.append(_number(sizes[name].value, program) if not sizes[name].data else 3)
    return memory, values


def _memory(program: LoopProgram) -> dict[int, torch.Tensor]:
    """Random numbers, always the same."""
    memory: dict[int, torch.Tensor] = {}
    for buffer in sorted((*program.inputs, *program.outputs), key=lambda buffer: -_number(buffer.extent, program)):
        memory.setdefault(buffer.memory, _random(buffer.dtype, _number(buffer.extent, program), len(memory)))
    return memory


def _written(program: LoopProgram, memory: Mapping[int, torch.Tensor]) -> dict[int, np.ndarray[Any, Any]]:
    return {key: memory[key].double().numpy() for key in {buffer.memory for buffer in program.outputs}}


def _number(extent: Any, program: LoopProgram) -> int:
    """An extent, typical if it is computed."""
    if isinstance(extent, int):
        return extent
    hints = {axis.extent: axis.hint for axis in program.axes if not isinstance(axis.extent, int)}
    symbols = {symbol: hint for symbol, hint in hints.items() if symbol.is_Symbol}
    found = hints.get(extent, extent.subs(symbols))
    return int(found)


def _random(dtype: str, count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randint(-8, 9, (count,), generator=generator)
    kind = getattr(torch, dtype)
    return (numbers > 0) if kind is torch.bool else (numbers.abs() if dtype.startswith("int64") else numbers).to(kind)


if __name__ == "__main__":
    _serve()
