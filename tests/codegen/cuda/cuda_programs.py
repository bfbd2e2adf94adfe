"""Kernels for a GPU on a machine without one: captured on the CPU, compiled to PTX, assembled where ptxas is found."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch._inductor import config as inductor_config

from halide_backend.build.compiler import compile_kernel
from halide_backend.build.llvm.libdevice import leave_out_libdevice
from halide_backend.build.ptx import ptxas
from halide_backend.build.ptx.completion import complete, extract
from halide_backend.build.ptx.instructions import parse
from halide_backend.build.target import Target
from halide_backend.capture import scheduling
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import device_of

TARGET = Target.cuda(9, 0)


@dataclass(frozen=True)
class Ptx:
    """What a test looks at: the kernel's text, its PTX, and counts of instructions in it."""

    text: str
    code: str
    image: bytes

    def count(self, pattern: str) -> int:
        return len(re.findall(pattern, self.code))

    @property
    def kernels(self) -> int:
        return len(parse(self.code).functions)

    @property
    def registers(self) -> int:
        """Registers of a thread: the machine code's attribute EIATTR_REGCOUNT, the kernel's symbol and their number."""
        (found,) = re.findall(rb"\x04\x2f\x08\x00....(....)", self.image, re.DOTALL)
        return int.from_bytes(found, "little")

    @property
    def loads(self) -> int:
        return self.count(r"ld\.global")

    @property
    def wide_loads(self) -> int:
        """Loads of 128 bits."""
        return self.count(r"ld\.global\S*\.v4\.b32|ld\.global\S*\.v2\.b64")

    @property
    def stores(self) -> int:
        return self.count(r"st\.global")

    @property
    def wide_stores(self) -> int:
        return self.count(r"st\.global\S*\.v4\.b32|st\.global\S*\.v2\.b64")


def cuda_kernel_text(program: LoopProgram, knobs: Any = None) -> str:
    return plan_kernel(program, device_of(TARGET), knobs).text


def programs_of(function: Callable[..., Any], arguments: tuple[Any, ...], dynamic: bool = False) -> list[LoopProgram]:
    """The programs that compiling `function` for the CPU captures, with the alignment that CUDA memory has."""
    found: list[LoopProgram] = []
    compile_program = scheduling.compile_program

    def recorded(program: LoopProgram, *rest: Any) -> Any:
        found.append(in_cuda_memory(program))
        return compile_program(program, *rest)

    torch._dynamo.reset()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduling, "compile_program", recorded)
        with inductor_config.patch(cpu_backend="halide_backend", force_disable_caches=True):
            torch.compile(function, dynamic=dynamic)(*arguments)
    return found


def in_cuda_memory(program: LoopProgram) -> LoopProgram:
    """`program` for memory that is aligned as CUDA's is."""
    kinds = {kind: getattr(program, kind) for kind in ("inputs", "outputs")}
    return replace(program, **{k: tuple(replace(b, aligned=True) for b in buffers) for k, buffers in kinds.items()})


def ptx_of(program: LoopProgram) -> Ptx:
    text = cuda_kernel_text(program)
    # As workers do it.
    assert leave_out_libdevice()
    kernel = compile_kernel(text, TARGET, "kernel_under_test")
    code = str(complete(extract(kernel.object), "kernel_under_test", TARGET.capability))
    # Instructions whose operands are never denormal (kernel_library/cuda/intrinsics.py).
    flushing = re.sub(r"(?:ex2|rcp)\.approx\.ftz\.f32|(?:rcp|rsqrt)\.approx\.ftz\.f64", "", code)
    assert ".ftz" not in flushing, "denormals are flushed"
    return Ptx(text, code, kernel.image)


def checked(code: Ptx) -> Ptx:
    """`code`, which is one kernel that keeps everything in registers and can be assembled."""
    assert code.kernels == 1
    assert ".local" not in code.code, "something lies in memory instead of in registers"
    assert code.image[:4] == b"\x7fELF" if ptxas.find() else code.image.endswith(b"\0")
    return code
