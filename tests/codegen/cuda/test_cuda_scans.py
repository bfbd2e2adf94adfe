"""Scans: the accesses and exchanges of their PTX, and its values, as a machine of numpy computes them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from kernel_values import CudaKernel, check_values
from ptx_machine import run
from torch import Tensor

from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.errors import Unsupported
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import device_of
from halide_backend.schedule.knobs import Choices
from halide_backend.schedule.mapping.choose import choose_mapping
from halide_backend.schedule.tiling import WARP, Tiling

Programs = Callable[..., list[LoopProgram]]
ToPtx = Callable[[LoopProgram], Any]
GPU = device_of(Target.cuda(9, 0))
INF, NAN = float("inf"), float("nan")


def tile_of(program: LoopProgram) -> Tiling:
    tiling = choose_mapping(program, GPU, Choices()).tiling
    assert tiling is not None
    return tiling


@pytest.fixture
def scanned(scan_programs: Programs, to_ptx: ToPtx) -> Callable[..., Any]:
    """scanned(function, *arguments): the PTX of the one kernel that the function makes, and its program."""

    def compiled(function: Callable[..., Any], *arguments: Tensor) -> tuple[Any, LoopProgram]:
        (program,) = scan_programs(function, *arguments)
        code = to_ptx(program)
        assert code.kernels == 1
        assert ".local" not in code.code
        return code, program

    return compiled


@pytest.fixture
def values(scanned: Callable[..., Any]) -> Callable[..., list[Tensor]]:
    """values(function, *arguments): what the machine computes."""

    def computed(function: Callable[..., Any], *arguments: Tensor) -> list[Tensor]:
        code, program = scanned(function, *arguments)
        results = function(*arguments)
        results = list(results) if isinstance(results, tuple) else [results]
        tensors = [raw(argument) for argument in arguments] + [np.full_like(raw(result), 77) for result in results]
        buffers = [*program.inputs, *program.outputs]
        assert len(buffers) == len(tensors)
        # A kernel's parameters are ordered by the widths of their elements, or words.
        order = sorted(range(len(buffers)), key=lambda number: -seen_bits(code.text, buffers[number]))
        tiling = tile_of(program)
        lines = tiling.warps if tiling.warps > 1 else 4 * WARP // tiling.threads
        rows = math.prod(axis.hint for axis in program.axes if axis.name in tiling.outer)
        blocks = rows if tiling.warps > 1 else -(-rows // lines)
        run(code.code, blocks, (tiling.threads, lines), [tensors[number] for number in order])
        outputs = tensors[len(arguments) :]
        return [torch.from_numpy(output).view(result.dtype) for output, result in zip(outputs, results, strict=True)]

    return computed


def raw(tensor: Tensor) -> Any:
    tensor = tensor.contiguous()
    return (tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor).numpy().copy()


def seen_bits(text: str, buffer: Any) -> int:
    if f"{buffer.name} = memory.pairs(" in text or re.search(rf"\b{buffer.name}\[k, .*memory\.pair\(", text):
        return 64
    words = f"{buffer.name} = memory.words(" in text or f"memory.target({buffer.name}, [k," in text
    return 32 if words else ELEMENT[buffer.dtype][1]


def small(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Numbers whose sums are exact."""
    return torch.randint(-4, 5, (rows, columns), generator=torch.Generator().manual_seed(columns)).to(dtype)


# -- accesses and exchanges -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "steps"), [(torch.float32, 4), (torch.bfloat16, 2)], ids=str)
def test_a_block_moves_a_row_in_vectors_and_exchanges_once(
    scanned: Callable[..., Any], dtype: torch.dtype, steps: int
) -> None:
    code, _ = scanned(lambda x: x.cumsum(-1), small(8, 2048, dtype))
    assert (code.loads, code.wide_loads) == (steps, steps)
    assert (code.stores, code.wide_stores) == (steps, steps)
    # Of each step a scan over 32 lanes, its total, and the lane before; then a scan over four warps.
    assert code.count(r"shfl\.sync\.up") == 6 * steps + 2
    assert code.count(r"shfl\.sync\.idx") == steps + 1
    assert (code.count(r"bar\.sync"), code.count(r"st\.shared"), code.count(r"ld\.shared")) == (1, 1, 1)
    assert code.count(r"\bbra\b") == code.count(r"\.f64") == 0


def test_a_row_that_no_vector_divides_is_read_by_adjacent_lanes(scanned: Callable[..., Any]) -> None:
    code, program = scanned(lambda x: x.cumsum(-1), small(8, 2001, torch.float32))
    tiling = tile_of(program)
    assert (tiling.threads, tiling.warps, tiling.elements) == (WARP, 4, 1)
    assert code.loads == tiling.steps == 16
    assert code.count(r"@kept\s+st\.global") == code.stores == 16


def test_short_rows_share_a_warp(scanned: Callable[..., Any]) -> None:
    code, program = scanned(lambda x: x.cumsum(-1), small(32, 32, torch.float32))
    assert tile_of(program).threads == 8
    assert code.count(r"shfl\.sync\.up") == 3 + 1


def test_lanes_of_many_lines_have_two_steps(scan_programs: Programs, needs_intrinsics: None) -> None:
    """Seven lanes of a warp had nothing: 335,544 lines of 100 floats took 71 us on an H200, so 66 us."""

    def scan(x: Tensor) -> Tensor:
        return x.cumsum(-1)

    assert [tile_of(*scan_programs(scan, torch.zeros(rows, 100))).threads for rows in (20_000, 200)] == [16, WARP]
    x = small(6, 100, torch.float32)
    plan = plan_kernel(*scan_programs(scan, x), GPU, {"scans.threads": 16})
    found = torch.full_like(x, -1)
    CudaKernel(plan.text).on_tensors(x, found)
    assert torch.equal(found, scan(x))


@pytest.mark.parametrize(
    "chosen", [lambda n: n < 3, lambda n: n % 2 == 0, lambda n: n > 5], ids=["begin", "even", "end"]
)
def test_all_lanes_come_to_a_shuffle_whatever_is_selected(values: Callable[..., Any], chosen: Any) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.where(chosen(torch.arange(x.shape[-1])), x.cumsum(-1), 77.0)

    # The machine sees to it that all lanes come; without `beside` some branch around.
    x = small(4, 40, torch.float32)
    assert torch.equal(values(function, x)[0], function(x))


@pytest.mark.parametrize(
    ("function", "shape", "why"),
    [
        (lambda x: x.permute(0, 2, 1, 4, 3, 5).cumsum(0), (2, 3, 4, 5, 6, 16), "scan-across-memory"),
        (lambda x: x.cumsum(-1), (300, 40_000), "scan-too-long"),
    ],
    ids=["columns", "long"],
)
def test_what_is_left_to_triton(scan_programs: Programs, function: Any, shape: tuple[int, ...], why: str) -> None:
    (program,) = scan_programs(function, torch.rand(*shape))
    with pytest.raises(Unsupported, match=why):
        tile_of(program)


# -- values -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [2, 31, 33, 100, 128, 1000, 2001, 5000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_sums_of_rows_of_any_length(values: Callable[..., Any], columns: int, dtype: torch.dtype) -> None:
    x = small(5, columns, dtype)
    (found,) = values(lambda x: x.cumsum(-1), x)
    assert torch.equal(found, x.double().cumsum(-1).to(dtype))


@pytest.mark.parametrize("rows", [4, 12])
@pytest.mark.parametrize("columns", [8, 20, 64])
def test_rows_of_a_part_of_a_warp(values: Callable[..., Any], rows: int, columns: int) -> None:
    x = small(rows, columns, torch.float32)
    assert torch.equal(values(lambda x: x.cumsum(-1), x)[0], x.cumsum(-1))


def test_integers_wrap(values: Callable[..., Any]) -> None:
    x = torch.full((2, 600), 2**30, dtype=torch.int32)
    assert torch.equal(values(lambda x: x.cumsum(-1, dtype=torch.int32), x)[0], x.cumsum(-1, dtype=torch.int32))
    y = torch.full((2, 300), 3, dtype=torch.uint8)
    assert torch.equal(values(lambda x: x.cumprod(-1, dtype=torch.uint8), y)[0], y.cumprod(-1, dtype=torch.uint8))


def special(columns: int) -> Tensor:
    x = torch.randn(8, columns, generator=torch.Generator().manual_seed(1))
    x[0, columns // 2] = NAN
    x[1, 1], x[1, 2] = INF, -INF
    x[2], x[3, 1:3] = -INF, INF
    x[4, ::3] = x[4].max()
    x[5, 0], x[5, 1] = 0.0, -0.0
    x[6, 3], x[6, -2] = NAN, NAN
    x[7, ::2] = x[7].min()
    return x


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("columns", [33, 256, 1000, 2001])
def test_extrema_and_where_they_are(values: Callable[..., Any], name: str, columns: int) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        found, indices = getattr(x, name)(-1)
        return found, indices

    x = special(columns)
    found, wanted = values(function, x), function(x)
    torch.testing.assert_close(found[0], wanted[0], rtol=0, atol=0, equal_nan=True)
    # NaN stays where it came first or last, and of equal numbers the last counts, as in eager.
    assert torch.equal(found[1], wanted[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("columns", [33, 256])
def test_logarithms_of_sums_of_exponentials(values: Callable[..., Any], columns: int, dtype: torch.dtype) -> None:
    x = special(columns).to(dtype)
    (found,) = values(lambda x: x.logcumsumexp(-1), x)
    torch.testing.assert_close(found, x.logcumsumexp(-1), equal_nan=True)


def test_a_product_and_a_bool(values: Callable[..., Any]) -> None:
    x = 1 + special(33).nan_to_num(0, 0, 0) / 50
    torch.testing.assert_close(values(lambda x: x.cumprod(-1), x)[0], x.cumprod(-1))
    assert torch.equal(values(lambda x: (x > 0.99).cumsum(-1), x)[0], (x > 0.99).cumsum(-1))


def test_operations_before_and_after(values: Callable[..., Any]) -> None:
    # The program reads y first.
    def function(y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        total = torch.relu(x).cumsum(-1)
        return total * x + y, (y * 2).cumsum(-1) - total

    x, y = small(6, 260, torch.float32), small(6, 260, torch.float32).flip(-1)
    for found, wanted in zip(values(function, x, y), function(x, y), strict=True):
        assert torch.equal(found, wanted)


def test_a_scan_of_a_scan(values: Callable[..., Any]) -> None:
    x = small(4, 300, torch.float32)

    def function(x: Tensor) -> Tensor:
        return torch.where(torch.arange(x.shape[-1]) > 4, x.cumsum(-1), 0).cumsum(-1)

    assert torch.equal(values(function, x)[0], function(x))


def test_several_loops_of_a_row(values: Callable[..., Any]) -> None:
    x = torch.randint(-4, 5, (2, 3, 50)).float()
    assert torch.equal(values(lambda x: x.cumsum(-1), x)[0], x.cumsum(-1))


@pytest.mark.parametrize(
    ("lines", "points", "lanes"), [(906876, 37, 8), (800000, 20, 4), (335544, 100, 8), (300, 20, 16)]
)
def test_lanes_of_a_short_line(scan_programs: Programs, lines: int, points: int, lanes: int) -> None:
    """Of 37 elements a warp had two steps, in each of which its lanes exchange their totals: 141 us on an H200, now 52.
    Few lines have as many lanes as they can use."""
    (program,) = scan_programs(lambda x: x.cumsum(-1), torch.empty(lines, points, dtype=torch.bfloat16))
    assert tile_of(program).threads == lanes


def test_values_of_lines_that_few_lanes_have(values: Callable[..., list[Tensor]]) -> None:
    lines = torch.randint(-4, 5, (135168, 12)).to(torch.bfloat16)
    (found,) = values(lambda x: x.cumsum(-1), lines)
    assert torch.equal(found, lines.cumsum(-1))


@pytest.mark.parametrize(
    ("lines", "points", "lanes"), [(33, 8, 1), (1001, 12, 8), (1001, 16, 2), (1001, 24, 4), (33_801, 37, 8)]
)
def test_lines_that_do_not_fill_the_last_warp(lines: int, points: int, lanes: int, needs_intrinsics: None) -> None:
    """Each had a warp unless all of them filled warps: 4,187,500 lines of 8 bfloat16 took 165 us on an H200."""
    x = torch.randint(-4, 5, (lines, points)).to(torch.bfloat16)
    (kernel,) = check_values(lambda x: x.cumsum(-1), x)
    assert f"threads={lanes}, side={WARP // lanes})" in kernel.text.replace("side=32", "threads=1, side=32")


def test_a_scan_of_a_constant_in_lines_that_do_not_fill_the_last_warp(needs_intrinsics: None) -> None:
    """What is stored depends on no line, but whether it is stored does."""
    (kernel,) = check_values(lambda x: (x * 0 + 1).cumprod(-1), torch.ones(33, 24, dtype=torch.bfloat16))
    assert "side=8" in kernel.text
