"""Columns that a thread holds in registers, between what they are reduced to and what is made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from cuda_programs import TARGET, cuda_kernel_text, programs_of
from kernel_values import CudaKernel
from torch import Tensor
from torch.nn import functional

from halide_backend.capture import fusion, recording
from halide_backend.program.loop_program import Axis, Buffer, Load, LoopProgram, Nest, Reduction, Store, Value
from halide_backend.schedule.cuda.choose import stored_by_few
from halide_backend.schedule.device import Gpu, device_of


def softmax(groups: int, rows: int, columns: int, dtype: str) -> LoopProgram:
    """softmax(x, 1), as a GPU's nodes are fused."""
    g, c, r = (Axis(f"x{k}", size, size) for k, size in enumerate((groups, columns, rows)))
    index = g.symbol * rows * columns + r.symbol * columns + c.symbol
    values: list[Value] = []

    def add(operation: str, kind: str, operands: tuple[int, ...] = (), attribute: object = None) -> int:
        values.append(Value.of(operation, kind, operands, attribute, values))
        return len(values) - 1

    x = add("load", dtype, (), Load("in_ptr0", index))
    x = x if dtype == "float32" else add("to_dtype", "float32", (x,))
    largest = add("reduction", "float32", (x,), Reduction("max", (r,)))
    exponential = add("exp", "float32", (add("sub", "float32", (x, largest)),))
    total = add("reduction", "float32", (exponential,), Reduction("sum", (r,)))
    quotient = add("truediv", "float32", (exponential, total))
    size = groups * rows * columns
    return LoopProgram(
        inputs=(Buffer("in_ptr0", dtype, size, 0, aligned=True),),
        sizes=(),
        outputs=(Buffer("out_ptr0", dtype, size, 1, aligned=True),),
        values=tuple(values),
        stores=(Store("out_ptr0", index, quotient, Nest((g, c, r))),),
        checks=(),
        outer=(g, c),
    )


def crossed(groups: int, rows: int, columns: int, dtype: str) -> LoopProgram:
    """softmax(x, 1) stored along what it adds up."""
    program = softmax(groups, rows, columns, dtype)
    g, c, r = program.stores[0].nest.axes
    index = g.symbol * rows * columns + c.symbol * rows + r.symbol
    return replace(program, stores=(replace(program.stores[0], index=index),))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("rows", "columns", "lines"), [(3, 9000, True), (12, 9000, True), (24, 8999, True), (24, 90, False)]
)
def test_values_stored_along_columns(needs_intrinsics: None, dtype: str, rows: int, columns: int, lines: bool) -> None:
    x = (torch.randn(2, rows, columns, generator=torch.Generator().manual_seed(rows)) * 9).to(getattr(torch, dtype))
    text = cuda_kernel_text(crossed(2, rows, columns, dtype))
    assert ("TilingKind.REGISTERS" in text) == lines
    found = torch.full((2, columns, rows), -7, dtype=x.dtype)
    CudaKernel(text).on_tensors(x, found)
    wanted = torch.softmax(x.double(), 1).transpose(1, 2).to(x.dtype)
    torch.testing.assert_close(found, wanted, rtol=2**-7 if dtype == "bfloat16" else 1e-5, atol=1e-30)


@pytest.mark.parametrize(
    ("dtype", "rows", "threads", "steps"),
    [
        ("float32", 8, 1, 2),
        ("float32", 64, 4, 4),
        ("bfloat16", 24, 4, 1),
        ("bfloat16", 12, 1, 3),
        ("float32", 12, 4, 1),
    ],
)
def test_what_is_stored_along_columns(
    to_ptx: Callable[[LoopProgram], Any], dtype: str, rows: int, threads: int, steps: int
) -> None:
    """Each point is loaded once, and stored in a vector, or in half of one if no vector divides the column. Up to four
    threads have a column of more than a sector, so that they store 64 bytes side by side."""
    code = to_ptx(crossed(16, rows, 3200, dtype))
    assert (f"threads={threads}" in code.text) == (threads > 1)
    elements = 8 if dtype == "bfloat16" and rows % 8 == 0 else 4
    assert (code.loads, code.count(r"ld\.local"), code.stores) == (steps * elements, 0, steps)
    assert code.registers < 80


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize(("channels", "threads"), [(128, 8), (256, 8)])
def test_layer_norms_into_channels_last(
    monkeypatch: pytest.MonkeyPatch, to_ptx: Callable[[LoopProgram], Any], channels: int, threads: int, weighted: bool
) -> None:
    """Weights, which all lines have in common, lie along them; a variance is two walks along registers."""
    record = recording._record
    monkeypatch.setattr(recording, "_record", lambda group, *, on_cpu: record(group, on_cpu=False))
    monkeypatch.setattr(fusion, "device_for", lambda node: device_of(TARGET))

    def norm(x: Tensor, *weights: Tensor) -> Tensor:
        if weights:
            return functional.layer_norm(x.mT, (channels,), *weights).contiguous()
        # As a variance is captured on a GPU.
        x = x.mT - x.mT.mean(-1, keepdim=True)
        return (x / ((x * x).mean(-1, keepdim=True) + 1e-5).sqrt()).contiguous()

    weights = (torch.rand(channels), torch.rand(channels)) if weighted else ()
    (program,) = programs_of(norm, (torch.rand(32, channels, 576), *weights))
    code = to_ptx(program)
    assert f"chunks={channels // 4}, threads={threads}" in code.text
    elements = channels // threads
    assert (code.loads, code.count(r"ld\.local")) == (elements + len(weights) * elements // 4, 0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("rows", "held"), [(12, True), (70, True), (96, True), (97, False)])
def test_values(needs_intrinsics: None, dtype: str, rows: int, held: bool) -> None:
    x = (torch.randn(2, rows, 36, generator=torch.Generator().manual_seed(rows)) * 9).to(getattr(torch, dtype))
    text = cuda_kernel_text(softmax(2, rows, 36, dtype))
    assert ("held=True" in text) == held
    found = torch.full_like(x, -7)
    CudaKernel(text).on_tensors(x, found)
    rounding = 2**-7 if dtype == "bfloat16" else 1e-5
    torch.testing.assert_close(found, torch.softmax(x.double(), 1).to(x.dtype), rtol=rounding, atol=1e-30)


@pytest.mark.parametrize(("dtype", "rows"), [("float32", 70), ("bfloat16", 40), ("bfloat16", 70)])
def test_each_point_is_loaded_once(to_ptx: Callable[[LoopProgram], Any], dtype: str, rows: int) -> None:
    code = to_ptx(softmax(64, rows, 1600, dtype))
    assert (code.loads, code.count(r"ld\.local")) == (rows, 0)
    assert code.registers < 140


@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "vectors"),
    [
        ("float32", 3, 30000, True),
        ("bfloat16", 3, 30000, True),
        ("float32", 12, 30000, True),
        ("float32", 13, 30000, False),
        ("bfloat16", 7, 30000, False),
        ("bfloat16", 3, 800, False),
    ],
)
def test_a_few_points_are_held_in_vectors(
    to_ptx: Callable[[LoopProgram], Any], dtype: str, rows: int, columns: int, vectors: bool
) -> None:
    code = to_ptx(softmax(64, rows, columns, dtype))
    assert (code.wide_loads > 0, code.wide_stores > 0, code.count(r"ld\.local")) == (vectors, vectors, 0)


@pytest.mark.parametrize(("groups", "rows", "by"), [(12, 70, ""), (10, 70, "out_ptr0"), (64, 97, "out_ptr0")])
def test_fewer_threads_are_enough(groups: int, rows: int, by: str) -> None:
    gpu = device_of(TARGET)
    assert isinstance(gpu, Gpu)
    assert stored_by_few(softmax(groups, rows, 1600, "float32"), gpu) == by
