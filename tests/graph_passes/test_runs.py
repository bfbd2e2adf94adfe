"""Reads and sums at positions that are runs, 0 0 1 1 2 2, become reads at quotients and sums; all others stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from halide_backend import records, reset_stats
from halide_backend.bench.kernels.derivative import derivative
from halide_backend.graph_passes.runs import repeat_runs
from halide_backend.inspection.compiled import compile_for

prims = torch.ops.prims
QUOTIENT, ADD = torch.ops.aten.div.Tensor_mode, torch.ops.aten.index_put.default


def positions(count: int, factor: float) -> Tensor:
    """As Inductor's decompositions leave them."""
    numbers = prims.iota(count, start=0, step=1, dtype=torch.int64, device=torch.device("cpu"), requires_grad=False)
    return prims.convert_element_type(prims.convert_element_type(numbers, torch.float32) * (1 / factor), torch.int64)


def read(rows: float, columns: float) -> Callable[[Tensor], Tensor]:
    """Nearest interpolation of 2 x 3 x 4 x 6 by these factors."""
    return lambda x: x[:, :, positions(int(4 * rows), rows)[:, None], positions(int(6 * columns), columns)]


def added(rows: int, columns: int, start: float = 0.0) -> Callable[[Tensor], Tensor]:
    """The gradient of `read`, in a tensor that holds `start`."""

    def function(gradient: Tensor) -> Tensor:
        into = torch.full((2, 3, 4, 6), start)
        index = [None, None, positions(4 * rows, rows)[:, None], positions(6 * columns, columns)]
        return torch.ops.aten.index_put(into, index, gradient, True)

    return function


def rewritten(function: Callable[[Tensor], Tensor], operand: Tensor) -> tuple[GraphModule, set[object]]:
    """The graph after the pass, and what it calls."""
    with FakeTensorMode() as mode:
        graph = make_fx(function)(mode.from_tensor(operand))
    repeat_runs(graph)
    graph.recompile()
    return graph, {node.target for node in graph.graph.nodes}


@pytest.mark.parametrize("factors", [(2, 2), (1, 3), (3, 1), (4, 2)])
def test_reads_of_runs_are_at_quotients(factors: tuple[int, int]) -> None:
    x = torch.randn(2, 3, 4, 6)
    graph, called = rewritten(read(*factors), x)
    assert QUOTIENT in called
    assert torch.equal(graph(x), read(*factors)(x))


@pytest.mark.parametrize("factors", [(2, 2), (1, 3), (3, 1), (4, 2)])
def test_sums_at_runs_are_sums_of_runs(factors: tuple[int, int]) -> None:
    gradient = torch.randn(2, 3, 4 * factors[0], 6 * factors[1])
    graph, called = rewritten(added(*factors), gradient)
    assert ADD not in called
    torch.testing.assert_close(graph(gradient), added(*factors)(gradient))


@pytest.mark.parametrize("factors", [(1.5, 2), (2, 0.5), (1, 1)])
def test_reads_at_other_positions_stay(factors: tuple[float, float]) -> None:
    x = torch.randn(2, 3, 4, 6)
    graph, called = rewritten(read(*factors), x)
    assert QUOTIENT not in called
    assert torch.equal(graph(x), read(*factors)(x))


def test_sums_into_other_values_stay() -> None:
    gradient = torch.randn(2, 3, 8, 12)
    graph, called = rewritten(added(2, 2, start=1.0), gradient)
    assert ADD in called
    torch.testing.assert_close(graph(gradient), added(2, 2, start=1.0)(gradient))


def test_positions_that_are_data_stay() -> None:
    x = torch.randn(4, 6)
    index = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    with FakeTensorMode() as mode:
        graph = make_fx(lambda x, index: x[index])(mode.from_tensor(x), mode.from_tensor(index))
    repeat_runs(graph)
    assert torch.equal(graph(x, index.flip(0)), x[index.flip(0)])


def runs(count: int, dtype: torch.dtype = torch.int64) -> Tensor:
    """0 0 1 1 2 2"""
    return (torch.arange(count) // 2).to(dtype)


def sums(gradient: Tensor) -> Tensor:
    return torch.zeros(4, 3, dtype=gradient.dtype).index_put((runs(8),), gradient, accumulate=True)


EDGES: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "int32 positions": (lambda x: x[runs(8, torch.int32)], torch.randn(4, 3)),
    "no rows": (lambda x: x[runs(0)], torch.randn(0, 3)),
    "no positions": (lambda x: x[runs(0)], torch.randn(4, 3)),
    "one position for both axes": (lambda x: x[runs(8), runs(8)], torch.randn(4, 4)),
    "axes that are apart": (lambda x: x[runs(8), :, runs(8)], torch.randn(4, 3, 4)),
    "a scalar position": (lambda x: x[torch.full((), 0)], torch.randn(1, 3)),
    "positions from the end": (lambda x: x[runs(8) - 4], torch.randn(4, 3)),
    "integers": (sums, torch.randint(-5, 5, (8, 3), dtype=torch.int32)),
    "integers that overflow": (sums, torch.full((8, 3), 100, dtype=torch.int8)),
    "bools": (sums, torch.tensor([[True], [False]]).expand(2, 3).repeat(4, 1)),
    "negative zeros": (sums, torch.full((8, 3), -0.0)),
    "values that are broadcast": (
        lambda g: torch.zeros(4, 3).index_put((runs(8),), g, accumulate=True),
        torch.randn(3),
    ),
}


@pytest.mark.parametrize("name", EDGES)
def test_edges(name: str) -> None:
    function, operand = EDGES[name]
    got, wanted = compile_for("halide_backend", function)(operand), function(operand)
    assert got.dtype == wanted.dtype and torch.equal(got, wanted)
    assert torch.equal(got.signbit(), wanted.signbit())


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_compiled_interpolation_and_its_gradient(memory_format: torch.memory_format) -> None:
    def twice(x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=2)

    def both(x: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return twice(x), derivative(twice)(x, gradient)

    x, gradient = torch.randn(2, 5, 7, 9), torch.randn(2, 5, 14, 18)
    operands = [operand.to(memory_format=memory_format) for operand in (x, gradient)]
    reset_stats()
    got, wanted = compile_for("halide_backend", both)(*operands), both(*operands)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other)
    assert got[0].stride() == wanted[0].stride()
    programs = [record.program for record in records() if record.program is not None]
    assert programs
    assert not any(value.operation == "indirect" for program in programs for value in program.values)
