"""A fused group of scheduler nodes, recorded as one `LoopProgram`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch._inductor.scheduler import SchedulerNode
from torch._inductor.virtualized import V

from halide_backend.capture.alignment import NodeLoops, align
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
    nodes_loops = [node_loops(node) for node in nodes]
    on_cpu = nodes[0].get_device().type == "cpu"
    aligned, row = align(nodes_loops, divided=not on_cpu)
    builder = ProgramBuilder(row)
    for loops, over in zip(nodes_loops, aligned):
        recorder = Recorder(builder, over.nest, corrects=on_cpu)
        with V.set_ops_handler(recorder):
            loops.body(over.iteration, over.reduction)
    return builder


def node_loops(node: Any) -> NodeLoops:
    """The node's loops.

    Inductor may have reordered the reduced loops of an argmax, and the position it returns counts in their logical
    order: such a node gives its loops as they were lowered.

    Raises:
        Unsupported: not a loop node, or one without steps.
    """
    if not isinstance(node, SchedulerNode) or node._body is None:
        raise Unsupported(f"{type(node).__name__} is not a loop node")
    if _is_positional(node._body) and node.node is not None:
        sizes, body, _ = node.node.get_default_sizes_body()
        return NodeLoops.of(body, *sizes)
    return NodeLoops.of(node._body, *node._body.sizes)


def _is_positional(body: LoopBody) -> bool:
    for block in (body.root_block, *body.subblocks.values()):
        for call in block.graph.find_nodes(op="call_method", target="reduction"):
            if str(call.args[3]).startswith("arg"):
                return True
    return False
