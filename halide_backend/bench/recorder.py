"""Takes the kernels of what is compiled meanwhile: what each computes, as a function of tensors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, Node

from halide_backend.bench.recorded import Operand, RecordedKernel
from halide_backend.capture import kernel_notes
from halide_backend.capture.kernel_group import Captured
from halide_backend.program.serialization import digest

_aten = torch.ops.aten

#: Characters of what Inductor calls a kernel by.
_NAME = 40


class Recorder:
    """A context in which the kernels of this backend are taken from the FX graphs that Inductor compiles.

    A function has the operations whose results its kernel stores, back to what that reads. Kernels whose programs are
    equal are one. `kernels` are those by the digests of their programs, `left_out` counts the others by reasons: those
    that change an operand, draw random numbers, are a part of an operation, or have dynamic sizes.
    """

    def __init__(self) -> None:
        self.model = ""
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
    inside = {origin for node in nodes for origin in node.node.get_origins()}
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
    graph.output(tuple(copies[node] for node in outputs))
    source = re.sub(r"; +\w+(?: = \w+)* = None", "", graph.python_code("self").src)
    return source.strip().replace("def forward(self, ", "def forward(") + "\n", tuple(operands)


def _stored(nodes: Sequence[Any], removed: Iterable[str], inside: set[Node]) -> list[Node]:
    """The nodes of the FX graph whose values `nodes` store."""
    buffers = [buffer for node in nodes for buffer in node.get_outputs() if buffer.get_name() not in removed]
    origins = dict.fromkeys(buffer.node.get_origin_node() for buffer in buffers)
    if None not in origins and not any(isinstance(node.meta["val"], tuple) for node in origins):
        return list(origins)
    # One of several results, or a part of one, has no node: what others read of what is computed.
    parts = {user for node in inside for user in node.users if user.target is getitem}
    computed = [node for node in inside | parts if isinstance(node.meta.get("val"), torch.Tensor)]
    stored = [node for node in computed if any(user not in inside | parts for user in node.users)]
    if not stored:
        raise NoFunction("a part of an operation")
    return sorted(stored, key=list(stored[0].graph.nodes).index)


def _is_inside(node: Node, inside: set[Node]) -> bool:
    """Whether a kernel of the nodes `inside` computes `node`.

    Raises:
        NoFunction: it changes an operand, or draws random numbers.
    """
    if node.op != "call_function" or not (node in inside or (node.target is getitem and node.args[0] in inside)):
        return False
    schema = getattr(node.target, "_schema", None)
    if schema is not None and schema.is_mutable:
        raise NoFunction("changes an operand")
    if "inductor" in str(node.target) or torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        raise NoFunction("draws random numbers")
    return True


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
