"""Which nodes may share one Halide pipeline, and why others may not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch._inductor import config, ir
from torch._inductor.scheduler import FusedSchedulerNode, SchedulerNode

from halide_backend import pipeline
from halide_backend.capture.kernel_group import capture
from halide_backend.capture.recording import Recording, Recordings
from halide_backend.errors import Unsupported
from halide_backend.program.access import is_contiguous
from halide_backend.program.aliasing import old_values
from halide_backend.program.loop_program import Load
from halide_backend.program.store_layout import stored_crosswise
from halide_backend.program.uses import sinks_of
from halide_backend.refusals import Refusal
from halide_backend.schedule.device import Cpu, Device, Gpu, device_of
from halide_backend.schedule.mapping.tuples import is_one_tuple

if TYPE_CHECKING:
    from torch._inductor.scheduler import BaseSchedulerNode

#: Nodes of one pipeline; beyond it Halide's compile time grows faster than what another saved launch is worth.
MAX_NODES = 48

#: Points of two axes from which results that are contiguous along either are stored by a kernel each on a CPU: one of
#: them would be stored element by element, the other kernel turns tiles of it in registers.
_LEAST_CROSSWISE = 16

#: Elements of a line that a vector reads, or tiles are turned of, on a CPU: of less each element is fetched alone.
_LEAST_LINE = 16

#: Elements of a copy from which a kernel of its own costs less than what flat loops lose that share its short lines.
_LEAST_POINTS = 4096


def refusal_to_fuse(first: BaseSchedulerNode, second: BaseSchedulerNode, recordings: Recordings) -> Refusal | None:
    """Why one kernel cannot compute both, or None if it can: they share outer axes, and read what they write only at
    the index at which it is written.

    The scheduler has already checked dependencies; this is what one kernel with common outer axes adds.
    """
    for node in (first, second):
        if not is_loop(node):
            return Refusal("fusion-not-loops", f"{node.get_name()} is a {type(node).__name__}")
    nodes = [*first.get_nodes(), *second.get_nodes()]
    if len(nodes) > MAX_NODES:
        return Refusal("fusion-of-too-many-nodes", f"{len(nodes)} nodes, more than {MAX_NODES}")
    device = device_for(nodes[0])
    on_cuda = isinstance(device, Gpu)
    if not on_cuda and (scan := scan_among(nodes)):
        return Refusal("fusion-with-scan", f"{scan} is a scan")
    try:
        recording = recordings.of(nodes)
        updates = bool(recording.reads.keys() & recording.stores.keys())
        if on_cuda or updates:
            program = recording.finish(()).program
            _, snapshots = old_values(program)
            if snapshots:
                return Refusal("fusion-over-snapshot", f"{len(snapshots)} loads of memory that is overwritten")
            if isinstance(device, Gpu):
                from halide_backend.schedule.cuda import choose

                # What nothing else reads is not stored in the end.
                try:
                    choose.one_tiling(program, device)
                except Unsupported as error:
                    if error.refusal.code != "dynamic-store-not-contiguous":
                        raise
                    program = capture(tuple(nodes), recordings).program
                    choose.one_tiling(program, device)
                stored = choose.stored_by_few(program, device)
                if stored and choose.stored_by_few(capture(tuple(nodes), recordings).program, device):
                    return Refusal("fusion-stored-by-few-threads", f"{stored} is stored along what few threads reduce")
                stored = choose.stored_crosswise(program, device)
                if stored and choose.stored_crosswise(capture(tuple(nodes), recordings).program, device):
                    return Refusal("fusion-stored-crosswise", f"{stored} is stored across its memory")
                # The kernel would be refused, and its nodes compiled one by one.
                if updates and (lost := choose.old_value_lost(capture(tuple(nodes), recordings).program, device)):
                    return Refusal("fusion-over-old-value", f"{lost} is needed by several stores")
            if on_cuda and not any(store.nest.iteration for store in program.stores):
                return None  # What follows a sum of everything would be a launch for a single number.
        else:
            if recording.stored_crosswise(_LEAST_CROSSWISE):
                stored = stored_crosswise(capture(tuple(nodes), recordings).program.stores, _LEAST_CROSSWISE)
                if stored:
                    return Refusal("fusion-stored-crosswise", f"{stored} is stored across its memory")
            alone = [recordings.of(each.get_nodes()) for each in (first, second)]
            if broken := _broken_line(recording, alone):
                return Refusal("fusion-breaks-lines", f"{broken} would be reduced in lines of a few elements")
            if _is_arranged_in_short_lines(alone[0]) and (broken := _cut_line(recording, alone[1])):
                return Refusal("fusion-breaks-lines", f"{broken} would be read in lines of a few elements")
    except Unsupported as error:
        return error.refusal
    if not recording.outer and not (isinstance(device, Cpu) and is_one_tuple(recording.finish(()).program, device)):
        return Refusal("fusion-without-common-outer-axis", "no outermost axis is common to all loops")
    if recording.scatters_reductions and not on_cuda:
        return Refusal(
            "fusion-of-reduction-and-scatter",
            "a reduction would be computed for all outer points at once, and by one core",
        )
    return None


def scan_among(nodes: Sequence[SchedulerNode]) -> str:
    """The name of the first of `nodes` that is a scan, "" if none is."""
    scans = (node.get_name() for node in nodes if isinstance(getattr(node.node, "data", None), ir.Scan))
    return next(scans, "")


def is_left(node: BaseSchedulerNode, recordings: Recordings) -> bool:
    """Whether no kernel of a GPU computes a loop, which is left to Inductor's own backend therefore."""
    if not is_loop(node):
        return False
    from halide_backend.schedule.cuda import choose

    device = device_for(node.get_nodes()[0])
    try:
        program = recordings.of(node.get_nodes()).finish(()).program
        return isinstance(device, Gpu) and not choose.has_tiling(program, device)
    except Unsupported:
        return True


def _broken_line(fused: Recording, alone: Sequence[Recording]) -> str:
    """Memory that a reduction of one of the groups `alone` reads in lines, which loops of the other one cut into short
    ones, as the windows of a picture do with the pixels of a channel; "" if there is none."""
    if all(each.outer == fused.outer for each in alone):
        return ""
    lines = _reduced_lines(fused)
    for each in alone:
        for memory, length in _reduced_lines(each).items():
            if length >= _LEAST_LINE > lines.get(memory, length) > 1:
                return memory
    return ""


def _is_arranged_in_short_lines(recording: Recording) -> bool:
    """Whether a group only copies elements, in lines of a few, as the pixels of the windows of a picture: what flat
    loops compute of them would have loops over such lines, too, and the copy costs less than vectors that are half
    empty."""
    try:
        program = recording.finish(()).program
    except Unsupported:  # Which of the two is left is found out when they are one kernel.
        return False
    if len(program.stores) != 1 or math.prod(axis.hint for axis in program.axes) < _LEAST_POINTS:
        return False
    (store,) = program.stores
    copied = program.values[store.value]
    if not isinstance(copied.attribute, Load) or copied.operands:
        return False
    short = [axis for axis in program.axes if 1 < axis.hint < _LEAST_LINE]
    return all(
        any(is_contiguous(index, axis.name) for axis in short) for index in (copied.attribute.index, store.index)
    )


def _cut_line(fused: Recording, alone: Recording) -> str:
    """Memory that the group `alone` reads in lines, which loops of the other one cut into short ones; "" if there is
    none."""
    lines = _lines(fused)
    cut = (memory for memory, length in _lines(alone).items() if length >= _LEAST_LINE > lines.get(memory, length) > 1)
    return next(cut, "")


def _reduced_lines(recording: Recording) -> dict[str, int]:
    """Elements that lie side by side along an axis, of each memory that is read for a reduction."""
    return _lines(recording, reduced=True)


def _lines(recording: Recording, *, reduced: bool = False) -> dict[str, int]:
    """The same of each memory that is read, for a reduction or for anything."""
    draft = recording.finish(())
    sinks = sinks_of(draft.program)
    found: dict[str, int] = {}
    memories = dict(zip((buffer.name for buffer in draft.program.inputs), draft.memories))
    for value, ends in zip(draft.program.values, sinks):
        if isinstance(value.attribute, Load) and (not reduced or any(end.startswith("reduction") for end in ends)):
            index = value.attribute.index
            lengths = [axis.hint for axis in draft.program.axes if is_contiguous(index, axis.name)]
            memory = memories[value.attribute.buffer]
            found[memory] = max([*lengths, 1, found.get(memory, 1)])
    return found


def refusal_to_fuse_side_by_side(
    first: BaseSchedulerNode, second: BaseSchedulerNode, recordings: Recordings
) -> Refusal | None:
    """The same for two nodes that only share inputs; limited as Inductor's C++ backend limits it."""
    count = len(first.get_nodes()) + len(second.get_nodes())
    most = config.cpp.max_horizontal_fusion_size
    if count > most:
        return Refusal("fusion-side-by-side-limit", f"{count} nodes, more than {most}")
    return refusal_to_fuse(first, second, recordings)


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
