from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch._inductor import config as inductor_config
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from halide_backend.graph_passes.accumulations import AccumulateInFloat32

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
    with inductor_config.patch(cuda_backend="halide_backend"):
        AccumulateInFloat32(None)(graph)
    graph.recompile()
    assert types(graph) == [torch.float32, torch.float32, torch.float32, dtype, dtype]
    # In bfloat16 256 + 1 is 256.
    assert graph(*operands(dtype)).tolist() == [0, 1800, 0]


def test_the_graph_without_it_loses_additions() -> None:
    assert traced(torch.bfloat16)(*operands(torch.bfloat16)).tolist() == [0, 512, 0]


@pytest.mark.parametrize(
    ("dtype", "device", "backend"),
    [
        (torch.float32, "cuda", "halide_backend"),
        (torch.bfloat16, "cpu", "halide_backend"),
        (torch.bfloat16, "cuda", "triton"),
    ],
)
def test_other_graphs_are_left_alone(dtype: torch.dtype, device: str, backend: str) -> None:
    graph = traced(dtype, device)
    before = str(graph.graph)
    with inductor_config.patch(cuda_backend=backend):
        AccumulateInFloat32(None)(graph)
    assert str(graph.graph) == before


def test_the_pass_that_was_there_runs_first() -> None:
    seen = []

    class Present:
        def __call__(self, graph: GraphModule) -> None:
            seen.append(len(graph.graph.find_nodes(op="call_function", target=ACCUMULATE)))

        def uuid(self) -> str:
            return "present"

    both = AccumulateInFloat32(Present())
    with inductor_config.patch(cuda_backend="halide_backend"):
        both(traced(torch.bfloat16))
    assert seen == [1] and "present" in both.uuid()
