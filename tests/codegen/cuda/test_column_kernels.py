"""Reductions over an outer axis: their loads are in flight together, and nothing lies in local memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cuda_programs import TARGET, checked, cuda_kernel_text, programs_of
from kernel_values import CudaKernel, check_values
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.program.loop_program import Axis, Buffer, Load, LoopProgram, Nest, Reduction, Store, Value
from halide_backend.schedule.cuda import choose
from halide_backend.schedule.cuda.choose import stored_by_few
from halide_backend.schedule.device import Gpu, device_of

Compile = Callable[..., Any]


def small(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers whose sums are exact."""
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def multiplied_and_summed(groups: int, rows: int, columns: int, dtype: str) -> LoopProgram:
    """The product of two tensors, and its sums over `rows`: the backward pass of an activation after a linear layer."""
    x0, x1, x2 = axes = (Axis("x0", groups, groups), Axis("x1", columns, columns), Axis("x2", rows, rows))
    index = rows * columns * x0.symbol + x1.symbol + columns * x2.symbol
    points, all_axes = groups * rows * columns, frozenset(axis.name for axis in axes)
    loads = tuple(Value("load", dtype, (), Load(f"in_ptr{k}", index), all_axes) for k in range(2))
    values = (
        *loads,
        Value("mul", dtype, (0, 1), None, all_axes),
        Value("to_dtype", "float32", (2,), None, all_axes),
        Value("reduction", "float32", (3,), Reduction("sum", (x2,)), frozenset({"x0", "x1"})),
    )
    return LoopProgram(
        inputs=tuple(Buffer(f"in_ptr{k}", dtype, points, k, aligned=True) for k in range(2)),
        sizes=(),
        outputs=(
            Buffer("out_ptr0", dtype, points, 2, aligned=True),
            Buffer("out_ptr1", "float32", groups * columns, 3, aligned=True),
        ),
        values=values,
        stores=(
            Store("out_ptr0", index, 2, Nest(axes)),
            Store("out_ptr1", columns * x0.symbol + x1.symbol, 4, Nest((x0, x1))),
        ),
        checks=(),
        outer=(x0, x1),
    )


def test_columns_of_a_prime_number_of_rows_have_loads_in_flight(compiled_ptx: Compile) -> None:
    """197 rows were summed one after another: each thread waited for one load at a time (issue 19)."""
    code = compiled_ptx(lambda x: x.sum(1), torch.rand(16, 197, 4096))
    loads = [block.count("ld.global") for block in code.code.split("bra")]
    # Seven rounds of 28 and one row: of 32 at once it would be six, and five rows.
    assert max(loads) >= 28
    assert code.loads == 197 % 28 + 28
    check_values(lambda x: x.sum(1), small(2, 197, 64))


def test_threads_share_columns_of_functions() -> None:
    """A thread that computes an exponential for each element waits too long to have a column of its own."""
    operands, gpu = (torch.empty(512, 112, 96),), device_of(TARGET)
    (program,) = programs_of(lambda x: torch.nn.functional.silu(x).sum(1), operands)
    (plain,) = programs_of(lambda x: x.sum(1), operands)
    assert plan_kernel(program, gpu).plan.mapping.rule == "column_groups"
    assert plan_kernel(plain, gpu).plan.mapping.rule == "column_reductions"


@pytest.mark.parametrize(("shape", "computed"), [((20, 50, 90), True), ((20, 9, 90), False)])
def test_addresses_of_computed_strides_leave_registers_for_loads(shape: tuple[int, ...], computed: bool) -> None:
    """LLVM keeps an address for each load of a round; ptxas took 32 registers, and each load waited: sums over the
    middle of 200 x 50 x 1800 bfloat16 of unknown sizes 41 us on an H200, with 64 registers 17 us. A few points are no
    loop."""
    (program,) = programs_of(lambda x: x.sum(1), (torch.empty(*shape, dtype=torch.bfloat16),), dynamic=True)
    mapping = plan_kernel(program, device_of(TARGET)).plan.mapping
    assert mapping.rule == "column_reductions" and mapping.tiling is not None
    assert (mapping.tiling.computed, mapping.registers) == (computed, 64 if computed else "auto")


def test_the_questions_about_one_program_lay_it_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each laid it out anew: 7 % of what Inductor computes before kernels are built, for 36 cases of the suite."""
    (program,) = programs_of(lambda x: x.sum(1) * 2, (torch.empty(51, 113, 97),))
    seen: list[LoopProgram] = []
    gpu = device_of(TARGET)
    flattened = choose.flattened
    monkeypatch.setattr(choose, "flattened", lambda each: seen.append(each) or flattened(each))
    for question in (choose.one_tiling, choose.stored_by_few, choose.stored_crosswise, choose.old_value_lost):
        question(program, gpu)
    assert len(seen) == 1


@pytest.mark.parametrize(("groups", "rows", "by"), [(16, 197, "out_ptr0"), (64, 197, ""), (16, 7, "")])
def test_few_threads_store_nothing_along_what_they_reduce(groups: int, rows: int, by: str) -> None:
    """Nodes are not fused for that: in a vision transformer's step four such kernels took 591 us of an H100, and those
    that only store take 144 (h100-2026-11-26-models-bfloat16-training-before.json.gz and -bfloat16.json.gz)."""
    gpu = device_of(TARGET)
    assert isinstance(gpu, Gpu)
    assert stored_by_few(multiplied_and_summed(groups, rows, 3072, "bfloat16"), gpu) == by


def test_what_is_stored_beside_column_sums_lies_in_registers(to_ptx: Compile) -> None:
    """Each thread packed the words of its whole column into local memory before it stored one (issue 19)."""
    checked(to_ptx(multiplied_and_summed(16, 197, 3072, "bfloat16")))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("groups", "rows", "columns"), [(2, 67, 64), (1, 40, 192)])
def test_values_of_what_is_stored_beside_column_sums(groups: int, rows: int, columns: int, dtype: str) -> None:
    x, y = (small(groups, rows, columns, dtype=getattr(torch, dtype)) + k for k in range(2))
    found = torch.zeros_like(x), torch.zeros(groups, columns)
    CudaKernel(cuda_kernel_text(multiplied_and_summed(groups, rows, columns, dtype))).on_tensors(x, y, *found)
    assert torch.equal(found[0], x * y)
    assert torch.equal(found[1], (x * y).float().sum(1))


@pytest.mark.parametrize(
    ("groups", "rows", "columns"), [(2, 96, 16), (1, 67, 8), (3, 128, 40), (1, 130, 37), (3, 100, 4), (1, 70, 6)]
)
def test_threads_share_few_columns(groups: int, rows: int, columns: int) -> None:
    """334 x 32 columns of 3136 points had 5,344 threads."""
    x = small(groups, rows, columns)
    kernels = check_values(lambda x: (x.sum(1), x.amax(1), x.var(1)), x, tolerance=1e-6)
    assert all("TilingKind.COLUMNS" in kernel.text for kernel in kernels)


def test_sums_of_the_same_columns_load_them_once() -> None:
    """The two sums of a batch norm's gradient read their operands twice."""
    x = small(1, 300, 24)
    (kernel,) = check_values(lambda x: (x.sum(1), (x * x).sum(1), (x + 1).amax(1)), x)
    (alone,) = check_values(lambda x: x.sum(1), x)
    assert kernel.code.count("ld.global") == alone.code.count("ld.global")


@pytest.mark.parametrize(("groups", "rows", "columns"), [(3, 100, 16), (2, 64, 40), (2, 131, 9)])
def test_operands_of_two_layouts(groups: int, rows: int, columns: int) -> None:
    """A warp that read a row of one operand read 32 rows of the other: 287 us, Triton 108 on an H100."""
    x, y = small(groups, rows, columns), small(groups, columns, rows) + 1
    kernels = check_values(lambda x, y: ((x * y.transpose(1, 2)).sum(1), y.sum(2)), x, y)
    assert any("TilingKind.COLUMNS" in kernel.text and re.search("side=[48]", kernel.text) for kernel in kernels)


def test_results_across_the_columns() -> None:
    """A block has adjacent columns; those whose results are apart have a thread each."""
    x0, x1, x2 = Axis("x0", 12, 12), Axis("x1", 16, 16), Axis("x2", 100, 100)
    load = Load("in_ptr0", 1600 * x0.symbol + x1.symbol + 16 * x2.symbol)
    program = LoopProgram(
        inputs=(Buffer("in_ptr0", "float32", 12 * 1600, 0),),
        sizes=(),
        outputs=(Buffer("out_ptr0", "float32", 192, 1),),
        values=(
            Value("load", "float32", (), load, frozenset({"x0", "x1", "x2"})),
            Value("reduction", "float32", (0,), Reduction("sum", (x2,)), frozenset({"x0", "x1"})),
        ),
        stores=(Store("out_ptr0", x0.symbol + 12 * x1.symbol, 1, Nest((x0, x1))),),
        checks=(),
        outer=(x0, x1),
    )
    x, found = small(12, 100, 16), torch.zeros(16, 12)
    CudaKernel(cuda_kernel_text(program)).on_tensors(x, found)
    assert torch.equal(found, x.sum(1).t())


def test_a_sum_that_all_columns_share() -> None:
    """The numbers of elements of parts, of which the last is shorter: a part of Welford's form has them as weights."""
    x0, x1, x2 = Axis("x0", 3, 3), Axis("x1", 24, 24), Axis("x2", 100, 100)
    whole, part = frozenset({"x0", "x1", "x2"}), frozenset({"x0", "x2"})
    values = (
        Value("load", "float32", (), Load("in_ptr0", 2400 * x0.symbol + x1.symbol + 24 * x2.symbol), whole),
        Value("load", "float32", (), Load("in_ptr1", 100 * x0.symbol + x2.symbol), part),
        Value("reduction", "float32", (0,), Reduction("sum", (x2,)), frozenset({"x0", "x1"})),
        Value("reduction", "float32", (1,), Reduction("sum", (x2,)), frozenset({"x0"})),
    )
    index = 24 * x0.symbol + x1.symbol
    program = LoopProgram(
        inputs=(Buffer("in_ptr0", "float32", 7200, 0), Buffer("in_ptr1", "float32", 300, 1)),
        sizes=(),
        outputs=tuple(Buffer(f"out_ptr{k}", "float32", 72, 2 + k) for k in range(2)),
        values=values,
        stores=tuple(Store(f"out_ptr{k}", index, 2 + k, Nest((x0, x1))) for k in range(2)),
        checks=(),
        outer=(x0, x1),
    )
    x, weights, found = small(3, 100, 24), small(3, 100), (torch.zeros(3, 24), torch.zeros(3, 24))
    CudaKernel(cuda_kernel_text(program)).on_tensors(x, weights, *found)
    assert torch.equal(found[0], x.sum(1))
    assert torch.equal(found[1], weights.sum(1)[:, None].expand(3, 24))


def test_short_inner_loops_are_unrolled_together_with_the_next() -> None:
    """Four loads in flight of each of 32,768 threads are a third of what an H200 needs."""
    (kernel,) = check_values(lambda x: x.sum((0, 2)), small(8, 5, 3, 64))
    assert "TilingKind.THREAD" in kernel.text
    assert (kernel.code.count("ld.global"), kernel.code.count("bra")) == (24, 0)


@pytest.mark.parametrize("over", [(0, 2, 4, 6), (0, 2, 4, 6, 8)])
def test_columns_of_more_axes_than_a_grid_has(over: tuple[int, ...]) -> None:
    """Several threads a column want a dimension of the grid for each outer axis; one thread a column fuses them."""
    x = small(4, 2, 4, 2, 2, 2, 2, 2, 2, 8)
    check_values(lambda x: (x.sum(over), x.amax(over)), x)


@pytest.mark.parametrize("length", [10, 256])
def test_lines_of_more_axes_than_a_grid_has(length: int) -> None:
    """Outer axes along which the output goes on are one, as those of the windows of a vision transformer."""
    x = small(2, 3, 4, 3, 5, length).permute(4, 0, 2, 1, 3, 5)
    check_values(lambda x: x.amax(-1), x)
    check_values(lambda x: (x - x.amax(-1, keepdim=True)).permute(1, 3, 2, 4, 0, 5).contiguous(), x)


def test_sums_of_gathered_rows_check_their_indices() -> None:
    """Where several sums are one Tuple none of them would end the kernel (memory.checked)."""
    x, y, rows = small(50, 24), small(200, 24), torch.arange(200) % 50
    (program,) = programs_of(lambda x, y, rows: (y.sum(0), (x[rows] * y).sum(0)), (x, y, rows))
    text = plan_kernel(program, device_of(TARGET)).text
    assert program.checks and "TilingKind.COLUMNS" in text and "memory.checked(" in text


@pytest.mark.parametrize(("columns", "together"), [(37, True), (600, False)])
def test_several_threads_have_a_column_of_single_elements(dynamic: Any, columns: int, together: bool) -> None:
    """37,000 columns of dynamic sizes are too few for a thread each: 55.2 us on an H200, 46.0 us with eight."""
    (program,) = dynamic(lambda x: x.sum(1), torch.zeros(1000, 906, columns))
    mapping = plan_kernel(program, device_of(TARGET)).plan.mapping
    assert mapping.tiling is not None
    assert (mapping.rule == "column_groups") == together
    if together:
        assert (mapping.tiling.side, mapping.tiling.threads, mapping.tiling.unroll) == (32, 8, 8)
