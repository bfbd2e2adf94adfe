"""A fused group of scheduler nodes, recorded as one `LoopProgram`."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch._inductor import config
from torch._inductor.scheduler import SchedulerNode
from torch._inductor.virtualized import V

from halide_backend.capture.alignment import NodeLoops, align
from halide_backend.capture.program_builder import Draft, ProgramBuilder
from halide_backend.capture.recorder import Recorder
from halide_backend.capture.sizes import hint
from halide_backend.capture.structure import Structure, Structures
from halide_backend.device_type import device_type
from halide_backend.errors import Unsupported
from halide_backend.program.loop_program import Axis, Nest

if TYPE_CHECKING:
    from torch._inductor.loop_body import LoopBody


class Recordings:
    """The recordings of one graph's groups: each structure is recorded once."""

    def __init__(self) -> None:
        self._structures = Structures()
        self._recorded: dict[Structure, _Recorded | Unsupported] = {}

    def of(self, nodes: Sequence[Any]) -> Recording:
        """The loop bodies of `nodes`, run in order over common axes.

        Changes nothing in the graph.

        Raises:
            Unsupported: a node, an operation or a combination of nodes that one kernel cannot hold.
        """
        group = [node_loops(node) for node in nodes]
        structure, names = self._structures.of(group)
        known = self._recorded.get(structure)
        if known is None:
            try:
                builder = _record(group, on_cpu=device_type(nodes[0].get_device()).on_host)
                known = _Recorded(builder, names)
            except Unsupported as refusal:
                known = refusal
            self._recorded[structure] = known
        if isinstance(known, Unsupported):
            raise known.with_traceback(None)
        return Recording(known, dict(zip(known.names, names)), dict(zip(names, known.names)))


class _Recorded:
    """The first group of a structure, and the programs made of it, by the buffers removed."""

    def __init__(self, builder: ProgramBuilder, names: tuple[str, ...]) -> None:
        self.builder = builder
        self.names = names
        self.finish = functools.cache(builder.finish)


@dataclass(frozen=True)
class Recording:
    """What a group reads and stores, and its program: those of the first group of its structure, renamed.

    `_names` leads from that group's buffers to the ones of this, `_firsts` back.
    """

    _recorded: _Recorded
    _names: Mapping[str, str]
    _firsts: Mapping[str, str]

    @property
    def outer(self) -> tuple[Axis, ...]:
        return self._recorded.builder.outer

    @property
    def scatters_reductions(self) -> bool:
        return self._recorded.builder.scatters_reductions

    def stored_crosswise(self, least: int) -> bool:
        return self._recorded.builder.stored_crosswise(least)

    @property
    def reads(self) -> dict[str, str]:
        """Memory that is read, and the name by which it is read first."""
        return {self._names[memory]: self._names[name] for memory, name in self._recorded.builder.reads.items()}

    @property
    def stores(self) -> dict[str, str]:
        """Memory that is written, and the buffer that is stored to it."""
        stores = self._recorded.builder.stores
        return {self._names[memory]: self._names[store.buffer] for memory, store in stores.items()}

    def finish(self, removed: Iterable[str]) -> Draft:
        """The program without stores to `removed` buffers, and its arguments.

        Raises:
            Unsupported: the program has a size that is not an integer.
        """
        firsts = frozenset(self._firsts[name] for name in removed if name in self._firsts)
        draft = self._recorded.finish(firsts)
        return replace(draft, memories=tuple(map(self._names.__getitem__, draft.memories)))


def _record(group: Sequence[NodeLoops], *, on_cpu: bool) -> ProgramBuilder:
    aligned, outer = align(group, divided=not on_cpu)
    builder = ProgramBuilder(outer, flattened=not on_cpu)
    for loops, over in zip(group, aligned):
        recorder = Recorder(builder, over.nest, corrects=on_cpu and not _is_short(over.nest))
        with V.set_ops_handler(recorder):
            loops.body(over.iteration, over.reduction)
    return builder


def _is_short(nest: Nest) -> bool:
    """Whether Inductor, if it knew the sizes, would compute variances in two steps without a correction, for want of
    elements. It leaves all of dynamic length to the backend."""
    elements = math.prod(hint(axis.extent) for axis in nest.reduction)
    known = all(isinstance(axis.extent, int) for axis in nest.reduction)
    several = any(axis.extent != 1 for axis in nest.iteration)
    return several and not known and elements <= config.cpp.use_two_step_variance_threshold


def node_loops(node: Any) -> NodeLoops:
    """The node's loops.

    Inductor may have reordered the reduced loops of an argmax, and the position it returns counts in their logical
    order: such a node gives its loops as they were lowered.

    Raises:
        Unsupported: not a loop node, or one without steps.
    """
    if not isinstance(node, SchedulerNode) or node._body is None:
        raise Unsupported("not-a-loop-node", f"a {type(node).__name__} is no loop")
    on_host = device_type(node.get_device()).on_host
    if node.is_split_scan() and not on_host and _runs_along_memory(node._body):
        raise Unsupported("split-scan", "a scan of few long rows, which Inductor splits")
    if _is_positional(node._body) and node.node is not None:
        sizes, body, _ = node.node.get_default_sizes_body()
        return NodeLoops.of(body, *sizes)
    return NodeLoops.of(node._body, *node._body.sizes)


def _runs_along_memory(body: LoopBody) -> bool:
    """Whether a scan stores its results side by side: blocks would have to share a line, but columns are many."""
    return any(index.coeff(var) == 1 for index in body.get_write_exprs() for var in body.reduce_vars)


def _is_positional(body: LoopBody) -> bool:
    for block in (body.root_block, *body.subblocks.values()):
        for call in block.graph.find_nodes(op="call_method", target="reduction"):
            if str(call.args[3]).startswith("arg"):
                return True
    return False
