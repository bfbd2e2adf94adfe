"""A scatter that adds all rows to one is a sum of rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from halide_backend.graph_passes.sums_at_one_place import sum_at_one_place

MASKED = torch.ops.aten._unsafe_masked_index_put_accumulate


def plain(values: Tensor) -> Tensor:
    index = torch.full((values.shape[0], 1), 1).expand(values.shape[:2])
    return torch.full((3, values.shape[2]), 0.0).index_put((index,), values, accumulate=True) * 2


def negative(values: Tensor) -> Tensor:
    return torch.full((3, values.shape[2]), 0.0).index_put((torch.full((4, 6), -3),), values, accumulate=True)


def by_a_scalar(values: Tensor) -> Tensor:
    index = torch.ops.aten.scalar_tensor(1, dtype=torch.int64).view(1, 1).expand(4, 6)
    zeros = torch.full((3, values.shape[2]), 0.0)
    first = zeros.index_put((index,), values, accumulate=True)
    return first + zeros.index_put((torch.full((4, 6), 0),), values, accumulate=True)


def masked(values: Tensor) -> Tensor:
    index = torch.full(values.shape[:2], 2)
    return MASKED(torch.full((3, values.shape[2]), 0.0), values[..., :1] > 0, [index], values) * 2


def under_a_full_mask(values: Tensor) -> Tensor:
    index = torch.full(values.shape[:2], 0)
    return MASKED(torch.full((3, values.shape[2]), 0.0), torch.full((1, 1, 1), True), [index], values)


def beyond(values: Tensor) -> Tensor:
    return MASKED(torch.full((3, values.shape[2]), 0.0), values[..., :1] > 0, [torch.full(values.shape[:2], 3)], values)


def stored(values: Tensor) -> Tensor:
    return torch.full((3, values.shape[2]), 0.0).index_put((torch.full((4, 6), 1),), values)


def into_ones(values: Tensor) -> Tensor:
    return torch.full((3, values.shape[2]), 1.0).index_put((torch.full((4, 6), 1),), values, accumulate=True)


def at_data(values: Tensor) -> Tensor:
    index = (values[..., 0] > 0).to(torch.int64)
    return torch.full((3, values.shape[2]), 0.0).index_put((index,), values, accumulate=True)


def broadcast(values: Tensor) -> Tensor:
    index = torch.full((4, 6), 1)
    return torch.full((3, values.shape[2]), 0.0).index_put((index,), values[:, :1], accumulate=True)


def of_integers(values: Tensor) -> Tensor:
    zeros = torch.full((3, values.shape[2]), 0)
    return zeros.index_put((torch.full((4, 6), 1),), values.to(torch.int64), accumulate=True)


def traced(function: Callable[[Tensor], Tensor], device: str = "cuda") -> GraphModule:
    """The graph for `device`; traced for a CPU, since it runs on one and there need be no GPU."""
    with FakeTensorMode():
        graph = make_fx(function)(torch.empty(4, 6, 5))
        for node in graph.graph.nodes:
            if "val" in node.meta:
                node.meta["val"] = torch.empty_like(node.meta["val"], device=device)
    return graph


def targets(graph: GraphModule) -> list[str]:
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("function", [plain, negative, by_a_scalar, masked, under_a_full_mask])
def test_rows_are_summed(function: Callable[[Tensor], Tensor]) -> None:
    graph = traced(function)
    sum_at_one_place(graph)
    graph.recompile()
    assert "aten.sum.dim_IntList" in targets(graph) and not any("index_put" in name for name in targets(graph))
    values = torch.randint(-9, 10, (4, 6, 5)).float()
    assert torch.equal(graph(values), function(values))


@pytest.mark.parametrize("function", [beyond, stored, into_ones, at_data, broadcast, of_integers])
def test_other_scatters_are_left_alone(function: Callable[[Tensor], Tensor]) -> None:
    graph = traced(function)
    before = targets(graph)
    sum_at_one_place(graph)
    assert targets(graph) == before


def test_graphs_of_a_cpu_are_left_alone() -> None:
    graph = traced(plain, "cpu")
    before = targets(graph)
    sum_at_one_place(graph)
    assert targets(graph) == before
