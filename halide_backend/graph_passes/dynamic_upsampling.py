"""Nearest-neighbour upsampling by a whole factor where sizes are dynamic: reads at quotients, and gradients as sums.

PyTorch decomposes the upsampling into a gather at positions that it computes in float32, and does so before it
differentiates, so that the gradient is a scatter that adds each element to memory. `runs.py` does the same for known
sizes, from the positions themselves.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import sympy
import torch
from torch.fx import GraphModule, Node

from halide_backend.graph_passes.new_node import new_node

_aten, _prims = torch.ops.aten, torch.ops.prims
_GATHERS = (_aten._unsafe_index.Tensor, _aten.index.Tensor)
_SCATTERS = (_aten.index_put_.default, _aten.index_put.default)

#: The position of an element along a dimension.
_POSITION = sympy.Symbol("position", integer=True, nonnegative=True)


def rewrite_upsampling(graph: GraphModule) -> None:
    """Read such an upsampling at quotients, and sum blocks of elements where they are scattered as it gathers them."""
    found = [node for target in _GATHERS for node in graph.graph.find_nodes(op="call_function", target=target)]
    for node in found:
        source, indices = node.args
        factors = _factors(indices, list(source.meta["val"].shape), list(node.meta["val"].shape))
        if factors is not None:
            leading = len(indices) - len(factors)
            node.args = (source, [*indices[:leading], *map(_quotient, indices[leading:], factors)])
    scatters = [node for target in _SCATTERS for node in graph.graph.find_nodes(op="call_function", target=target)]
    for node in scatters:
        if (factors := _gradient_factors(node)) is not None:
            _rewrite(node, factors)
    if found or scatters:
        graph.graph.eliminate_dead_code()


def _gradient_factors(node: Any) -> list[int] | None:
    """The whole factors along the last dimensions, None if something else is scattered."""
    into, indices, values, *accumulate = node.args
    if accumulate != [True] or into.target is not _aten.full.default or into.args[1] != 0 or len(into.users) > 1:
        return None
    result, elements = into.meta["val"], values.meta["val"]
    return _factors(indices, list(result.shape), list(elements.shape)) if result.dtype == elements.dtype else None


def _factors(indices: list[Any], sizes: list[Any], blocks: list[Any]) -> list[int] | None:
    """The whole factors, along the last dimensions, of what has so many `blocks` of the `sizes`; None if `indices` are
    other positions."""
    leading = sum(index is None for index in indices)
    if len(indices) != len(sizes) or len(blocks) != len(sizes):
        return None
    if all(isinstance(size, int) for size in (*sizes, *blocks)):
        return None
    if any(index is not None for index in indices[:leading]):
        return None
    if any(_expression(a) != _expression(b) for a, b in zip(sizes[:leading], blocks[:leading])):
        return None
    factors = [sympy.cancel(_expression(b) / _expression(a)) for a, b in zip(sizes[leading:], blocks[leading:])]
    dimensions = range(leading, len(sizes))
    if not factors or not all(
        factor.is_Integer and factor > 0 and _repeats(indices[d], len(sizes) - d, blocks[d], int(factor))
        for factor, d in zip(factors, dimensions)
    ):
        return None
    return [int(factor) for factor in factors]


def _quotient(index: Node, factor: int) -> Node:
    """The positions of `index`, which are those of the elements divided by `factor`, as quotients of integers."""
    # Several that are added up are all the same positions.
    position = next(node for node in _behind(index) if node.target is _prims.iota.default)
    with index.graph.inserting_before(index):
        found = new_node(_aten.div.Tensor_mode, position, factor, rounding_mode="floor")
        for _ in range(index.meta["val"].dim() - 1):
            found = new_node(_aten.unsqueeze.default, found, -1)
    return found


def _behind(node: Node) -> set[Node]:
    found, stack = {node}, [node]
    while stack:
        new = set(stack.pop().all_input_nodes) - found
        found |= new
        stack += new
    return found


def _converted(index: Node) -> Node:
    """The conversion to integers in `index`, of which each further dimension has one element."""
    while index.target is _aten.unsqueeze.default:
        (index, _) = index.args
    return index


def _repeats(index: Node, dimensions: int, size: Any, factor: int) -> bool:
    """Whether `index`, of `size` elements along the first of so many `dimensions`, is the position over `factor`.

    PyTorch computes it in float32. That is exact as long as float32 holds the position, if 1 / `factor` is not rounded
    down.
    """
    shape = list(index.meta["val"].shape)
    if len(shape) != dimensions or _expression(shape[0]) != _expression(size) or any(n != 1 for n in shape[1:]):
        return False
    index = _converted(index)
    if index.target is not _prims.convert_element_type.default or index.args[1] is not torch.int64:
        return False
    scaled = _value(index.args[0])
    ratio = None if scaled is None else sympy.cancel(scaled / _POSITION)
    if ratio is None or not ratio.is_Rational:
        return False
    used, exact = Fraction(float(np.float32(float(ratio)))), Fraction(1, factor)
    return used == Fraction(float(np.float32(1 / factor))) and used >= exact


def _value(node: Any) -> sympy.Expr | None:
    """What `node` computes from the position and from sizes, None if it does something else."""
    if not isinstance(node, Node):
        return _expression(node)
    if node.op == "placeholder" or isinstance(node.meta.get("val"), torch.SymInt):
        size = node.meta.get("val")
        return None if isinstance(size, torch.Tensor) else _expression(size)
    match node.target:
        case _prims.iota.default:
            start, step = node.kwargs.get("start"), node.kwargs.get("step")
            return _POSITION if (start, step) == (0, 1) else None
        case _aten.full.default:
            return _expression(node.args[1]) if node.args[0] == [] else None
        case _aten.scalar_tensor.default:
            return _value(node.args[0])
        case _prims.convert_element_type.default:
            return _value(node.args[0]) if node.args[1].is_floating_point else None
        case _aten.add.Tensor | _aten.mul.Tensor | _aten.true_divide.Tensor | _aten.div.Tensor:
            if node.kwargs or len(node.args) != 2:
                return None
            a, b = (_value(operand) for operand in node.args)
            if a is None or b is None:
                return None
            return {"add": a + b, "mul": a * b}.get(node.target._schema.name[6:], a / b)
    return None


def _expression(number: Any) -> sympy.Expr:
    """A size or a number, exactly."""
    if isinstance(number, torch.SymInt):
        return number.node.expr
    return sympy.Rational(number) if isinstance(number, float) else sympy.Integer(number)


def _rewrite(node: Any, factors: list[int]) -> None:
    into, _, values, _ = node.args
    sizes, leading = list(into.args[0]), len(into.args[0]) - len(factors)
    split = [part for size, factor in zip(sizes[leading:], factors) for part in (size, factor)]
    summed = [leading + 1 + 2 * k for k in range(len(factors))]
    graph = node.graph
    with graph.inserting_before(node):
        blocks = graph.call_function(_aten.reshape.default, (values, [*sizes[:leading], *split]))
        known = [size.meta["val"] if isinstance(size, Node) else size for size in blocks.args[1]]
        blocks.meta["val"] = values.meta["val"].reshape(known)
        result = graph.call_function(_aten.sum.dim_IntList, (blocks, summed))
        result.meta["val"] = blocks.meta["val"].sum(summed)
    node.replace_all_uses_with(result)
    graph.erase_node(node)
