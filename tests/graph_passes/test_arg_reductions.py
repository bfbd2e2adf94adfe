"""Arg-reductions of few long lines are divided, and have eager's places after it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from halide_backend.graph_passes.arg_reductions import split_arg_reductions

KINDS = (torch.ops.aten.argmax.default, torch.ops.aten.argmin.default)


def split(function: Callable[[Tensor], Tensor], x: Tensor, symbolic: bool = False) -> GraphModule:
    """The graph of `function` after the pass, as if it were a GPU's; it was traced for a CPU, and runs there."""
    with FakeTensorMode(shape_env=ShapeEnv() if symbolic else None) as mode:
        graph = make_fx(function)(mode.from_tensor(x, static_shapes=not symbolic))
        for node in graph.graph.nodes:
            if "val" in node.meta:
                node.meta["val"] = torch.empty_like(node.meta["val"], device="cuda")
    split_arg_reductions(graph)
    graph.recompile()
    return graph


def count(graph: GraphModule) -> int:
    return sum(node.target in KINDS for node in graph.graph.nodes)


def with_ties(*shape: int) -> Tensor:
    """Numbers of which the largest and the smallest are there many times."""
    return torch.randint(-40, 40, shape, generator=torch.Generator().manual_seed(1)).float()


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: x.argmax(), (512, 256)),
        (lambda x: x.argmin(), (70_000,)),
        (lambda x: x.argmax(-1), (3, 65_536)),
        (lambda x: x.argmin(0, keepdim=True), (65_536, 3)),
        (lambda x: x.argmax(1), (2, 90_000, 2)),
        (lambda x: x.transpose(0, 1).argmax(1), (65_536, 2)),
    ],
)
def test_the_first_of_equal_places_is_found(function: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> None:
    x = with_ties(*shape)
    graph = split(function, x)
    assert count(graph) == 2
    assert torch.equal(graph(x), function(x))


def test_the_first_nan_is_found() -> None:
    x = with_ties(1 << 17)
    x[100_000] = x[60_000] = float("nan")
    for function in (torch.argmax, torch.argmin):
        graph = split(function, x)
        assert count(graph) == 2
        assert graph(x) == function(x) == 60_000


@pytest.mark.parametrize("shape", [(300, 512), (7, 5, 700), (65_536, 300)])
@pytest.mark.parametrize("function", [torch.argmax, lambda x: x.argmin(None, keepdim=True)], ids=["argmax", "argmin"])
def test_rows_of_unknown_number_and_length_are_parts(
    function: Callable[[Tensor], Tensor], shape: tuple[int, ...]
) -> None:
    graph = split(function, with_ties(300, 512) if len(shape) == 2 else with_ties(7, 6, 600), symbolic=True)
    assert count(graph) == 2
    for x in (with_ties(*shape), with_ties(*shape).transpose(0, 1)):
        assert torch.equal(graph(x), function(x))


def test_short_rows_of_unknown_length_are_left_alone() -> None:
    assert count(split(lambda x: x.argmax(), with_ties(4096, 40), symbolic=True)) == 1


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: x.argmax(), (1000,)),  # short
        (lambda x: x.argmax(-1), (600, 32_768)),  # many lines
        (lambda x: x.t().argmax(), (512, 256)),  # no view is its elements in order
        (lambda x: x.argmax(), (65_537,)),  # prime
    ],
)
def test_others_are_left_alone(function: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> None:
    assert count(split(function, with_ties(*shape))) == 1
