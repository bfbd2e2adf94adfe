"""What capture makes of a graph: the recorded programs themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch.utils._sympy.functions import FloorDiv, Max

from halide_backend import pipeline
from halide_backend.capture.indexing import without_empty
from halide_backend.capture.sizes import reduced
from halide_backend.program.loop_program import Axis, Load, LoopProgram, Reduction
from halide_backend.program.store_layout import output_layout
from halide_backend.schedules.choice import ScheduledKernel

Compile = Callable[..., Any]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[LoopProgram]]:
    """The programs of all kernels that are compiled during the test."""
    found: list[LoopProgram] = []
    original = pipeline.schedule_kernel

    def keeping(program: LoopProgram, *rest: Any, **options: Any) -> ScheduledKernel:
        found.append(program)
        return original(program, *rest, **options)

    monkeypatch.setattr(pipeline, "schedule_kernel", keeping)
    yield found


def extents(program: LoopProgram) -> dict[str, Any]:
    return {axis.name: axis.extent for axis in program.axes}


@pytest.mark.parametrize("columns", [64, 40])
def test_rows_are_found_from_indices_not_from_extents(
    columns: int, compiled: Compile, programs: list[LoopProgram]
) -> None:
    """With as many columns as rows a sum over rows must not be taken for one over columns."""
    x = torch.randn(64, columns)
    compiled(lambda x: x - x.sum(0), x)
    totals = [v for p in programs for v in p.values if isinstance(v.attribute, Reduction)]
    loads = [v.attribute for p in programs for v in p.values if isinstance(v.attribute, Load)]
    (over,) = totals[0].attribute.axes
    summed = next(load for load in loads if over.symbol in load.index.free_symbols)
    assert summed.index.coeff(over.symbol) == columns


def test_softmax_is_one_nest_of_rows(compiled: Compile, programs: list[LoopProgram]) -> None:
    compiled(lambda x: torch.softmax(x, -1), torch.randn(64, 64))
    (program,) = programs
    assert [axis.extent for axis in program.outer] == [64]
    assert extents(program) == {"x0": 64, "x1": 64}
    kinds = [v.attribute.kind for v in program.values if isinstance(v.attribute, Reduction)]
    assert sorted(kinds) == ["max", "sum"]
    assert all(v.axes == {"x0"} for v in program.values if isinstance(v.attribute, Reduction))


def test_a_loop_is_not_cut_where_a_reduction_over_other_points_ends(
    compiled: Compile, programs: list[LoopProgram]
) -> None:
    """A row of 384 is three times as long as the 128 rows of a mask, with which it shares no value."""
    x, mask = torch.randn(16, 128, 384), torch.rand(16, 128)
    compiled(lambda x, mask: (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True), x, mask)
    (program,) = programs
    assert sorted(extents(program).values()) == [16, 128, 128, 384]


def test_a_mutated_argument_is_two_buffers_over_one_memory(compiled: Compile, programs: list[LoopProgram]) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x * 2
        x.add_(y)
        return z

    compiled(function, torch.randn(33, 70), torch.randn(33, 70))
    (program,) = programs
    mutated = [buffer for buffer in program.inputs + program.outputs if buffer.mutated]
    assert len(mutated) == 2
    assert len({buffer.memory for buffer in mutated}) == 1


def test_values_are_recorded_once(compiled: Compile, programs: list[LoopProgram]) -> None:
    compiled(lambda x, y: ((x + y).exp(), (x + y).exp() * 2), torch.randn(100), torch.randn(100))
    (program,) = programs
    assert [v.operation for v in program.values].count("exp") == 1


def test_a_value_nobody_keeps_is_not_stored(compiled: Compile, programs: list[LoopProgram]) -> None:
    compiled(lambda x: F.layer_norm(x, (70,)).relu(), torch.randn(33, 70))
    (program,) = programs
    assert len(program.stores) == 1
    assert len(program.inputs) == 1


def test_padding_is_loaded_coordinate_by_coordinate(compiled: Compile, programs: list[LoopProgram]) -> None:
    compiled(lambda x: F.pad(x, (2, 3, 1, 1)) + 1, torch.randn(10, 37))
    loads = [v.attribute for p in programs for v in p.values if isinstance(v.attribute, Load)]
    assert [[(c.extent, c.stride) for c in load.coordinates] for load in loads] == [[(10, 37), (37, 1)]]


def test_a_program_can_be_read(compiled: Compile, programs: list[LoopProgram]) -> None:
    compiled(lambda x, y: torch.relu(x + y).sum(1), torch.randn(8, 33), torch.randn(8, 33))
    lines = str(programs[0]).splitlines()
    assert lines[0] == "outer (x0<8)"
    assert lines[1:4] == ["in  in_ptr0: float32[264]", "in  in_ptr1: float32[264]", "out out_ptr0: float32[8]"]
    assert lines[-1].startswith("out_ptr0[x0] <- v")
    assert any("= add v0 v1 : float32" in line for line in lines)


#: Launches of Inductor's C++ backend for the same functions (torch 2.13, forward or forward and backward).
CPP_LAUNCHES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], bool, int]] = {}


def launches(name: str, most: int, *shapes: tuple[int, ...], gradients: bool = False) -> Callable[..., Any]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        CPP_LAUNCHES[name] = (function, shapes, gradients, most)
        return function

    return register


launches("softmax", 1, (64, 100))(lambda x: torch.softmax(x, -1))
launches("log_softmax with gradient", 2, (64, 100), gradients=True)(lambda x: torch.log_softmax(x, -1))
launches("layer norm with gradients", 2, (64, 256), (256,), (256,), gradients=True)(
    lambda x, w, b: F.layer_norm(x, (256,), w, b)
)
launches("rms norm", 1, (64, 256), (256,))(lambda x, w: F.rms_norm(x, (256,), w))
launches("residual layer norm", 1, (64, 256), (64, 256))(lambda x, y: F.layer_norm(x + y, (256,)) + x)
launches("two outputs and their reductions", 1, (40, 130), (40, 130))(
    lambda x, y: (x + y, x * y, (x + y).sum(-1), (x * y).amax(-1))
)
launches("gated unit", 1, (32, 128), (32, 128))(lambda x, y: F.silu(x) * y)
launches("sums both ways", 1, (40, 96))(lambda x: (x.sum(0), x.sum(1), x * 2))
launches("parts", 1, (16, 20), (16, 33))(lambda x, y: torch.cat([x.relu(), y * 2], 1))


@pytest.mark.parametrize("name", CPP_LAUNCHES)
def test_no_more_launches_than_the_cpp_backend(name: str, check: Any, compiled: Compile) -> None:
    function, shapes, gradients, most = CPP_LAUNCHES[name]
    outcome = compiled(function, *(torch.randn(shape) for shape in shapes), gradients=gradients)
    assert 0 < outcome.launches <= most


def test_parts_of_a_concatenation_that_begin_anywhere_are_not_aligned(
    compiled: Compile, programs: list[LoopProgram]
) -> None:
    x, y = torch.randn(64), torch.randn(63)
    compiled(lambda x, y: torch.cat([x.sum(0, keepdim=True), y * 2, x.exp()]), x, y)
    outputs = [buffer for program in programs for buffer in program.outputs]
    assert sorted((b.extent, b.aligned) for b in outputs) == [(1, True), (63, False), (64, True)]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[:, 1:-1, 1:-1] * 2,
        lambda x: F.max_pool2d(x, 3, 2, 1) * 2,
        lambda x: x.chunk(3, -1)[1].view(len(x), x.shape[1], 4, 5).transpose(1, 2).contiguous() * 2,
        lambda x: torch.cat((-x[..., (x.shape[-1] + 1) // 2 :], x[..., : (x.shape[-1] + 1) // 2]), -1),
    ],
    ids=["slice", "pooling", "heads", "halves"],
)
def test_outputs_of_dynamic_windows_are_boxes(
    function: Callable[[torch.Tensor], torch.Tensor], programs: list[LoopProgram]
) -> None:
    """Their strides, max(1, n - 2) and (n - 1)//2 + 1, and their extents are the same expressions; a guard says that
    max(1, (n + 2)//12) is 5; (n + 1)//2 is not more than n. A store that is no box would be a serial loop."""
    x = torch.randn(6, 33, 60)
    for size in (x, x[2:, 2:].contiguous()):
        torch.testing.assert_close(torch.compile(function, dynamic=True)(size), function(size))
    stores = [(store, program) for program in programs for store in program.stores]
    assert stores
    for store, program in stores:
        assert not output_layout(store, program).scattered


def test_rows_of_dynamic_length_are_added_as_rows(programs: list[LoopProgram]) -> None:
    """Columns of a scatter that is by rows are vectors, whatever their number is."""
    compiled = torch.compile(lambda x, i, s: x.index_add(0, i, s), dynamic=True)
    for rows, columns in ((6, 33), (9, 3), (2, 64)):
        x, s, i = torch.randn(rows, columns), torch.randn(12, columns), torch.randint(rows, (12,))
        torch.testing.assert_close(compiled(x, i, s), x.index_add(0, i, s))
    layouts = [output_layout(store, program) for program in programs for store in program.stores]
    (scatter,) = [layout for layout in layouts if layout.scattered]
    assert scatter.variables == ("x1", "p")
    (columns, step), (_, row) = scatter.dims
    assert (step, columns) == (1, row)


def test_a_stride_of_what_may_be_empty_is_its_length_only_within_a_loop_over_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("halide_backend.capture.indexing.is_equal", lambda size, other: size == other)
    monkeypatch.setattr("halide_backend.capture.indexing.extent", sympy.expand)
    n, m = sympy.symbols("n m", integer=True, nonnegative=True)
    rows, columns = Axis("x0", n, 8), Axis("x1", m - 2, 8)
    index = rows.symbol * Max(1, m - 2) + columns.symbol
    assert without_empty(index, [rows, columns]) == sympy.expand(rows.symbol * (m - 2) + columns.symbol)
    assert without_empty(index, [rows]) == index
    merged = Axis("x0", sympy.expand(n * (m - 2)), 64)
    assert without_empty(index, [merged]) == sympy.expand(rows.symbol * (m - 2) + columns.symbol)


@pytest.mark.parametrize("number", range(-4, 5))
def test_quotients_have_one_form(number: int) -> None:
    n = sympy.Symbol("n", integer=True)
    whole, other = FloorDiv(n + number, 3) * 5, FloorDiv(n + number - 3, 3) * 5 + 5
    assert reduced(whole) == reduced(other)
    for value in range(-7, 8):
        assert reduced(whole).subs(n, value) == (value + number) // 3 * 5
