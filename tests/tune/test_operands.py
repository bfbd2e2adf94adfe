"""Operands that are made from a program alone: what kernels may be called with, the same every time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import sympy
import torch
from kernel import Builder

from halide_backend.errors import NothingToTune
from halide_backend.program.index import Max, SizeSymbol, ValueSymbol
from halide_backend.program.loop_program import Axis, Buffer, Indirect, Load, LoopProgram, Nest, Size, Store, Value
from halide_backend.tune.measurement.operands import Operands, index_limits
from halide_backend.tune.typical_sizes import number, operand_bytes

Made = Callable[..., LoopProgram]


def gathered(size: int = 7, count: int = 500) -> LoopProgram:
    """table[i] for `count` numbers i of int64."""
    builder = Builder((count,))
    index = builder.load(torch.int64)
    builder.inputs.append(Buffer("table", "float32", size, 1))
    position = builder.value("indirect", torch.int64, [index], Indirect(size, True))
    value = builder.value("load", torch.float32, [], Load("table", ValueSymbol.of(position)))
    builder.values[value] = Value.of(
        "load", "float32", (position,), Load("table", ValueSymbol.of(position)), builder.values[:value]
    )
    builder.store(value, torch.float32)
    return builder.program()


def dynamic() -> LoopProgram:
    """x + 1 over s0 elements, 24 typically."""
    s0 = SizeSymbol("s0", nonnegative=True)
    axis = Axis("x0", s0, 24)
    load = Value.of("load", "float32", (), Load("in_ptr0", axis.symbol), [])
    return LoopProgram(
        inputs=(Buffer("in_ptr0", "float32", s0, 0),),
        sizes=(Size("s0", s0),),
        outputs=(Buffer("out_ptr0", "float32", 2 * s0, 1),),
        values=(load,),
        stores=(Store("out_ptr0", axis.symbol, 0, Nest((axis,))),),
        checks=(),
        outer=(axis,),
    )


def test_tensors_are_as_large_as_the_program_says(row_sums: Made) -> None:
    program = row_sums(16, 32, torch.bfloat16)
    operands = Operands(program, "cpu")
    x, out = (operands.memory[buffer.memory] for buffer in (*program.inputs, *program.outputs))
    assert (x.shape, x.dtype) == ((512,), torch.bfloat16) and (out.shape, out.dtype) == ((16,), torch.bfloat16)
    assert operands.bytes == operand_bytes(program) == 2 * (512 + 16)
    assert x.isfinite().all() and x.float().std() > 0.5


def test_they_are_the_same_every_time(row_sums: Made) -> None:
    one, other = Operands(row_sums(), "cpu"), Operands(row_sums(), "cpu")
    assert all(torch.equal(one.memory[key], other.memory[key]) for key in one.memory)


def test_indices_are_in_range() -> None:
    program = gathered(7)
    assert index_limits(program) == {"in_ptr0": 7}
    index = Operands(program, "cpu").memory[program.inputs[0].memory]
    assert index.dtype == torch.int64 and set(index.tolist()) == set(range(7))
    assert not Operands(program, "cpu", zero_indices=True).memory[program.inputs[0].memory].any()


def test_dynamic_sizes_are_typical_ones() -> None:
    program = dynamic()
    s0 = program.sizes[0].value
    assert [number(extent, program) for extent in (5, s0, 2 * s0 + 1)] == [5, 24, 49]
    assert operand_bytes(program) == 4 * (24 + 48)
    described = [
        {"kind": "buffer", "name": "in_ptr0"},
        {"kind": "int32", "name": "s0"},
        {"kind": "status", "name": "s"},
    ]
    tensor, size = Operands(program, "cpu").arguments(described)
    assert (tensor.shape, size) == ((24,), 24)


def test_sizes_that_are_the_extent_of_no_axis() -> None:
    """Inductor merges loops over images and channels, and has both as sizes."""
    images, channels = (SizeSymbol(f"n{number}", nonnegative=True) for number in range(2))
    axis = Axis("x0", images * channels, 320)
    sizes = (Size("n0", images, hint=10), Size("n1", channels, hint=32), Size("m0", Max(1, channels - 2) ** 2))
    program = replace(dynamic(), sizes=sizes, outer=(axis,), stores=(Store("out_ptr0", axis.symbol, 0, Nest((axis,))),))
    assert [number(size.value, program) for size in sizes] == [10, 32, 900]
    assert number(images * channels, program) == 320


def test_a_size_of_no_axis_is_an_error() -> None:
    with pytest.raises(NothingToTune, match=r"what s9 \+ 1 typically is"):
        number(sympy.Symbol("s9") + 1, dynamic())


def test_what_a_kernel_writes_is_restored(row_sums: Made) -> None:
    operands = Operands(row_sums(16, 32), "cpu")
    before = operands.written()
    (out,) = (operands.memory[key] for key in before)
    out.zero_()
    assert not operands.updates
    operands.restore(updated_only=True)
    assert not out.any()
    operands.restore()
    assert all(torch.equal(operands.memory[key], tensor) for key, tensor in before.items())


def test_a_write_to_what_is_read_shows(row_sums: Made) -> None:
    operands = Operands(row_sums(16, 32), "cpu")
    sums = operands.read_only_sums()
    x = operands.memory[0]
    x[77] += 1
    assert operands.read_only_sums() != sums
    x[77] -= 1
    operands.memory[1000].zero_()
    assert Operands(row_sums(16, 32), "cpu").read_only_sums() == sums
