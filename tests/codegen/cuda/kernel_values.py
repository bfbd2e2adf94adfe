"""CUDA kernels run without a GPU: what the host code launches is recorded, and run by `ptx_machine`.

Programs are captured on a CPU, where the same kernels run natively: for each call the GPU's kernel gets the arguments
that the CPU's one gets, sizes and intermediate results among them, and has to compute the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, c_char_p, c_int, c_int8, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from cuda_programs import TARGET, cuda_kernel_text, in_cuda_memory
from ptx_machine import Pointer, launch
from torch import Tensor
from torch._inductor import config as inductor_config

from halide_backend import loading
from halide_backend.build.compiler import compile_kernel
from halide_backend.build.llvm.libdevice import leave_out_libdevice
from halide_backend.build.loader import load_object
from halide_backend.build.ptx.completion import complete, extract
from halide_backend.capture import recording, scheduling
from halide_backend.launch.launcher import native
from halide_backend.program.loop_program import LoopProgram

_RUN = ctypes.CFUNCTYPE(
    c_int, c_void_p, c_void_p, c_char_p, *[c_int] * 7, POINTER(c_size_t), POINTER(c_void_p), POINTER(c_int8)
)

#: A tensor's number begins at this bit of the addresses that the host code sees.
_TENSOR = 40


class _Dimension(ctypes.Structure):
    _fields_ = [("min", c_int32), ("extent", c_int32), ("stride", c_int32), ("flags", c_int32)]


class _Buffer(ctypes.Structure):
    _fields_ = [
        ("device", c_uint64), ("device_interface", c_void_p), ("host", c_void_p), ("flags", c_uint64),
        ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("dimensions", c_int32),
        ("dim", POINTER(_Dimension)), ("padding", c_void_p),
    ]  # fmt: skip


class CudaKernel:
    """The kernel of `text` for a GPU: its PTX, and a call that runs it here."""

    def __init__(self, text: str) -> None:
        assert leave_out_libdevice()
        self.text = text
        compiled = compile_kernel(self.text, TARGET, "kernel_under_test")
        self.arguments: Sequence[Mapping[str, Any]] = compiled.manifest["arguments"]
        self.code = str(complete(extract(compiled.object), "kernel_under_test", TARGET.capability))
        self._launches: list[Callable[[list[Any]], None]] = []
        self._run = _RUN(self._record)
        symbols = {**native().symbols(), "halide_cuda_run": ctypes.cast(self._run, c_void_p).value}
        self._loaded = load_object(compiled.object, "kernel_under_test_argv", symbols)

    def __call__(self, memory: list[Any], values: Sequence[int]) -> None:
        """Compute on `memory`, arrays of bytes; of each argument `values` holds the number in there, or the integer."""
        self._launches.clear()
        holders = [self._held(argument, value) for argument, value in zip(self.arguments, values, strict=True)]
        pointers = (c_void_p * len(holders))(*(ctypes.addressof(holder) for holder in holders))
        assert ctypes.CFUNCTYPE(c_int, c_void_p)(self._loaded.address)(pointers) == 0
        for run in self._launches:
            run(memory)

    def on_tensors(self, *tensors: Tensor) -> None:
        """Compute on `tensors`, one for each argument."""
        memory = [np.array(_bytes(tensor)) for tensor in tensors]
        self(memory, range(len(tensors)))
        for tensor, raw in zip(tensors, memory, strict=True):
            _bytes(tensor)[:] = raw

    def _held(self, argument: Mapping[str, Any], value: int) -> Any:
        if argument["kind"] == "int32":
            return c_int32(value)
        if argument["kind"] == "int64":
            return c_int64(value)
        assert argument["kind"] == "buffer"
        dims = [_Dimension(0, extent, stride, 0) for extent, stride in argument["dims"]]
        device = (value + 1 << _TENSOR) + argument.get("offset", 0)
        array = (_Dimension * len(dims))(*dims)
        return _Buffer(device, None, None, 0, argument["code"], argument["bits"], 1, len(dims), array, None)

    def _record(
        self, _context: Any, _state: Any, name: bytes, x: int, y: int, z: int, tx: int, ty: int, tz: int, _shared: int,
        sizes: Any, arguments: Any, is_buffer: Any,
    ) -> int:  # fmt: skip
        given: list[Pointer | int] = []
        for k, size in enumerate(iter(lambda: sizes[len(given)], 0)):
            if is_buffer[k]:
                place = ctypes.cast(arguments[k], POINTER(_Buffer)).contents.device
                given.append(Pointer((place >> _TENSOR) - 1, place & (1 << _TENSOR) - 1))
            else:
                given.append(int.from_bytes(ctypes.string_at(arguments[k], size), "little"))
        one = entry(self.code, name.decode())
        self._launches.append(lambda memory: launch(one, (x, y, z), (tx, ty, tz), memory, given))
        return 0


def entry(code: str, name: str) -> str:
    """The PTX of the one kernel `name`."""
    begin = code.index(f".visible .entry {name}(")
    end = code.find(".visible .entry", begin + 1)
    return code[begin : end if end > 0 else len(code)]


@dataclass(frozen=True)
class Call:
    """One call of the kernel of `program`: what it was given, and the memory after it."""

    program: LoopProgram
    values: Sequence[int]
    before: Sequence[Any]
    after: Sequence[Any]

    def check(self, kernel: CudaKernel, what: str) -> None:
        """Make the same call of another `kernel` of the program; memory has to be the same after it."""
        memory = [array.copy() for array in self.before]
        kernel(memory, self.values)
        assert all(np.array_equal(found, wanted) for found, wanted in zip(memory, self.after, strict=True)), what


def check_values(
    function: Callable[..., Any],
    *arguments: Any,
    dynamic: bool = False,
    others: Sequence[tuple[Any, ...]] = (),
    tolerance: float = 0.0,
    calls: list[Call] | None = None,
) -> list[CudaKernel]:
    """Compile and call `function`, also with the `others`, arguments for which it is not compiled anew; returns its
    kernels, each of which was run as a GPU's on what the CPU's one got.

    Fails where a tensor differs from the CPU's by more than the relative `tolerance`, or the result from eager's. Every
    call of a kernel is added to `calls`.
    """
    texts: dict[str, LoopProgram] = {}
    kernels: dict[str, CudaKernel] = {}
    compile_program, load_kernel, record = scheduling.compile_program, loading.load_kernel, recording._record

    def compiled(program: LoopProgram, *rest: Any) -> Any:
        compilation = compile_program(program, *rest)
        texts[compilation.text] = in_cuda_memory(program)
        return compilation

    def loaded(name: str, pipelines: Any, arity: int, **options: Any) -> Any:
        kernel = load_kernel(name, pipelines, arity, **options)
        programs = [texts[text.lstrip("\n")] for text, _ in pipelines]

        def call(*values: Any) -> None:
            tensors = list({v.data_ptr(): v for v in values if isinstance(v, Tensor)}.values())
            memory = [np.array(_bytes(tensor)) for tensor in tensors]
            numbers = {tensor.data_ptr(): k for k, tensor in enumerate(tensors)}
            for program, (text, places) in zip(programs, pipelines):
                cuda = kernels.setdefault(text, CudaKernel(cuda_kernel_text(program)))
                given = [numbers[v.data_ptr()] if isinstance(v := values[p], Tensor) else v for p in places]
                before = [array.copy() for array in memory]
                cuda(memory, given)
                if calls is not None:
                    calls.append(Call(program, given, before, [array.copy() for array in memory]))
            kernel(*values)
            for tensor, raw in zip(tensors, memory):
                found = torch.from_numpy(raw).view(tensor.dtype)
                _same(found, torch.from_numpy(_bytes(tensor)).view(tensor.dtype), tolerance)

        return call

    torch._dynamo.reset()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduling, "compile_program", compiled)
        patch.setattr(loading, "load_kernel", loaded)
        patch.setattr(recording, "_record", lambda group, *, on_cpu: record(group, on_cpu=False))
        with inductor_config.patch(cpu_backend="halide_backend", force_disable_caches=True):
            run, made = torch.compile(function, dynamic=dynamic), 0
            for given in (arguments, *others):
                own = [argument.clone() if isinstance(argument, Tensor) else argument for argument in given]
                results, wanted = run(*own), function(*given)
                for found, right in zip(*([r] if isinstance(r, Tensor) else r for r in (results, wanted)), strict=True):
                    torch.testing.assert_close(found, right, equal_nan=True)
                made = made or len(kernels)
                assert len(kernels) == made > 0
    return list(kernels.values())


def _same(found: Tensor, wanted: Tensor, tolerance: float) -> None:
    if tolerance and wanted.is_floating_point():
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
    else:
        assert torch.equal(found, wanted) or torch.equal(found.nan_to_num(), wanted.nan_to_num())


def _bytes(tensor: Tensor) -> Any:
    """The memory behind a tensor, from its first element on."""
    storage = tensor.untyped_storage()
    begin = tensor.storage_offset() * tensor.element_size()
    return torch.empty(0, dtype=torch.uint8).set_(storage).numpy()[begin:]
