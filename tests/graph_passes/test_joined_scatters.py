"""Scatters whose results are added up are one, and have eager's values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from halide_backend.graph_passes.joined_scatters import SCATTERS, join_scatters

INTO = torch.ops.aten.index_put


def put(x: Tensor, step: int, size: int = 7) -> Tensor:
    index = (torch.arange(x.shape[1]) * step) % 7
    return INTO(torch.full((x.shape[0], size), 0.0), [None, index], x * step, True)


def two(x: Tensor) -> Tensor:
    return put(x, 2) + put(x, 3)


def five(x: Tensor) -> Tensor:
    return ((put(x, 1) + put(x, 2)) + (put(x, 3) + put(x, 4)) + put(x, 5)).relu()


def one_used_twice(x: Tensor) -> Tensor:
    first = put(x, 1)
    return first.relu() + (put(x, 2) + put(x, 3)) + first


def of_one_product(x: Tensor) -> Tensor:
    y = x * 3
    index = torch.arange(x.shape[1]) % 7
    zeros = torch.full((x.shape[0], 7), 0.0)
    return INTO(zeros, [None, index], y - y * 2, True) + INTO(zeros, [None, (index + 1) % 7], y * 2, True)


def of_squares(x: Tensor) -> Tensor:
    for _ in range(40):
        x = x * x
    return put(x, 2) + put(x, 3)


def of_a_thousand(x: Tensor) -> Tensor:
    total = put(x, 2) + put(x, 3)
    for _ in range(1500):
        total = total + x[:, :7]
    return total + put(x, 4)


def unequal(x: Tensor) -> tuple[Tensor, ...]:
    return put(x, 2) + put(x.relu()[:, 1:], 3), put(x, 2) + x[:, :7]


def at_one_place(x: Tensor) -> Tensor:
    index = torch.arange(x.shape[1]) % 7
    zeros = torch.full((x.shape[0], 7), 0.0)
    first = INTO(zeros, [None, index], x, True)
    return first + INTO(zeros, [None, index], x.exp(), True)


def into_ones(x: Tensor) -> Tensor:
    index = torch.arange(x.shape[1]) % 7
    ones = torch.full((x.shape[0], 7), 1.0)
    return INTO(ones, [None, index], x, True) + put(x, 2)


def stored(x: Tensor) -> Tensor:
    index = torch.arange(x.shape[1]) % 7
    return INTO(torch.full((x.shape[0], 7), 0.0), [None, index], x) + put(x, 2)


def scaled(x: Tensor) -> Tensor:
    return torch.add(put(x, 2), put(x, 3), alpha=2)


def traced(function: Callable[[Tensor], Tensor], symbolic: bool = False, device: str = "cuda") -> GraphModule:
    """The graph for `device`; traced for a CPU, since it runs on one and there need be no GPU."""
    with FakeTensorMode(shape_env=ShapeEnv() if symbolic else None) as mode:
        graph = make_fx(function)(mode.from_tensor(torch.empty(5, 12), static_shapes=not symbolic))
        for node in graph.graph.nodes:
            if isinstance(node.meta.get("val"), Tensor):
                node.meta["val"] = torch.empty_like(node.meta["val"], device=device)
    return graph


def joined(graph: GraphModule) -> list[int]:
    """How many scatters became one, for each that did."""
    return [len(node.args[1]) for node in graph.graph.find_nodes(op="call_function", target=SCATTERS)]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    ("function", "counts"), [(two, [2]), (five, [5]), (one_used_twice, [2]), (of_one_product, [2])]
)
def test_sums_of_scatters(function: Callable[[Tensor], Tensor], counts: list[int], symbolic: bool) -> None:
    graph = traced(function, symbolic)
    join_scatters(graph)
    graph.recompile()
    assert joined(graph) == counts
    x = torch.randint(-9, 10, (5, 12)).float()
    assert torch.equal(graph(x), function(x))


def test_each_value_is_computed_on_its_own() -> None:
    """What several need would be stored before, and read again by the scatter."""
    graph = traced(of_one_product)
    join_scatters(graph)
    products = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)
    assert len(products) == 5 and all(len(node.users) == 1 for node in products)


@pytest.mark.parametrize("function", [unequal, at_one_place, into_ones, stored, scaled])
def test_other_sums_are_left_alone(function: Callable[[Tensor], Tensor]) -> None:
    graph = traced(function)
    join_scatters(graph)
    assert joined(graph) == []


def test_graphs_of_a_cpu_are_left_alone() -> None:
    graph = traced(two, device="cpu")
    join_scatters(graph)
    assert joined(graph) == []


def test_a_value_of_many_operations_is_not_computed_anew() -> None:
    """A square of a square of ... would be 2^40 operations."""
    graph = traced(of_squares)
    join_scatters(graph)
    assert len(joined(graph)) == 1 and len(graph.graph.nodes) < 100
    x = torch.randint(0, 2, (5, 12)).float()
    assert torch.equal(graph(x), of_squares(x))


def test_long_sums_are_not_followed_to_their_end() -> None:
    """A function that called itself for each term ended in a RecursionError."""
    graph = traced(of_a_thousand)
    join_scatters(graph)
    assert len(joined(graph)) == 1
    x = torch.randint(-9, 10, (5, 12)).float()
    assert torch.equal(graph(x), of_a_thousand(x))
