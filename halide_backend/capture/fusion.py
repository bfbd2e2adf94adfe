"""Which nodes may share one Halide pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch._inductor import config
from torch._inductor.scheduler import FusedSchedulerNode, SchedulerNode

from halide_backend import pipeline
from halide_backend.capture.kernel_group import capture
from halide_backend.capture.recording import Recordings
from halide_backend.errors import Unsupported
from halide_backend.program.aliasing import old_values
from halide_backend.schedule.cuda.choose import fits_one_tiling
from halide_backend.schedule.device import Device, Gpu, device_of

if TYPE_CHECKING:
    from torch._inductor.scheduler import BaseSchedulerNode

#: Nodes of one pipeline; beyond it Halide's compile time grows faster than what another saved launch is worth.
MAX_NODES = 48


def can_fuse(first: BaseSchedulerNode, second: BaseSchedulerNode, recordings: Recordings) -> bool:
    """Whether one row of loops computes both: same outermost axes, and nothing read elsewhere than it was written.

    The scheduler has already checked dependencies; this is what one kernel with one row adds.
    """
    if not (is_loop(first) and is_loop(second)):
        return False
    nodes = [*first.get_nodes(), *second.get_nodes()]
    if len(nodes) > MAX_NODES:
        return False
    device = device_for(nodes[0])
    on_cuda = isinstance(device, Gpu)
    single = False
    try:
        recording = recordings.of(nodes)
        updates = bool(recording.reads.keys() & recording.stores.keys())
        if on_cuda or updates:
            program = recording.finish(()).program
            _, snapshots = old_values(program)
            if snapshots:
                return False
            if isinstance(device, Gpu) and not fits_one_tiling(program, device):
                return False
            if on_cuda and updates and any(old_values(capture(tuple(nodes), recordings).program)):
                return False  # The kernel would be refused, and its nodes compiled one by one.
            single = on_cuda and not any(store.nest.iteration for store in program.stores)
    except Unsupported:
        return False
    # On a CPU, reductions beside a scatter are computed for all rows at once and by one core. On a GPU, what follows a
    # sum of everything would be a launch for a single number.
    return single or (bool(recording.row) and (on_cuda or not recording.scatters_reductions))


def can_fuse_side_by_side(first: BaseSchedulerNode, second: BaseSchedulerNode, recordings: Recordings) -> bool:
    """Whether two nodes that only share inputs may be fused; limited as Inductor's C++ backend limits it."""
    count = len(first.get_nodes()) + len(second.get_nodes())
    return count <= config.cpp.max_horizontal_fusion_size and can_fuse(first, second, recordings)


def device_for(node: Any) -> Device:
    """What `node` runs on."""
    return device_of(pipeline.current_target(node.get_device()))


def is_loop(node: Any) -> bool:
    """Whether `node` holds loop nodes only: no template, no extern call."""
    if node.is_template():
        return False
    return isinstance(node, (SchedulerNode, FusedSchedulerNode)) and all(
        isinstance(part, SchedulerNode) for part in node.get_nodes()
    )
