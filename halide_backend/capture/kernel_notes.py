"""Notes of the kernels of one graph, made while it is scheduled and written; they become records."""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._inductor.virtualized import V

from halide_backend.capture.kernel_group import Captured, KernelGroup
from halide_backend.kernel_records.journal import journal
from halide_backend.kernel_records.origin import Origin
from halide_backend.kernel_records.record import KernelRecord, Neighbour
from halide_backend.program.loop_program import LoopProgram
from halide_backend.refusals import Refusal

log = logging.getLogger("halide_backend")

#: Called with each pipeline that is launched, while its graph is being compiled, and the name of the launch.
listeners: list[Callable[[Captured, str], None]] = []

#: Refused neighbours that are remembered for one node of a graph, and that a kernel is told of.
_ASKED, _TOLD = 32, 16


class KernelNotes:
    """For one graph: which fusions were refused, and which groups were split; hands records to the journal."""

    def __init__(self) -> None:
        self._refused: dict[str, deque[tuple[tuple[str, ...], Neighbour]]] = {}
        self._split: dict[str, Neighbour] = {}

    def may_fuse(self, first: Any, second: Any, refusal: Refusal | None) -> bool:
        """Whether the two may be fused; a `refusal` is noted."""
        if refusal is None:
            return True
        log.debug("%s and %s are not fused: %s", first.get_name(), second.get_name(), refusal)
        names, others = _names(first.get_nodes()), _names(second.get_nodes())
        for own, other in ((names, others), (others, names)):
            asked = self._refused.setdefault(own[0], deque(maxlen=_ASKED))
            asked.append((own, Neighbour(other, refusal)))
        return False

    def not_fused(self, nodes: Sequence[str]) -> tuple[Neighbour, ...]:
        """What the kernel of `nodes` was not fused with: groups that have none of its nodes."""
        own = set(nodes)
        found = [
            neighbour
            for name in nodes
            for group, neighbour in self._refused.get(name, ())
            if own.issuperset(group) and own.isdisjoint(neighbour.nodes)
        ]
        # The last answer about each group of neighbours.
        return tuple({neighbour.nodes: neighbour for neighbour in found}.values())[-_TOLD:]

    def split(self, nodes: Sequence[Any], reason: Refusal) -> None:
        """Note that `nodes` were fused, and are compiled one by one."""
        names = _names(nodes)
        self._split.update(dict.fromkeys(names, Neighbour(names, reason)))

    def launched(self, group: KernelGroup, name: str) -> None:
        """Note the pipelines of a launch that the wrapper calls `name`."""
        for position, (captured, compilation) in enumerate(zip(group.captured, group.compilations)):
            record = replace(
                self._record(captured.nodes, name),
                position=position,
                program=captured.program,
                plan=compilation.plan,
                schedule=compilation.scheduled.schedule if compilation.scheduled is not None else "",
                text=compilation.text,
                target=compilation.target,
            )
            journal.captured(record, compilation.build)
            _trace(record)
            for listener in listeners:
                listener(captured, name)

    def left(
        self, nodes: Sequence[Any], name: str, backend: str, reason: Refusal, program: LoopProgram | None = None
    ) -> None:
        """Note nodes that Inductor's own `backend` has, as the kernel `name`."""
        record = replace(self._record(nodes, name), backend=backend, delegation=reason, program=program)
        journal.captured(record)
        _trace(record)

    def _record(self, nodes: Sequence[Any], name: str) -> KernelRecord:
        names = _names(nodes)
        return KernelRecord(
            name,
            str(nodes[0].get_device()),
            os.getpid(),
            graph=V.graph.graph_id,
            backward=bool(V.graph.is_backward),
            compile_id=str(torch._guards.CompileContext.current_compile_id() or ""),
            nodes=names,
            origins=tuple(_origins(nodes)),
            not_fused=self.not_fused(names),
            split_from=self._split.get(names[0]),
        )


def _names(nodes: Iterable[Any]) -> tuple[str, ...]:
    return tuple(str(node.get_name()) for node in nodes)


def _origins(nodes: Sequence[Any]) -> Iterable[Origin]:
    found = {origin.name: origin for node in nodes if node.node is not None for origin in node.node.get_origins()}
    for name, origin in found.items():
        yield Origin(name, str(origin.target), str(origin.meta.get("stack_trace") or ""))


def _trace(record: KernelRecord) -> None:
    """Hand the record to torch's structured trace, where tlparse finds it; nothing is done while that is off."""
    torch._logging.trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": f"halide_backend_{record.name}_{record.position}", "encoding": "json"},
        payload_fn=lambda: json.dumps(record.to_json()),
    )
