"""Sums into memory at masked places are those of float32."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from halide_backend.graph_passes.accumulations import accumulate_in_float32

ACCUMULATE = torch.ops.aten._unsafe_masked_index_put_accumulate.default


def sums(into: Tensor, mask: Tensor, index: Tensor, values: Tensor) -> Tensor:
    return torch.ops.aten._unsafe_masked_index_put_accumulate(into, mask, [index], values) * 2


def operands(dtype: torch.dtype) -> list[Tensor]:
    """1,000 ones for the second of three places, every tenth of which does not count."""
    return [
        torch.zeros(3, dtype=dtype),
        torch.arange(1000) % 10 > 0,
        torch.ones(1000, dtype=torch.int64),
        torch.ones(1000, dtype=dtype),
    ]


def traced(dtype: torch.dtype, device: str = "cuda") -> GraphModule:
    """The graph for `device`; traced for a CPU, since it runs on one and there need be no GPU."""
    with FakeTensorMode():
        graph = make_fx(sums)(*operands(dtype))
        for node in graph.graph.nodes:
            if "val" in node.meta:
                node.meta["val"] = torch.empty_like(node.meta["val"], device=device)
    return graph


def types(graph: GraphModule) -> list[torch.dtype]:
    return [node.meta["val"].dtype for node in graph.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_narrow_sums_are_accumulated_in_float32(dtype: torch.dtype) -> None:
    graph = traced(dtype)
    accumulate_in_float32(graph)
    graph.recompile()
    assert types(graph) == [torch.float32, torch.float32, torch.float32, dtype, dtype]
    # In bfloat16 256 + 1 is 256.
    assert graph(*operands(dtype)).tolist() == [0, 1800, 0]


def test_the_graph_without_it_loses_additions() -> None:
    assert traced(torch.bfloat16)(*operands(torch.bfloat16)).tolist() == [0, 512, 0]


@pytest.mark.parametrize(("dtype", "device"), [(torch.float32, "cuda"), (torch.bfloat16, "cpu")])
def test_other_sums_are_left_alone(dtype: torch.dtype, device: str) -> None:
    graph = traced(dtype, device)
    before = str(graph.graph)
    accumulate_in_float32(graph)
    assert str(graph.graph) == before
