"""A fused group of scheduler nodes, recorded as one `LoopProgram`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch._inductor.scheduler import SchedulerNode
from torch._inductor.virtualized import V

from halide_backend.capture.alignment import align
from halide_backend.capture.program_builder import ProgramBuilder
from halide_backend.capture.recorder import Recorder
from halide_backend.errors import Unsupported

if TYPE_CHECKING:
    from torch._inductor.loop_body import LoopBody


def record(nodes: Sequence[Any]) -> ProgramBuilder:
    """Run the loop bodies of `nodes`, in order, over common axes.

    Touches nothing of the graph, so that whoever asked may still decide otherwise.

    Raises:
        Unsupported: a node, an operation or a combination of nodes that one kernel cannot hold.
    """
    bodies = [loop_body(node) for node in nodes]
    loops, row = align(bodies)
    builder = ProgramBuilder(row)
    for body, aligned in zip(bodies, loops):
        recorder = Recorder(builder, aligned.nest)
        with V.set_ops_handler(recorder):
            body(aligned.iteration, aligned.reduction)
    return builder


def loop_body(node: Any) -> LoopBody:
    """The node's loops.

    Inductor may have reordered the reduced loops of an argmax, and the position it returns counts in their logical
    order: such a node gives its loops as they were lowered.
    """
    if not isinstance(node, SchedulerNode) or node._body is None:
        raise Unsupported(f"{type(node).__name__} is not a loop node")
    body = node._body
    if _is_positional(body) and len(body.sizes[1]) > 0 and node.node is not None:
        _, original, _ = node.node.get_default_sizes_body()
        return original
    return body


def _is_positional(body: LoopBody) -> bool:
    for block in (body.root_block, *body.subblocks.values()):
        for call in block.graph.find_nodes(op="call_method", target="reduction"):
            if str(call.args[3]).startswith("arg"):
                return True
    return False
