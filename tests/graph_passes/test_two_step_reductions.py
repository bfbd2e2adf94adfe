"""Reductions over a batch and its pixels are divided where memory is, and have float64's results after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from halide_backend.graph_passes.two_step_reductions import reduce_columns_first, reduce_in_two_steps
from halide_backend.inspection.compiled import compile_for

Function = Callable[[Tensor], Any]

aten, prims = torch.ops.aten, torch.ops.prims


def divided(function: Function, x: Tensor, device: str = "cpu") -> GraphModule:
    """The graph of `function` after the pass."""
    with FakeTensorMode() as mode:
        graph = make_fx(function)(mode.from_tensor(x))
    reduce_in_two_steps(graph, device)
    graph.recompile()
    return graph


def reductions(graph: GraphModule) -> list[list[int]]:
    """The dimensions of each sum, mean and variance of a graph."""
    kinds = (aten.sum.dim_IntList, aten.mean.dim, aten.var_mean.correction)
    return [node.args[1] for node in graph.graph.nodes if node.target in kinds]


def values(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.mark.parametrize(
    ("function", "shape", "steps"),
    [
        (lambda x: x.sum((0, 2, 3)), (40, 8, 16, 16), [[2, 3], [0, 2, 3]]),
        (lambda x: x.sum((0, -1), keepdim=True), (300, 3, 100), [[2], [0, 2]]),
        (lambda x: x.sum((0, 2), dtype=torch.float64), (300, 3, 100), [[2], [0, 2]]),
        # 112 x 200 pixels are more than a thread group holds: a line is a row.
        (lambda x: x.sum((0, 2, 3)), (4, 2, 112, 200), [[3], [0, 2, 3]]),
        (lambda x: x.transpose(0, 1).sum((1, 2)), (300, 3, 100), [[2], [1, 2]]),
        # A block reduces 8,192 elements of a channel at once, and may go on with them.
        (lambda x: x.sum((0, 2, 3)), (32, 9, 16, 16), [[0, 2, 3]]),
        (lambda x: x.sum((0, 2, 3)), (33, 9, 16, 16), [[2, 3], [0, 2, 3]]),
        # Two channels of a group, and other groups beside them: columns first.
        (lambda x: x.sum((0, 2)), (3000, 3, 2), [[0], [0, 2]]),
        (lambda x: x.permute(0, 2, 3, 1).sum((3, 2)), (5, 80, 8, 4), [[3], [2, 3]]),
    ],
)
def test_sums(function: Function, shape: Sequence[int], steps: list[list[int]]) -> None:
    x = values(*shape)
    graph = divided(function, x)
    assert reductions(graph) == steps
    got, want = graph(x), function(x.double())
    assert got.dtype == function(x).dtype and got.shape == want.shape
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("keepdim", [False, True])
def test_variances(keepdim: bool) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.var_mean(x, (0, 2, 3), correction=0, keepdim=keepdim)

    x = values(40, 8, 16, 16) * 3 + torch.arange(8.0)[:, None, None] * 1000
    x[3, 2, 1, 1] = 1e6
    graph = divided(function, x)
    assert reductions(graph) == [[2, 3], [0, 2, 3], [0, 2, 3]]
    for got, want in zip(graph(x), function(x.double()), strict=True):
        assert got.shape == want.shape
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=0)


def groups(x: Tensor) -> Tensor:
    """A group norm's view of its input, 4 channels a group, after the copy that PyTorch makes of it on a GPU."""
    images, channels, height, width = x.shape
    return x.clone(memory_format=torch.contiguous_format).view(images, channels // 4, 4, height * width)


def test_copies_are_read_where_they_are_made_from() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.var_mean(groups(x), (2, 3), correction=0, keepdim=True)

    def of_narrow(x: Tensor) -> tuple[Tensor, Tensor]:
        return function(prims.convert_element_type(x, torch.float32))

    x = values(3, 16, 10, 12)
    assert len(reductions(divided(function, x))) == 1
    x = x.to(memory_format=torch.channels_last)
    assert reductions(divided(of_narrow, x.bfloat16())) == [[3], [2, 3], [2, 3]]
    graph = divided(function, x)
    assert reductions(graph) == [[3], [2, 3], [2, 3]]
    for got, want in zip(graph(x), function(x.double()), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-6)


def test_a_copy_that_lies_in_no_such_order_is_read_itself() -> None:
    """In the memory of a transpose the rows of its copy are no lines."""
    x = values(200, 300, 3)

    def function(x: Tensor) -> Tensor:
        return x.permute(1, 2, 0).clone(memory_format=torch.contiguous_format).view(300, 6, 100).sum((0, 2))

    graph = divided(function, x)
    assert reductions(graph) == [[2], [0, 2]]
    torch.testing.assert_close(graph(x).double(), function(x.double()), rtol=1e-5, atol=1e-3)


def test_one_of_two_results() -> None:
    x = values(40, 8, 16, 16)
    graph = divided(lambda x: torch.var_mean(x, (0, 2, 3), correction=0)[0], x)
    assert reductions(graph) == [[2, 3], [0, 2, 3], [0, 2, 3]]
    torch.testing.assert_close(graph(x), x.var((0, 2, 3), correction=0))


def test_narrow_numbers_are_summed_up_in_float32() -> None:
    """Of 65,536 ones bfloat16's sum would stop at 256."""
    x = torch.ones(512, 2, 128, dtype=torch.bfloat16)
    graph = divided(lambda x: x.sum((0, 2)), x)
    got = graph(x)
    assert reductions(graph) == [[2], [0, 2]]
    assert [n.meta["val"].dtype for n in graph.graph.nodes if n.target == aten.sum.dim_IntList] == [torch.float32] * 2
    assert got.dtype == torch.bfloat16 and got.tolist() == [65_536, 65_536]


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool])
def test_whole_numbers_are_summed_up_in_int64(dtype: torch.dtype) -> None:
    x = values(300, 3, 100).to(dtype)
    graph = divided(lambda x: x.sum((0, 2)), x)
    assert reductions(graph) == [[2], [0, 2]]
    assert torch.equal(graph(x), x.sum((0, 2)))


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: x.sum((0, 2)), values(40, 300, 100)),  # as many results as a GPU has work for
        (lambda x: x.sum((0, 2)), values(20, 8, 100)),  # too few lines
        (lambda x: x.sum((0, 2)), values(50, 300, 4)),  # few elements of each column
        (lambda x: x.sum((0, 2)), values(64, 150_000, 2)),  # threads enough
        (lambda x: x.sum((0, 2)), values(300, 3, 10_000)),  # too long for a thread group
        (lambda x: x.sum((1, 2)), values(3, 300, 100)),  # contiguous as a whole
        (lambda x: x.sum(()), values(300, 3, 100)),
        (lambda x: x.sum([]), torch.tensor(2.0)),
        (lambda x: x.sum((0, 1)), values(300, 100, 3)),
        (lambda x: x.transpose(1, 2).sum((0, 2)), values(300, 100, 3)),  # channels-last
        (lambda x: x.var((0, 2)), values(300, 3, 100)),
        (lambda x: torch.var_mean(x, (0, 2), correction=1), values(300, 3, 100)),
        (lambda x: torch.var_mean(x, (0, 2), correction=0), values(300, 3, 100, dtype=torch.bfloat16)),
        (lambda x: x.amax((0, 2)), values(300, 3, 100)),
    ],
)
def test_what_stays(function: Function, x: Tensor) -> None:
    with FakeTensorMode() as mode:
        before = reductions(make_fx(function)(mode.from_tensor(x)))
    assert reductions(divided(function, x)) == before


def test_other_devices_stay() -> None:
    assert len(reductions(divided(lambda x: x.sum((0, 2)), values(300, 3, 100), "cuda"))) == 1


def test_dynamic_sizes() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return (x.sum((0, 2, 3)), *torch.var_mean(x, (0, 2, 3), correction=0, keepdim=True))

    x = values(40, 8, 16, 16)
    graph = make_fx(function, tracing_mode="symbolic")(x)
    reduce_in_two_steps(graph, "cpu")
    graph.recompile()
    assert reductions(graph) == [[2, 3], [0, 2, 3], [2, 3], [0, 2, 3], [0, 2, 3]]
    other = values(3, 8, 15, 20)
    for got, want in zip(graph(other), function(other.double()), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-4)


def test_sizes_that_only_the_call_knows_stay() -> None:
    graph = make_fx(lambda x: x[x[:, 0, 0] > 0].sum((0, 2)), tracing_mode="symbolic")(values(300, 3, 100))
    reduce_in_two_steps(graph, "cpu")
    assert reductions(graph) == [[0, 2]]


def in_groups(x: Tensor) -> tuple[Tensor, ...]:
    """Sums, variances and means of two channels each of a tensor in channels-last."""
    groups = x.permute(0, 3, 1, 2).reshape(x.shape[0], 4, x.shape[3] // 4, x.shape[1] * x.shape[2])
    return (groups.sum((2, 3)), *torch.var_mean(groups, (2, 3), correction=0, keepdim=True))


def test_columns_first_where_their_number_is_a_size() -> None:
    graph = make_fx(in_groups, tracing_mode="symbolic")(values(3, 10, 9, 8))
    reduce_columns_first(graph, "cpu")
    graph.recompile()
    assert reductions(graph) == [[3], [2, 3], [3], [2, 3], [2, 3]]
    other = values(2, 15, 20, 12)
    for got, want in zip(graph(other), in_groups(other.double()), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-4)


def test_a_known_number_of_columns_stays() -> None:
    with FakeTensorMode() as mode:
        graph = make_fx(in_groups)(mode.from_tensor(values(3, 10, 9, 8)))
    reduce_columns_first(graph, "cpu")
    assert reductions(graph) == [[2, 3], [2, 3]]


def test_a_vector_of_columns_is_reduced_along_memory() -> None:
    graph = make_fx(in_groups, tracing_mode="symbolic")(values(3, 10, 9, 64))
    reduce_columns_first(graph, "cpu")
    assert reductions(graph) == [[2, 3], [2, 3]]
    compiled = compile_for("halide_backend", lambda x: x.sum((0, 2)), dynamic=True)
    for shape in ((150, 64, 60), (33, 7, 17), (70, 3, 5), (9, 64, 16), (0, 5, 20)):
        x = values(*shape)
        torch.testing.assert_close(compiled(x), x.double().sum((0, 2)).float(), rtol=1e-5, atol=1e-4)
    assert set(compiled.kernels()) == {"halide_backend"} and not compiled.delegated


def test_lines_stay_where_columns_alone_are_wanted() -> None:
    graph = make_fx(lambda x: x.sum((0, 2, 3)), tracing_mode="symbolic")(values(40, 8, 16, 16))
    reduce_columns_first(graph, "cpu")
    assert reductions(graph) == [[0, 2, 3]]


@pytest.mark.parametrize("rewrite", [reduce_in_two_steps, reduce_columns_first])
def test_a_number_by_itself_stays(rewrite: Callable[[GraphModule, str], None]) -> None:
    graph = make_fx(lambda x: (x.sum(-1), x.logsumexp(0)), tracing_mode="symbolic")(torch.tensor(2.0))
    before = [node.target for node in graph.graph.nodes]
    rewrite(graph, "cpu")
    assert [node.target for node in graph.graph.nodes] == before


def test_a_group_norm_of_dynamic_sizes_is_eagers() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.nn.functional.group_norm(x, 4)

    compiled = compile_for("halide_backend", function, dynamic=True)
    for shape in ((2, 12, 9, 11), (3, 20, 6, 5)):
        x = values(*shape).to(memory_format=torch.channels_last)
        torch.testing.assert_close(compiled(x), function(x.double()).float(), rtol=1e-5, atol=1e-5)
