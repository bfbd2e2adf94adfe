"""HalideScheduling: what Inductor's scheduler asks of a backend."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

import sympy
import torch
from torch._inductor import metrics
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.debug import set_kernel_post_grad_provenance_tracing
from torch._inductor.scheduler import BaseScheduling, FusedSchedulerNode, NopKernelSchedulerNode
from torch._inductor.utils import get_fused_kernel_name
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from halide_backend.build.target import Target
from halide_backend.capture.delegate import Delegate, kernels_called
from halide_backend.capture.fusion import is_loop, refusal_to_fuse, refusal_to_fuse_side_by_side
from halide_backend.capture.kernel_group import Captured, KernelGroup, capture, is_short
from halide_backend.capture.kernel_notes import KernelNotes
from halide_backend.capture.length import BLOCKS, ELEMENTS, share_lengths
from halide_backend.capture.package_targets import gpu_package_targets, package_targets
from halide_backend.capture.recording import Recordings
from halide_backend.device_type import DeviceType
from halide_backend.errors import HalideBackendError, ScheduleError
from halide_backend.pipeline import Compilation, compile_program, start_workers
from halide_backend.program.loop_program import LoopProgram
from halide_backend.refusals import Refusal

log = logging.getLogger("halide_backend")

#: Searches for schedules of kernels, given by name and program, on a device, and keeps them.
Tune: TypeAlias = Callable[[Sequence[tuple[str, LoopProgram]], torch.device], None]

#: Arguments of one launch, as many as Inductor's C++ backend allows, and of what is launched together.
_MAX_ARGUMENTS, _MAX_TOGETHER = 500, 2000


class HalideScheduling(BaseScheduling):
    """Turns fused nodes into Halide pipelines and collects them into one launch per flush.

    Constructed with None whenever Inductor only wants to know the features: no worker is started for that.
    """

    def __init__(self, scheduler: Any, kind: DeviceType, tune: Tune | None = None) -> None:
        """`tune` is called with all kernels of a graph before the first is compiled, if they are to be tuned."""
        super().__init__(scheduler)
        self._kind = kind
        self._tune = tune
        #: Whether short pipelines that are independent are launched together; on a CPU nothing is gained by it.
        self._together = False
        #: What waits to be launched. If together, a pipeline is in the group after the last one that must precede it.
        self._groups: list[KernelGroup] = []
        self._delegate = Delegate(kind, lambda: CppScheduling(scheduler))
        self._recordings = Recordings()
        self._notes = KernelNotes()
        self._compilations: dict[tuple[LoopProgram, torch.device], Compilation] = {}
        self._ahead: dict[tuple[Any, ...], tuple[Captured, Compilation]] | None = None
        self._targets: tuple[Target, ...] = ()
        if scheduler is not None and getattr(V.graph, "aot_mode", False):
            self._targets = tuple(package_targets().values()) if kind.on_host else gpu_package_targets()
        if scheduler is not None:
            start_workers()

    def get_backend_features(self, device: torch.device) -> OrderedSet[BackendFeature]:
        # Without TUPLE_REDUCTION ATen computes maxima so far with their places, faster than rows of them would be here.
        features = [BackendFeature.INPLACE_BUFFERS, BackendFeature.REDUCE_TO_SINGLE_ELEMENT, BackendFeature.SCAN]
        return OrderedSet(features)

    # -- fusion ------------------------------------------------------------------------------------------------

    def group_fn(self, sizes: Any) -> Any:
        return tuple(tuple(map(V.graph.sizevars.simplify, size)) for size in sizes)

    def can_fuse_vertical(self, node1: Any, node2: Any) -> bool:
        if node1.is_template() or node2.is_template():
            with self._delegate() as backend:
                return self._with_template(node1, node2, backend.can_fuse_vertical(node1, node2))
        return self._notes.may_fuse(node1, node2, refusal_to_fuse(node1, node2, self._recordings))

    def can_fuse_horizontal(self, node1: Any, node2: Any) -> bool:
        if node1.is_template() or node2.is_template():
            with self._delegate() as backend:
                return self._with_template(node1, node2, backend.can_fuse_horizontal(node1, node2))
        return self._notes.may_fuse(node1, node2, refusal_to_fuse_side_by_side(node1, node2, self._recordings))

    def _are_left(self, nodes: Iterable[Any]) -> bool:
        """Whether nodes are known to be the delegate's before they are compiled."""
        return False

    def _with_template(self, node1: Any, node2: Any, allowed: bool) -> bool:
        refusal = (
            None if allowed else Refusal("fusion-with-template", f"Inductor's {self._delegate.name} backend refuses")
        )
        return self._notes.may_fuse(node1, node2, refusal)

    def can_fuse_multi_outputs_template(self, node1: Any, node2: Any) -> bool:
        with self._delegate() as backend:
            return bool(backend.can_fuse_multi_outputs_template(node1, node2))

    def fuse(self, node1: Any, node2: Any) -> FusedSchedulerNode:
        if node1.is_template() or node2.is_template():
            with self._delegate() as backend:
                return backend.fuse(node1, node2)
        return FusedSchedulerNode.fuse(node1, node2)

    # -- code generation ---------------------------------------------------------------------------------------

    def codegen_node(self, node: Any) -> None:
        self._codegen_or_leave(node)
        self._launch_unless_it_waits(node)

    def _launch_unless_it_waits(self, node: Any) -> None:
        """Called when all of `node` has its code: before that its buffers may still be used and must not be freed."""
        if self._together and not self._can_wait(node):
            self.flush()
            self.free_buffers_in_scheduler()

    def _codegen_or_leave(self, node: Any) -> None:
        nodes = tuple(node.get_nodes())
        try:
            self._codegen(nodes)
            return
        except ScheduleError:
            raise
        except HalideBackendError as refusal:
            if len(nodes) == 1 or self._are_left(nodes):
                self._leave(node, refusal)
                return
            log.info("%s is computed node by node: %s", node.get_name(), refusal)
            self._notes.split(nodes, refusal.reason)
        for part in nodes:
            self._codegen_alone(part)

    def _codegen_alone(self, node: Any) -> None:
        try:
            self._codegen((node,))
        except ScheduleError:
            raise
        except HalideBackendError as refusal:
            self._leave(node, refusal)

    def _codegen(self, nodes: tuple[Any, ...]) -> None:
        """Build one pipeline for `nodes` and commit it.

        Raises:
            HalideBackendError: it cannot be built; the graph is as it was.
        """
        if self._ahead is None:
            parts = (part for node in self.scheduler.nodes for part in (node.snodes if node.is_foreach() else (node,)))
            loops = (node for node in parts if is_loop(node))
            self._ahead = self._start_all(node for node in loops if _device_name(node) == self._kind.name)
        captured, compilation = self._ahead.pop(nodes) if nodes in self._ahead else self._start(nodes)
        compilation = compilation.finished(_name_of(nodes))
        if self._together and not is_short(captured.program):
            self.flush()
        self._group_for(captured).commit(captured, compilation, self._waiting() if self._together else ())
        metrics.generated_kernel_count += 1

    def _start_all(self, nodes: Iterable[Any]) -> dict[tuple[Any, ...], tuple[Captured, Compilation]]:
        """Capture `nodes` and start the builds, before waiting for the first kernel.

        A pipeline has to be built before its nodes are marked as run, so that a refusal can still be delegated;
        without a head start the workers would build one kernel at a time.
        """
        captured = {}
        for node in nodes:
            fused = tuple(node.get_nodes())
            with suppress(HalideBackendError):
                captured[fused] = capture(fused, self._recordings)
        # On a GPU a long kernel gains from knowing its length.
        sharing = (each.program for each in captured.values() if not self._together or is_short(each.program))
        shared = share_lengths(sharing, BLOCKS if self._kind.on_host else ELEMENTS)
        for fused, each in captured.items():
            if each.program in shared:
                program, blocks = shared[each.program]
                captured[fused] = replace(each, program=program, sizes=(sympy.Integer(blocks),))
        if self._tune is not None and captured:
            named = [(_name_of(fused), each.program) for fused, each in captured.items()]
            self._tune(named, next(iter(captured))[0].get_device())
        started = {}
        for fused, each in captured.items():
            with suppress(HalideBackendError):
                started[fused] = each, self._compile(each)
        return started

    def _can_wait(self, node: Any) -> bool:
        """Whether what `node` added may be launched together with what follows on a GPU.

        The wrapper makes the device current for the scheduler's nodes, not for a flush after the last one.
        """
        code = (each for each in reversed(self.scheduler.nodes) if not isinstance(each, NopKernelSchedulerNode))
        # From torch 2.13 on nodes may have streams of the user's.
        has_streams = getattr(self.scheduler, "_has_multi_stream_nodes", bool)
        short = all(is_short(captured.program) for captured in self._waiting())
        return short and not has_streams() and node is not next(code)

    def _waiting(self) -> list[Captured]:
        return [captured for group in self._groups for captured in group.captured]

    def _group_for(self, captured: Captured) -> KernelGroup:
        preceding = [k for k, group in enumerate(self._groups) if self._together and group.must_precede(captured)]
        place = preceding[-1] + 1 if preceding else 0
        if place == len(self._groups):
            self._groups.append(KernelGroup(self._together))
        return self._groups[place]

    def _start(self, nodes: tuple[Any, ...]) -> tuple[Captured, Compilation]:
        captured = capture(nodes, self._recordings)
        return captured, self._compile(captured)

    def _compile(self, captured: Captured) -> Compilation:
        device = captured.nodes[0].get_device()
        known = self._compilations.get((captured.program, device))
        if known is not None:
            return known.again()
        name = _name_of(captured.nodes)
        compilation = compile_program(
            captured.program, name, device, V.graph.cpp_wrapper or V.graph.fx_wrapper, self._targets
        )
        self._compilations[captured.program, device] = compilation
        return compilation

    def _leave(self, node: Any, reason: HalideBackendError) -> None:
        """Leave `node`, or what is fused in it, to Inductor's own backend, after everything that runs before it."""
        from halide_backend import config

        # Inductor's own kernels for a CPU are C++, which no FX graph calls.
        if V.graph.fx_wrapper or not (config.delegate and self._kind.delegate):
            raise reason
        self.flush()
        log.warning("%s is left to Inductor's %s backend: %s", node.get_name(), self._delegate.name, reason.what)
        # Triton's backend frees after each node what the group as a whole needs no longer; its next node may read it.
        held, self.scheduler.buffer_names_to_free = self.scheduler.buffer_names_to_free, OrderedSet()
        with kernels_called() as called, self._delegate() as backend:
            backend.codegen_node(node)
            backend.flush()
        self.scheduler.buffer_names_to_free |= held
        nodes, program = tuple(node.get_nodes()), None
        with suppress(HalideBackendError):
            program = capture(nodes, self._recordings).program
        self._notes.left(nodes, " ".join(called), self._delegate.name, reason.reason, program)

    def codegen_template(
        self, template_node: Any, epilogue_nodes: Sequence[Any], prologue_nodes: Sequence[Any], **rest: Any
    ) -> Any:
        self.flush()
        with kernels_called() as called, self._delegate() as backend:
            result = backend.codegen_template(template_node, epilogue_nodes, prologue_nodes, **rest)
            backend.flush()
        nodes = (*prologue_nodes, template_node, *epilogue_nodes)
        self._notes.left(nodes, " ".join(called), self._delegate.name, Refusal("template", "a template of Inductor's"))
        return result

    def codegen_sync(self) -> None:
        """Nothing runs asynchronously on a CPU."""

    def ready_to_flush(self) -> bool:
        most = _MAX_TOGETHER if self._together else _MAX_ARGUMENTS
        return sum(len(each.memories) for each in self._waiting()) >= most

    def flush(self) -> None:
        """Write one launch for each group of pipelines collected since the last one."""
        groups, self._groups = self._groups, []
        for group in groups:
            name = group.write()
            self._notes.launched(group, name)
            self.codegen_comment(group.nodes, name)

    def codegen_comment(self, node_schedule: Any, kernel_name: str | None = None) -> None:
        handle = set_kernel_post_grad_provenance_tracing(node_schedule, kernel_name or "")
        V.graph.wrapper_code.write_provenance_debug_handle(kernel_name, handle)


def _name_of(nodes: Sequence[Any]) -> str:
    return f"halide_{get_fused_kernel_name(nodes, 'original_aten')}"


def _device_name(node: Any) -> str:
    device = node.get_device()
    return device.type if device is not None else ""
