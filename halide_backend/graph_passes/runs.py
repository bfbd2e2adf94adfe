"""Elements repeated in runs, and sums of runs: what nearest interpolation by a whole factor is, and its gradient.

torch's decompositions compute tensors of positions, 0 0 1 1 2 2, and read or add at them. Every position is then
converted, clamped and checked, and every addition reads memory again. Here the positions, which follow from constants,
are computed while the graph is compiled. A quotient of integers takes their place, which Inductor makes a part of the
index; a view of expanded memory would have loops over the runs, two steps each.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule, Node

_aten = torch.ops.aten
_READ = (_aten.index.Tensor, _aten._unsafe_index.Tensor)
_ADD = (_aten.index_put.default, _aten._unsafe_index_put.default)

_IOTA = torch.ops.prims.iota.default

#: What positions are made by, besides operations on elements.
_MADE_BY = (
    _IOTA,
    torch.ops.prims.convert_element_type.default,
    _aten.full.default,
    _aten.unsqueeze.default,
    _aten.view.default,
)
#: Positions along one axis are computed if they are at most so many.
_MOST = 1 << 16


def repeat_runs(graph: GraphModule) -> None:
    """Rewrite reads at positions that are runs as reads at quotients, and sums into them as sums of the runs."""
    constants = _constants(graph)
    for target in _READ:
        for node in graph.graph.find_nodes(op="call_function", target=target):
            source, indices = _arguments(node)
            lengths = _runs(indices, source.meta["val"].shape, constants)
            if lengths:
                node.args = (source, [index and _quotient(index, lengths[axis]) for axis, index in enumerate(indices)])
    for target in _ADD:
        for node in graph.graph.find_nodes(op="call_function", target=target):
            into, indices, values, *accumulate = _arguments(node)
            if accumulate != [True] or not _is_zero(into):
                continue
            lengths = _runs(indices, into.meta["val"].shape, constants)
            if lengths and tuple(values.meta["val"].shape) == _sizes(into, lengths):
                _replace(node, _summed(into, values, lengths, node))


def _runs(indices: list[Node | None], shape: torch.Size, constants: dict[Node, Tensor]) -> list[int] | None:
    """The length of the runs along each axis of a tensor of this `shape`, None if positions are anything else."""
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    if not all(isinstance(size, int) and size for size in shape) or axes != list(range(axes[0], axes[-1] + 1)):
        return None
    lengths = [1] * len(shape)
    for axis in axes:
        positions, along = constants.get(indices[axis]), axis - axes[-1] - 1
        # Those along one axis vary along the same axis of the result.
        if positions is None or positions.dim() < -along or positions.numel() != positions.size(along):
            return None
        length = positions.numel() // shape[axis]
        if length * shape[axis] != positions.numel() or length == 0:
            return None
        if not torch.equal(positions.flatten(), torch.arange(positions.numel()) // length):
            return None
        lengths[axis] = length
    return lengths if max(lengths) > 1 else None


def _constants(graph: GraphModule) -> dict[Node, Tensor]:
    """The values of nodes that positions are computed from and that depend on no input of the graph, unless they are
    large."""
    waiting = [node for target in (*_READ, *_ADD) for node in graph.graph.find_nodes(op="call_function", target=target)]
    waiting = [index for node in waiting for index in _arguments(node)[1] if index is not None]
    needed: set[Node] = set()
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += node.all_input_nodes
    found: dict[Node, Tensor] = {}
    for node in graph.graph.nodes if needed else ():
        if node not in needed:
            continue
        value, target = node.meta.get("val"), node.target
        if not isinstance(value, Tensor) or not all(isinstance(size, int) for size in value.shape):
            continue
        tags = getattr(target, "tags", ())
        is_pointwise = torch.Tag.pointwise in tags and torch.Tag.nondeterministic_seeded not in tags
        if not (target in _MADE_BY or is_pointwise) or value.numel() > _MOST:
            continue
        if all(operand in found for operand in node.all_input_nodes):
            arguments, named = torch.fx.map_arg((node.args, node.kwargs), found.__getitem__)
            placed = {"device": torch.device("cpu")} if "device" in named else {}
            with unset_fake_temporarily():
                found[node] = target(*arguments, **(named | placed))
    return found


def _quotient(positions: Node, length: int) -> Node:
    """The same positions, which are runs of this `length`, as integers divided by it."""
    value = positions.meta["val"]
    with positions.graph.inserting_after(positions):
        named = {"dtype": value.dtype, "device": value.device, "requires_grad": False}
        numbers = _call(positions, _IOTA, value.numel(), start=0, step=1, **named)
    with positions.graph.inserting_after(numbers):
        quotients = _call(positions, _aten.div.Tensor_mode, numbers, length, rounding_mode="floor")
    with positions.graph.inserting_after(quotients):
        return _call(positions, _aten.view.default, quotients, list(value.shape))


def _summed(into: Node, values: Node, lengths: list[int], node: Node) -> Node:
    """`into` with the sums of runs: where all of a run is -0, its sum is, too, and the result is 0."""
    shape = node.meta["val"].shape
    with node.graph.inserting_before(node):
        split = _call(node, _aten.view.default, values, _with_runs(shape, lengths))
        axes = [axis for axis, length in enumerate(lengths) if length > 1]
        sums = _call(node, _aten.sum.dim_IntList, split, [axis + 1 + number for number, axis in enumerate(axes)])
        return _call(node, _aten.add.Tensor, into, sums)


def _with_runs(shape: torch.Size, lengths: list[int]) -> list[int]:
    """The shape with an axis of its own for the runs along each axis that has some."""
    pairs = zip(shape, lengths, strict=True)
    return [n for size, length in pairs for n in ((size, length) if length > 1 else (size,))]


def _call(node: Node, target: Any, *arguments: Any, **named: Any) -> Node:
    call: Node = node.graph.call_function(target, arguments, named)
    values = torch.fx.map_arg((arguments, named), lambda operand: operand.meta["val"])
    call.meta["val"] = target(*values[0], **values[1])
    return call


def _replace(node: Node, by: Node) -> None:
    by.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(by)
    node.graph.erase_node(node)


def _sizes(into: Node, lengths: list[int]) -> tuple[int, ...]:
    return tuple(size * length for size, length in zip(into.meta["val"].shape, lengths))


def _is_zero(node: Node) -> bool:
    """Whether a tensor is zeros of a floating-point type: integers are summed in int64, and have to overflow."""
    return node.target is _aten.full.default and node.args[1] == 0 and node.meta["val"].is_floating_point()


def _arguments(node: Node) -> list[Any]:
    return list(node.args)
