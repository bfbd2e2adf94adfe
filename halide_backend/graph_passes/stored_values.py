"""Values that filters read at many places are computed once and stored (docs/design/stored-values.md).

Inductor computes a value anew wherever it is read unless it has more than four reads of its own. A filter of 25 taps
then computes the grey value of a picture, three reads, 25 times for each of its points.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch._inductor import config
from torch.fx import GraphModule, Node

_library = torch.library.Library("halide_backend", "FRAGMENT")
_library.define("stored(Tensor value) -> Tensor")

#: `value`, which Inductor stores before anything reads it.
STORED = torch.ops.halide_backend.stored.default

_aten = torch.ops.aten

#: Views that read their operand at another place.
_SHIFTS = {
    _aten.slice.Tensor,
    _aten.constant_pad_nd.default,
    _aten.index.Tensor,
    _aten._unsafe_index.Tensor,
    _aten.flip.default,
}
#: Views whose users read at the same place, no element twice.
_IN_PLACE = {
    _aten.select.int,
    _aten.permute.default,
    _aten.unsqueeze.default,
    _aten.squeeze.dim,
    _aten.squeeze.dims,
    _aten.view.default,
    _aten.reshape.default,
    _aten.alias.default,
}
_VIEWS = {*_SHIFTS, *_IN_PLACE, _aten.expand.default}

#: One place that is read: what is stored there, and the views on the way.
_Read = tuple[Node, ...]


def store_what_filters_read(graph: GraphModule) -> None:
    """Mark such values."""
    _install_lowering()
    for node in values_to_store(graph):
        with graph.graph.inserting_after(node):
            stored = graph.graph.call_function(STORED, (node,))
        stored.meta.update(node.meta)
        node.replace_all_uses_with(stored, delete_user_cb=lambda user, stored=stored: user is not stored)


def values_to_store(graph: GraphModule) -> list[Node]:
    """The values whose loads and stores are fewer when they are computed once, in the order of the graph."""
    found = []
    reads: dict[Node, frozenset[_Read]] = {}
    for node in graph.graph.nodes:
        own = _reads(node, reads)
        if own is not None and len(own) > 1:
            uses = _shifted_uses(node)
            # A point costs its reads at each use; stored, its reads once, a store, and a load at each use.
            if node.target not in _VIEWS and uses * len(own) > len(own) + 1 + uses:
                found.append(node)
                own = None
            elif _is_stored_by_inductor(node, own):
                own = None
        reads[node] = frozenset({(node,)}) if own is None else own
    return found


def _reads(node: Node, known: dict[Node, frozenset[_Read]]) -> frozenset[_Read] | None:
    """What a point of `node` reads where it is computed; None for what is in memory."""
    if node.op != "call_function":
        return None
    operands = node.all_input_nodes
    if node.target in _VIEWS:
        return frozenset((*read, node) for operand in operands for read in known[operand])
    if torch.Tag.pointwise in getattr(node.target, "tags", ()):
        return frozenset().union(*(known[operand] for operand in operands))
    return None


def _is_stored_by_inductor(node: Node, reads: frozenset[_Read]) -> bool:
    """Whether Inductor stores it: by its numbers, those of its rules that matter here."""
    shared = len(node.users) > 1 and len(reads) > config.realize_reads_threshold
    # None since torch 2.13, unless somebody sets it: a number for each device.
    most = config.realize_acc_reads_threshold
    return shared or bool(len(reads) > (config.realize_cpu_acc_reads_threshold if most is None else most))


def _shifted_uses(node: Node) -> float:
    """How many times, on the average, a point of `node` is read at other places than it is computed."""
    read = 0.0
    for user in node.users:
        if user.target in _SHIFTS and user.args[0] is node:
            read += _elements(user) * max(1.0, _shifted_uses(user))
        elif user.target in _IN_PLACE:
            read += _elements(user) * _shifted_uses(user)
    return read / max(1, _elements(node))


def _elements(node: Node) -> int:
    """Number of elements in the example that is compiled; 0 if it is known only when the graph runs."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor):
        return 0
    sizes = [size if isinstance(size, int) else size.node.hint if size.node.has_hint() else 0 for size in value.shape]
    return math.prod(int(size) for size in sizes)


def _install_lowering() -> None:
    from torch._inductor.lowering import lowerings, register_lowering

    if STORED not in lowerings:
        register_lowering(STORED, type_promotion_kind=None)(_lower)


def _lower(value: Any) -> Any:
    value.realize()
    return value


def _computed(value: Tensor) -> Tensor:
    return value.clone()


_library.impl("stored", _computed, "CompositeExplicitAutograd")
