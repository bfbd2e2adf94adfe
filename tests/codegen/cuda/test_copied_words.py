"""Words of 16-bit elements that go from memory to memory as they are, on CUDA, as numpy runs the PTX."""

from __future__ import annotations

from collections.abc import Callable

import torch
from cuda_programs import TARGET, Ptx, programs_of
from kernel_values import CudaKernel
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of


def heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).contiguous()


def test_bits_stay(needs_intrinsics: None) -> None:
    """Also those of NaN, which a conversion to float32 and back would change."""
    x = torch.randint(-(2**15), 2**15, (2, 24, 3, 64), dtype=torch.int16).view(torch.bfloat16)
    x.view(torch.int16).flatten()[:2] = torch.tensor([0x7F81, -0x7F])
    (program,) = programs_of(heads, (x,))
    text = plan_kernel(program, device_of(TARGET)).text
    assert "memory.word(" not in text
    found = torch.empty(2, 3, 24, 64, dtype=torch.bfloat16)
    CudaKernel(text).on_tensors(x, found)
    assert torch.equal(found.view(torch.int16), heads(x).view(torch.int16))


def test_no_conversion(compiled_ptx: Callable[..., Ptx]) -> None:
    code = compiled_ptx(heads, torch.rand(2, 24, 3, 64).bfloat16())
    assert (code.count("cvt.rn.bf16x2"), code.wide_loads, code.wide_stores) == (0, 1, 1)


def test_what_is_gathered_is_checked(compiled_ptx: Callable[..., Ptx]) -> None:
    rows, numbers = torch.rand(100, 64).bfloat16(), torch.randint(0, 100, (48,))
    code = compiled_ptx(lambda rows, numbers: torch.nn.functional.embedding(numbers, rows), rows, numbers)
    assert (code.count("cvt.rn.bf16x2"), code.count("@bad trap")) == (0, 1)


def test_other_types_and_functions_are_converted(compiled_ptx: Callable[..., Ptx]) -> None:
    x = torch.rand(2, 24, 3, 64).bfloat16()
    assert compiled_ptx(lambda x: heads(x) * 2, x).count("cvt.rn.bf16x2") == 4
    assert compiled_ptx(lambda x: heads(x).bfloat16(), x.float()).count("cvt.rn.bf16x2") > 0
