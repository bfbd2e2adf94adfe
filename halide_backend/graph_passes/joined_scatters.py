"""Scatters whose results are added up, as one scatter.

The gradient of an interpolation adds each element to as many places as the interpolation reads, four or sixteen: that
many scatters, each into zeros of its own, and their sum. One scatter of all values, side by side along a new last
dimension, reads the elements once, and there is one tensor of zeros, which nothing has to add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

_library = torch.library.Library("halide_backend", "FRAGMENT")
_library.define("scatters(Tensor zeros, Tensor[] values, Tensor?[] indices, bool checked) -> Tensor")

#: `values` of one shape, each added to `zeros` at indices of its own, of which `indices` has those of all values.
SCATTERS = torch.ops.halide_backend.scatters.default

_aten = torch.ops.aten
_ADD = _aten.add.Tensor
_CHECKED, _UNCHECKED = _aten.index_put.default, _aten._unsafe_index_put.default

#: What the values of an interpolation's gradient are made of.
_ARITHMETIC = frozenset(
    {_ADD, _aten.sub.Tensor, _aten.mul.Tensor, _aten.neg.default, torch.ops.prims.convert_element_type.default}
)

#: Scatters that become one; an interpolation reads sixteen places at most.
_MOST = 16

#: Operations that a value may be made of anew, several times those of an interpolation.
_MOST_OPERATIONS = 64


def join_scatters(graph: GraphModule) -> None:
    """Rewrite such sums of a CUDA graph."""
    found = [n for put in (_CHECKED, _UNCHECKED) for n in graph.graph.find_nodes(op="call_function", target=put)]
    if len(found) < 2 or found[0].meta["val"].device.type != "cuda":
        return
    for node in reversed(graph.graph.find_nodes(op="call_function", target=_ADD)):
        # The last sum comes first, and takes those that are part of it along.
        if node.users and len(scatters := _summed(node)) > 1 and _differ_in_places(scatters):
            _install_lowering()
            _rewrite(node, scatters)
            graph.graph.eliminate_dead_code()


def _summed(node: Node) -> list[Node]:
    """The scatters into zeros whose sum `node` is; none if it is anything else, or part of it is used elsewhere."""
    found, left = list[Node](), list[Any]([node])
    while left:
        each = left.pop()
        if not isinstance(each, Node) or (each is not node and len(each.users) > 1):
            return []
        if each.target is _ADD and not each.kwargs:
            left += reversed(each.args)
        elif each.target in (_CHECKED, _UNCHECKED) and _adds_to_zeros(each):
            found.append(each)
        else:
            return []
        if len(found) + len(left) > _MOST:
            return []
    return found


def _adds_to_zeros(scatter: Node) -> bool:
    into, _, _, *accumulate = scatter.args
    zeros = isinstance(into, Node) and into.target is _aten.full.default and into.args[1] == 0
    return zeros and accumulate == [True]


def _differ_in_places(scatters: list[Any]) -> bool:
    """Whether they differ in their values and in where these go, and in nothing else."""
    # To LLVM two additions of a thread to one place are stores, of which the first has no effect.
    return len(set(map(_form, scatters))) == 1 and len({tuple(each.args[1]) for each in scatters}) == len(scatters)


def _form(scatter: Any) -> tuple[object, ...]:
    """What is equal of scatters that differ only in their values and in where these go."""
    into, indices, values, _ = scatter.args
    tensors = [None if each is None else each.meta["val"] for each in (into, values, *indices)]
    # Sizes that are symbols as they are written: a comparison could become a guard.
    return (scatter.target, *(each if each is None else (*map(str, each.shape), each.dtype) for each in tensors))


def _rewrite(node: Node, scatters: list[Any]) -> None:
    into = scatters[0].args[0]
    indices = [index for each in scatters for index in each.args[1]]
    with node.graph.inserting_before(node):
        values = [_computed_anew(each.args[2]) for each in scatters]
        joined = node.graph.call_function(SCATTERS, (into, values, indices, scatters[0].target is _CHECKED))
    joined.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(joined)


def _computed_anew(node: Any) -> Any:
    """`node`, computed by a few operations of its own from what has fewer elements, or is no such operation: of what
    several values need Inductor would store what takes many operations, and the scatter would read it (the gradient of
    a bilinear upsampling of 24 x 96 x 40 x 44 bfloat16 to 75 x 91 spent 105 of 248 us on an H200 on that)."""
    size = list(map(str, node.meta["val"].shape))

    def is_one(operand: Any) -> bool:
        if not isinstance(operand, Node) or operand.target not in _ARITHMETIC:
            return False
        return list(map(str, operand.meta["val"].shape)) == size

    # A square of a square is computed twice, and what that is made of four times.
    left, operations = [node], 0
    while left and operations <= _MOST_OPERATIONS:
        each = left.pop()
        if is_one(each):
            operations += 1
            left += each.args
    if operations > _MOST_OPERATIONS:
        return node

    def anew(operand: Any) -> Any:
        return operand.graph.node_copy(operand, anew) if is_one(operand) else operand

    return anew(node)


def _install_lowering() -> None:
    from torch._inductor.lowering import lowerings, register_lowering

    if SCATTERS not in lowerings:
        register_lowering(SCATTERS, type_promotion_kind=None)(_lower)


def _lower(zeros: Any, values: Sequence[Any], indices: Sequence[Any], checked: bool) -> Any:
    """One scatter of what is chosen by the number of the scatter, which is its last dimension."""
    from torch._inductor.lowering import broadcast_tensors, lowerings

    places = len(indices) // len(values)
    # What is expanded is stored before if it takes many operations: expanded first, it takes few.
    given = iter(broadcast_tensors(*(index for index in indices if index is not None)))
    expanded = [None if index is None else next(given) for index in indices]
    chosen = [_chosen(expanded[place::places]) for place in range(places)]
    return lowerings[_CHECKED if checked else _UNCHECKED](zeros, chosen, _chosen(values), True)


def _chosen(choices: Sequence[Any]) -> Any:
    """The tensors side by side along a new last dimension, computed where they are stored."""
    from torch._inductor.ir import Pointwise
    from torch._inductor.virtualized import ops

    if choices[0] is None:
        return None
    loaders = [each.make_loader() for each in choices]

    def chosen(index: Any) -> Any:
        *place, last = index
        number = ops.index_expr(last, torch.int32)
        *others, value = (load(place) for load in loaders)
        for k in reversed(range(len(others))):
            value = ops.where(ops.eq(number, ops.constant(k, torch.int32)), others[k], value)
        return value

    first = choices[0]
    return Pointwise.create(
        device=first.get_device(), dtype=first.get_dtype(), inner_fn=chosen, ranges=[*first.get_size(), len(choices)]
    )


def _added(zeros: Tensor, values: Sequence[Tensor], indices: Sequence[Tensor | None], checked: bool) -> Tensor:
    put, places = _CHECKED if checked else _UNCHECKED, len(indices) // len(values)
    for number, each in enumerate(values):
        zeros = put(zeros, indices[number * places : (number + 1) * places], each, True)
    return zeros


_library.impl("scatters", _added, "CompositeExplicitAutograd")
