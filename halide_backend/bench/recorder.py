"""Takes the kernels of what is compiled meanwhile: what each computes, as a function of tensors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import getitem
from typing import Any

import torch
from torch._inductor import ir
from torch._inductor.lowering import fallbacks
from torch._inductor.virtualized import V
from torch.fx import Graph, Node

from halide_backend.bench.recorded import Operand, RecordedKernel
from halide_backend.capture import kernel_notes
from halide_backend.capture.kernel_group import Captured
from halide_backend.program.serialization import digest

_aten = torch.ops.aten

#: Views, but for the one that is a copy where there is no view.
_VIEWS = (_aten.reshape.default, _aten._unsafe_view.default)

_CONTIGUOUS = {"memory_format": torch.contiguous_format}

#: Characters of what Inductor calls a kernel by.
_NAME = 40


class Recorder:
    """A context in which the kernels of this backend are taken from the FX graphs that Inductor compiles, of `model`.

    A function has the operations whose results its kernel stores, back to what that reads. Kernels whose programs are
    equal are one. `kernels` are those by the digests of their programs, `left_out` counts the others by reasons: those
    that change an operand, draw random numbers, are a part of an operation, have an operator of this backend, which
    another one would run, too, an operand that random numbers cannot stand for, or dynamic sizes.
    """

    def __init__(self, model: str = "model") -> None:
        self.model = model
        self.kernels: dict[str, RecordedKernel] = {}
        self.left_out: Counter[str] = Counter()

    def __enter__(self) -> Recorder:
        kernel_notes.listeners.append(self._launched)
        return self

    def __exit__(self, *_: object) -> None:
        kernel_notes.listeners.remove(self._launched)

    def _launched(self, captured: Captured, name: str) -> None:
        key = digest(captured.program)
        if key in self.kernels:
            return
        try:
            source, operands = function_of(captured.nodes, captured.removed)
        except NoFunction as reason:
            self.left_out[str(reason)] += 1
            return
        words = re.sub(r"^\w*?fused_|_\d+$", "", name)[:_NAME].strip("_")
        dtypes = Counter(operand.dtype for operand in operands if operand.below == 0 and operand.dtype != "bool")
        dtype = dtypes.most_common(1)[0][0] if dtypes else "int64"
        self.kernels[key] = RecordedKernel(key, self.model, words, dtype, source, operands)


class NoFunction(Exception):
    """A kernel is no function of tensors, or a part of one."""


def function_of(nodes: Sequence[Any], removed: Iterable[str]) -> tuple[str, tuple[Operand, ...]]:
    """What the scheduler's `nodes` compute, whose buffers `removed` nobody else reads: source, and operands.

    Raises:
        NoFunction: see there.
    """
    inside = {origin for node in nodes for origin in node.node.get_origins()} - _of_libraries()
    graph, copies, operands = Graph(), dict[Node, Node](), list[Operand]()
    outputs = _stored(nodes, removed, inside)
    needed = _needed(outputs, inside)
    for node in needed:
        if not _is_inside(node, inside):
            copies[node] = graph.placeholder(f"x{len(operands)}")
            operands.append(_operand(node))
    for node in needed:
        if node not in copies:
            copies[node] = graph.node_copy(node, lambda argument: copies[argument])
    # What only copies an operand to another layout would be a view of it, and no kernel.
    for node in outputs:
        if not _is_computed(node, inside):
            copies[node] = graph.call_function(_aten.clone.default, (copies[node],), _CONTIGUOUS)
    graph.output(tuple(copies[node] for node in outputs))
    source = re.sub(r"; +\w+(?: = \w+)* = None", "", graph.python_code("self").src)
    return re.sub(r"(?m)^def forward\(self(?:, )?", "def forward(", source.strip()) + "\n", tuple(operands)


def _of_libraries() -> set[Node]:
    """The nodes of the FX graph that libraries compute: kernels that read their results have them as origins, too."""
    origins = {each.get_origin_node() for each in V.graph.operations if isinstance(each, ir.ExternKernel)}
    return origins | {node for node in V.graph.module.graph.nodes if node.target in fallbacks}


def _stored(nodes: Sequence[Any], removed: Iterable[str], inside: set[Node]) -> list[Node]:
    """The nodes of the FX graph whose values `nodes` store."""
    buffers = [buffer for node in nodes for buffer in node.get_outputs() if buffer.get_name() not in removed]
    origins = dict.fromkeys(buffer.node.get_origin_node() for buffer in buffers)
    if None not in origins and all(isinstance(node.meta.get("val"), torch.Tensor) for node in origins):
        return list(origins)
    # One of several results, or a part of one, has no node: what others read of what is computed.
    parts = {user for node in inside for user in node.users if user.target is getitem}
    read = [node for node in inside | parts if any(user not in inside | parts for user in node.users)]
    stored = [node for node in read if isinstance(node.meta.get("val"), torch.Tensor) and _is_computed(node, inside)]
    if not stored:
        raise NoFunction("a part of an operation")
    return sorted(stored, key=list(stored[0].graph.nodes).index)


def _is_inside(node: Node, inside: set[Node]) -> bool:
    """Whether a kernel of the nodes `inside` computes `node`.

    Raises:
        NoFunction: it changes an operand, draws random numbers, is an operator of this backend alone, or has an operand
            that random numbers cannot stand for.
    """
    if node.op != "call_function":
        return False
    computed = node.args[0] if node.target is getitem else node
    if computed not in inside:
        return False
    schema = getattr(node.target, "_schema", None)
    if schema is not None and schema.is_mutable:
        raise NoFunction("changes an operand")
    if str(node.target).startswith("halide_backend"):
        raise NoFunction("an operator of this backend")
    if "max_pool_offsets" in str(node.target):
        # Of numbers that are none of those places, scattering the indices made of them writes anywhere.
        raise NoFunction("an operand has places in windows")
    if "inductor" in str(node.target) or torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        raise NoFunction("draws random numbers")
    return True


def _is_computed(node: Node, inside: set[Node]) -> bool:
    """Whether `node` is more than a view of an operand."""
    while _is_inside(node, inside):
        if not (getattr(node.target, "is_view", False) or node.target in _VIEWS):
            return True
        (node, *_) = node.all_input_nodes
    return False


def _needed(outputs: Iterable[Node], inside: set[Node]) -> list[Node]:
    """What `outputs` need, back to what is not `inside`, in the order of the graph."""
    needed: set[Node] = set()
    stack = list(outputs)
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack += node.all_input_nodes if _is_inside(node, inside) else ()
    return [node for node in next(iter(needed)).graph.nodes if node in needed]


def _operand(node: Node) -> Operand:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        raise NoFunction("an operand is no tensor")
    if any(not isinstance(number, int) for number in (*value.shape, *value.stride())):
        raise NoFunction("sizes are dynamic")
    return Operand(tuple(value.shape), tuple(value.stride()), str(value.dtype).removeprefix("torch."), _below(node))


def _below(node: Node) -> int:
    """What integers of `node` stay below: the length of the shortest dimension in which they are looked up."""
    if node.meta["val"].dtype.is_floating_point or node.meta["val"].dtype == torch.bool:
        return 0
    lengths = [2]
    for user in node.users:
        if user.target == _aten.embedding.default and user.args[1] is node:
            lengths.append(user.args[0].meta["val"].shape[0])
        elif user.target == _aten.index.Tensor:
            shape = user.args[0].meta["val"].shape
            lengths += [shape[dim] for dim, index in enumerate(user.args[1]) if index is node]
        elif user.target == _aten.gather.default and user.args[2] is node:
            lengths.append(user.args[0].meta["val"].shape[user.args[1]])
    return min(lengths[1:], default=lengths[0])
