"""When two groups of nodes are the same computation on other buffers.

A model repeats itself, layer by layer and parameter by parameter, and the scheduler asks about many more groups than it
makes. A structure is everything that recording a group reads, with its buffers by number, so that a group is recorded
once however often the model has it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch._inductor.virtualized import V

from halide_backend.capture.program_builder import aligned, memory_layout, memory_of

if TYPE_CHECKING:
    from torch._inductor.loop_body import LoopBody

    from halide_backend.capture.alignment import NodeLoops

#: Operations whose first argument is the name of a buffer. Other names stay in the structure as they are.
_OF_BUFFERS = frozenset({"load", "load_seed", "store", "store_reduction"})


@dataclass(frozen=True)
class Structure:
    """What recording reads of a group: its loops, with buffers as numbers, and those buffers.

    It belongs to one graph, as the sizes in it do.
    """

    loops: tuple[Hashable, ...]
    buffers: tuple[Hashable, ...]


class Structures:
    """The structures of the groups of one graph."""

    def __init__(self) -> None:
        self._bodies: dict[LoopBody, tuple[int, tuple[str, ...]]] = {}
        self._numbers: dict[Hashable, int] = {}

    def of(self, group: Sequence[NodeLoops]) -> tuple[Structure, tuple[str, ...]]:
        """The structure of a group, and the names behind its numbers: buffers, each followed by its memory."""
        names: dict[str, int] = {}
        loops = []
        for node in group:
            body, buffers = self._body(node.body)
            for buffer in buffers:
                names.setdefault(buffer, len(names))
                names.setdefault(memory_of(buffer), len(names))
            loops.append((body, tuple(map(names.__getitem__, buffers)), node.iteration, node.reduction))
        return Structure(tuple(loops), tuple(_buffer(name, names) for name in names)), tuple(names)

    def _body(self, body: LoopBody) -> tuple[int, tuple[str, ...]]:
        """A number that equal loop bodies share, and the buffers that this one names, in order."""
        known = self._bodies.get(body)
        if known is None:
            buffers: dict[str, int] = {}
            form = (
                _graph(body.root_block.graph, buffers),
                tuple((name, _graph(block.graph, buffers)) for name, block in body.subblocks.items()),
                tuple(body.indexing_exprs.items()),
                tuple(body.var_ranges.items()),
                len(body.iter_vars),
                tuple((name, _parameters(module)) for name, module in body.submodules.items()),
            )
            known = self._bodies[body] = self._numbers.setdefault(form, len(self._numbers)), tuple(buffers)
        return known


def _buffer(name: str, names: dict[str, int]) -> Hashable:
    layout = memory_layout(name)
    memory = memory_of(name)
    return (
        names[memory],
        V.graph.get_dtype(name),
        tuple(layout.size),
        tuple(layout.stride),
        layout.offset,
        aligned(memory),
    )


def _graph(graph: torch.fx.Graph, buffers: dict[str, int]) -> Hashable:
    positions = {node: number for number, node in enumerate(graph.nodes)}
    return tuple(_call(node, positions, buffers) for node in graph.nodes)


def _call(node: torch.fx.Node, positions: dict[torch.fx.Node, int], buffers: dict[str, int]) -> Hashable:
    arguments: Iterable[Any] = node.args
    if node.op == "call_method" and node.target in _OF_BUFFERS:
        handler, name, *rest = node.args
        arguments = [handler, buffers.setdefault(str(name), len(buffers)), *rest]
    elif node.op == "call_method" and node.target == "bucketize":
        # Boundaries and sorter are tuples that begin with the name of a buffer.
        arguments = [
            (buffers.setdefault(str(each[0]), len(buffers)), *each[1:]) if isinstance(each, tuple) else each
            for each in node.args
        ]
    return (
        node.target,
        *(_argument(argument, positions) for argument in arguments),
        *((name, _argument(argument, positions)) for name, argument in node.kwargs.items()),
    )


def _argument(argument: Any, positions: dict[torch.fx.Node, int]) -> Hashable:
    if isinstance(argument, torch.fx.Node):
        return ("node", positions[argument])
    if isinstance(argument, (tuple, list)):
        return tuple(_argument(item, positions) for item in argument)
    # 0.0 and -0.0, 1 and True are equal, and different arguments.
    return (type(argument), repr(argument)) if isinstance(argument, (bool, int, float)) else argument


def _parameters(module: Any) -> Hashable:
    """What Inductor's closure for a masked block or an indirect index was made with; `get_index` has nothing."""
    made = getattr(module, "clone", None)
    return None if made is None else tuple((name, _argument(value, {})) for name, value in made.keywords.items())
