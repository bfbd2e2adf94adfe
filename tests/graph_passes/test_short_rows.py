"""Reductions of a few elements on CUDA: which of them are written out as their terms."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor import config as inductor_config
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import V
from torch.fx.experimental.proxy_tensor import make_fx

from halide_backend.graph_passes.short_rows import _lower, is_needed_along, keep_short_reductions


def last_reduction(function: Callable[[Tensor], Any], *shape: int) -> torch.fx.Node:
    graph = make_fx(function, tracing_mode="fake")(torch.rand(shape)).graph
    reductions = ("sum", "amax", "mean", "var_mean")
    return [node for node in graph.nodes if any(f".{name}." in str(node.target) for name in reductions)][-1]


@pytest.mark.parametrize(
    ("function", "needed"),
    [
        (lambda x: x / x.sum(-1, keepdim=True), True),
        (lambda x: x - x.amax(1, keepdim=True), True),
        (lambda x: x * (torch.var_mean(x, -1, keepdim=True, correction=0)[0] + 1).rsqrt(), True),
        (lambda x: x.sum(1, keepdim=True) + x[:, :1], False),
        (lambda x: x.new_zeros(64, 9, 5).index_add(1, x.new_zeros(1).long(), x.sum(1, keepdim=True)), False),
        (lambda x: x.sum(-1), False),
        (lambda x: x[..., :2] / x[..., :2].sum(-1, keepdim=True), False),
        (lambda x: x.mean((1, 2), keepdim=True), False),
    ],
)
def test_what_is_needed_along_what_it_reduced(function: Callable[[Tensor], Any], needed: bool) -> None:
    assert is_needed_along(last_reduction(function, 64, 5, 5)) == needed


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.ops.aten.amax.default(x, [0], True) + x,
        lambda x: x.amax(-1, keepdim=True) + x,
        lambda x: torch.ops.aten.sum.dim_IntList(x, None) + x,
        lambda x: torch.ops.aten.sum.dim_IntList(x, []) + x,
        lambda x: torch.ops.aten.mean.dim(x, None, True) + x,
    ],
)
def test_a_tensor_of_one_number_has_no_rows(function: Callable[[Tensor], Any]) -> None:
    """`torch.nansum`, `count_nonzero` and `logsumexp` of a tensor of one number ended in an IndexError or TypeError."""
    assert not is_needed_along(last_reduction(function))


@pytest.mark.parametrize(
    ("device", "backend", "most"), [("cuda", "halide_backend", 1), ("cuda", "triton", 8), ("cpu", "halide_backend", 8)]
)
def test_only_graphs_of_this_backend_are_lowered_so(device: str, backend: str, most: int) -> None:
    graph = SimpleNamespace(current_node=last_reduction(lambda x: x / x.sum(-1, keepdim=True), 64, 5))
    x = SimpleNamespace(get_device=lambda: torch.device(device))
    with V.set_graph_handler(graph), inductor_config.patch(cuda_backend=backend, unroll_reductions_threshold=8):
        assert _lower(lambda x: inductor_config.unroll_reductions_threshold, x) == most


def test_it_is_asked_once() -> None:
    """However many graphs there are, and a softmax of torch's own is among what it is asked for."""
    keep_short_reductions()
    wrapped = {str(operator): lower for operator, lower in lowerings.items() if getattr(lower, "func", None) is _lower}
    keep_short_reductions()
    again = {str(operator): lower for operator, lower in lowerings.items() if getattr(lower, "func", None) is _lower}
    assert {
        "aten.sum.dim_IntList",
        "aten.amax.default",
        "aten.var_mean.correction",
    } <= wrapped.keys() and again == wrapped
    assert all(getattr(lower.args[0], "func", None) is not _lower for lower in wrapped.values())
