"""Sums and variances over dimensions that are apart in memory, in two steps: along what is contiguous there, then over
the rest; or, where only a few elements are contiguous, those last.

Inductor divides a long reduction into parts of one length, whatever lies between them in memory. A part of 1,169 rows
of 56 pixels begins within an image, so that the place of each element takes divisions, and it is read twice for a
variance, since no block can hold it. The pixels of one channel of an image are a line that one does hold. Of the four
channels of a group in channels-last order each thread would read a part of a sector.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from halide_backend.graph_passes.new_node import new_node
from halide_backend.graph_passes.product_sizes import hint
from halide_backend.graph_passes.reduction_splits import LINES

_aten = torch.ops.aten
_CONVERT = torch.ops.prims.convert_element_type.default

#: Elements of a line: the results of shorter ones would be more than a thirtieth of what is read, and a thread group
#: does not hold longer ones.
_SHORTEST, _LONGEST = 64, 8192

#: Elements of a vector of a CPU, all of which are in one line of its caches.
_LINE = 16

#: Elements of one result up to which a block of a GPU reduces them at once, wherever they lie, and may go on with them
#: in the same kernel.
_WHOLE = 8192

#: Results that are threads enough, if each has its own to reduce (see schedule/cuda/column_reductions.py).
_BUSY = 1 << 17

#: What Inductor computes where it is read, and what it only sees in another shape (it makes the second of the first).
_COPIES = (_aten.clone.default, _CONVERT)
_VIEWS = (_aten.view.default, _aten.reshape.default)

_NARROW = (torch.float16, torch.bfloat16)


def reduce_in_two_steps(graph: GraphModule, device: str) -> None:
    """Rewrite such reductions of tensors on devices of type `device`."""

    def first(value: Any, dims: list[int], results: int) -> list[int]:
        whole = math.prod(hint(value.shape[dim]) for dim in dims) <= _WHOLE
        return ([] if whole else _line(value, dims, results)) or _columns(value, dims, results)

    _rewrite(graph, device, first)


def reduce_columns_first(graph: GraphModule, device: str) -> None:
    """Rewrite those alone that read a few columns of each group, where their number is a size of the call.

    A known number of columns is computed side by side with those of the other groups as it is, if the rules of CPUs
    choose the loops (`schedule/cpu/grouped_columns.py`). A vector or more of them is reduced along memory.
    """

    def first(value: Any, dims: list[int], results: int) -> list[int]:
        rest = _columns(value, dims, results)
        short = [value.shape[dim] for dim in dims if dim not in rest]
        return [] if all(isinstance(size, int) or hint(size) >= _LINE for size in short) else rest

    _rewrite(graph, device, first)


def _rewrite(graph: GraphModule, device: str, first: Callable[[Any, list[int], int], list[int]]) -> None:
    """Do the reductions of tensors on devices of type `device` in two steps: first those over the dimensions that
    `first` finds for an operand, the dimensions that are reduced and the number of results, if any."""
    for node in graph.graph.find_nodes(op="call_function", target=_aten.sum.dim_IntList):
        if dims := _first(node, device, first):
            with graph.graph.inserting_before(node):
                node.replace_all_uses_with(_sum(node, dims))
            graph.graph.erase_node(node)
    for node in graph.graph.find_nodes(op="call_function", target=_aten.var_mean.correction):
        exact = node.kwargs.get("correction") == 0 and node.meta["val"][0].dtype not in _NARROW
        if exact and (dims := _first(node, device, first)):
            with graph.graph.inserting_before(node):
                results = _var_mean(node, dims)
            for part in list(node.users):
                part.replace_all_uses_with(results[part.args[1]])
                graph.graph.erase_node(part)
            graph.graph.erase_node(node)


def _dimensions(node: Any) -> list[int]:
    """The dimensions that are reduced. A number by itself has none, and may be reduced along the first one."""
    dimensions = range(node.args[0].meta["val"].dim())
    dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    return sorted(dimensions[dim] for dim in dims or dimensions if dimensions)


def _first(node: Any, device: str, first: Callable[[Any, list[int], int], list[int]]) -> list[int]:
    """The dimensions to reduce first; [] if one step is as good."""
    value, dims = _read(node.args[0]), _dimensions(node)
    if value.device.type != device:
        return []
    results = math.prod(hint(size) for dim, size in enumerate(value.shape) if dim not in dims)
    return first(value, dims, results)


def _read(node: Any) -> Any:
    """`node` in the layout of the memory that a kernel reads for it: Inductor computes a copy where it is read, as that
    of an input in channels-last which PyTorch makes for a group norm on a GPU."""
    value, shapes = node.meta["val"], []
    while node.target in (*_COPIES, *_VIEWS):
        if node.target in _VIEWS:
            shapes.append(node.meta["val"].shape)
        node = node.args[0]
    original = node.meta["val"]
    try:
        for shape in reversed(shapes):
            original = original.view(shape)
    except (RuntimeError, ValueError):
        # Its elements lie in no such order.
        return value
    return original


def _line(value: Any, dims: list[int], results: int) -> list[int]:
    """The dimensions of `dims` along which memory is contiguous, if they are lines for thread groups."""
    run, stride = list[int](), 1
    for dim in reversed(dims):
        if dim != value.dim() - 1 - len(run) or not statically_known_true(value.stride(dim) == stride):
            break
        run, stride = [dim, *run], stride * value.shape[dim]
    line, points = list[int](), 1
    for dim in reversed(run):
        if points * hint(value.shape[dim]) > _LONGEST:
            break
        line, points = [dim, *line], points * hint(value.shape[dim])
    lines = math.prod(hint(size) for dim, size in enumerate(value.shape) if dim not in line)
    # What is contiguous as a whole Inductor divides so itself.
    return line if run != dims and points >= _SHORTEST and results < LINES <= lines else []


def _columns(value: Any, dims: list[int], results: int) -> list[int]:
    """The dimensions of `dims` but for a short one along which memory is contiguous, if a kept one follows it there:
    the channels of a group, of which other groups are the neighbours. All of them are columns then."""
    inner = next((dim for dim in dims if statically_known_true(value.stride(dim) == 1)), None)
    if inner is None:
        return []
    size = value.shape[inner]
    kept = (dim for dim in range(value.dim()) if dim not in dims)
    neighbours = any(statically_known_true(value.stride(dim) == size) for dim in kept)
    rest = [dim for dim in dims if dim != inner]
    long = math.prod(hint(value.shape[dim]) for dim in rest) >= _SHORTEST
    return rest if neighbours and long and 1 < hint(size) < _SHORTEST and results < _BUSY else []


def _sum(node: Any, first: Sequence[int]) -> Node:
    # Narrow numbers are summed up in float32 and rounded once, as by Inductor in one step.
    dtype = node.meta["val"].dtype
    wide = torch.float32 if dtype in _NARROW else dtype
    of_parts = new_node(_aten.sum.dim_IntList, node.args[0], first, True, dtype=wide)
    keepdim = node.args[2] if len(node.args) > 2 else node.kwargs.get("keepdim", False)
    total = new_node(_aten.sum.dim_IntList, of_parts, _dimensions(node), keepdim, dtype=wide)
    return total if wide == dtype else new_node(_CONVERT, total, dtype)


def _var_mean(node: Any, first: Sequence[int]) -> tuple[Node, Node]:
    # Chan, Golub and LeVeque (1983), for parts of one size: a part's own variance, and how far its mean is from all.
    dims = _dimensions(node)
    of_parts = new_node(_aten.var_mean.correction, node.args[0], first, correction=0, keepdim=True)
    variances, means = (new_node(getitem, of_parts, part) for part in range(2))
    mean = new_node(_aten.mean.dim, means, dims, True)
    apart = new_node(_aten.sub.Tensor, means, mean)
    spread = new_node(_aten.add.Tensor, variances, new_node(_aten.mul.Tensor, apart, apart))
    variance = new_node(_aten.mean.dim, spread, dims, True)
    if node.kwargs.get("keepdim"):
        return variance, mean
    return new_node(_aten.squeeze.dims, variance, dims), new_node(_aten.squeeze.dims, mean, dims)
