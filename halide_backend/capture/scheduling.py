"""HalideScheduling: what Inductor's scheduler asks of a backend."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch._inductor import metrics
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.debug import set_kernel_post_grad_provenance_tracing
from torch._inductor.scheduler import BaseScheduling, FusedSchedulerNode
from torch._inductor.utils import get_fused_kernel_name, sympy_product
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from halide_backend import statistics
from halide_backend.algorithm.loop_program import LoopProgram
from halide_backend.capture.delegate import Delegate
from halide_backend.capture.fusion import can_fuse, can_fuse_side_by_side, is_loop
from halide_backend.capture.kernel_group import Captured, KernelGroup, capture
from halide_backend.capture.length import share_lengths
from halide_backend.capture.recording import Recordings
from halide_backend.errors import HalideBackendError
from halide_backend.pipeline import Compilation, compile_program, start_workers

log = logging.getLogger("halide_backend")

#: Arguments of one launch, as many as Inductor's C++ backend allows.
_MAX_ARGUMENTS = 500


class HalideScheduling(BaseScheduling):
    """Turns fused nodes into Halide pipelines and collects them into one launch per flush.

    Constructed with None whenever Inductor only wants to know the features: no worker is started for that.
    """

    def __init__(self, scheduler: Any, device: str = "cpu") -> None:
        super().__init__(scheduler)
        self._group = KernelGroup()
        self._device = device
        self._delegate = Delegate(device, scheduler)
        self._recordings = Recordings()
        self._compilations: dict[tuple[LoopProgram, torch.device], Compilation] = {}
        self._ahead: dict[tuple[Any, ...], tuple[Captured, Compilation]] | None = None
        if scheduler is not None:
            start_workers()

    def get_backend_features(self, device: torch.device) -> OrderedSet[BackendFeature]:
        if self._device != "cpu":
            # Scans, sorts and foreach nodes come, and go to the delegate.
            with self._delegate() as backend:
                return OrderedSet(backend.get_backend_features(device))
        return OrderedSet([BackendFeature.INPLACE_BUFFERS, BackendFeature.REDUCE_TO_SINGLE_ELEMENT])

    # -- fusion ------------------------------------------------------------------------------------------------

    def group_fn(self, sizes: Any) -> Any:
        if self._device != "cpu":
            # The form that the delegate reads from the nodes that are left to it.
            return tuple(V.graph.sizevars.simplify(sympy_product(size)) for size in sizes)
        return tuple(tuple(map(V.graph.sizevars.simplify, size)) for size in sizes)

    def can_fuse_vertical(self, node1: Any, node2: Any) -> bool:
        if node1.is_template() or node2.is_template():
            with self._delegate() as backend:
                return bool(backend.can_fuse_vertical(node1, node2))
        return can_fuse(node1, node2, self._recordings)

    def can_fuse_horizontal(self, node1: Any, node2: Any) -> bool:
        if node1.is_template() or node2.is_template():
            with self._delegate() as backend:
                return bool(backend.can_fuse_horizontal(node1, node2))
        return can_fuse_side_by_side(node1, node2, self._recordings)

    def fuse(self, node1: Any, node2: Any) -> FusedSchedulerNode:
        if node1.is_template() or node2.is_template() or node1.is_foreach() or node2.is_foreach():
            with self._delegate() as backend:
                return backend.fuse(node1, node2)
        return FusedSchedulerNode.fuse(node1, node2)

    # -- code generation ---------------------------------------------------------------------------------------

    def codegen_node(self, node: Any) -> None:
        self._codegen_or_leave(node)
        if self._device != "cpu":
            # The wrapper makes the device current for the scheduler's nodes, not for a flush after them.
            self.flush()

    def _codegen_or_leave(self, node: Any) -> None:
        nodes = tuple(node.get_nodes())
        try:
            self._codegen(nodes)
            return
        except HalideBackendError as refusal:
            if len(nodes) == 1:
                self._leave(node, refusal)
                return
            log.info("%s is computed node by node: %s", node.get_name(), refusal)
            statistics.unfused(refusal.what)
        for part in nodes:
            self._codegen_alone(part)

    def _codegen_alone(self, node: Any) -> None:
        try:
            self._codegen((node,))
        except HalideBackendError as refusal:
            self._leave(node, refusal)

    def _codegen(self, nodes: tuple[Any, ...]) -> None:
        """Build one pipeline for `nodes` and commit it.

        Raises:
            HalideBackendError: it cannot be built; the graph is as it was.
        """
        if self._ahead is None:
            self._ahead = self._start_all()
        captured, compilation = self._ahead.pop(nodes) if nodes in self._ahead else self._start(nodes)
        compilation.artifact.result()
        self._group.commit(captured, compilation.text)
        statistics.count("native_kernels")
        metrics.generated_kernel_count += 1

    def _start_all(self) -> dict[tuple[Any, ...], tuple[Captured, Compilation]]:
        """Capture every kernel of the graph and let the workers begin, before the first one is waited for.

        A pipeline has to be built before its nodes are marked as run, so that a refusal can still be delegated;
        without a head start the workers would build one kernel at a time.
        """
        captured = {}
        for node in self.scheduler.nodes:
            device = node.get_device()
            if device is None or device.type != self._device or not is_loop(node):
                continue
            nodes = tuple(node.get_nodes())
            with suppress(HalideBackendError):
                captured[nodes] = capture(nodes, self._recordings)
        if self._device == "cpu":  # on a GPU a kernel gains from knowing its length
            shared = share_lengths(each.program for each in captured.values())
            captured = {n: replace(c, program=shared.get(c.program, c.program)) for n, c in captured.items()}
        started = {}
        for nodes, each in captured.items():
            with suppress(HalideBackendError):
                started[nodes] = each, self._compile(each)
        return started

    def _start(self, nodes: tuple[Any, ...]) -> tuple[Captured, Compilation]:
        captured = capture(nodes, self._recordings)
        return captured, self._compile(captured)

    def _compile(self, captured: Captured) -> Compilation:
        device = captured.nodes[0].get_device()
        compilation = self._compilations.get((captured.program, device))
        if compilation is None:
            name = f"halide_{get_fused_kernel_name(captured.nodes, 'original_aten')}"
            compilation = compile_program(captured.program, name, device)
            self._compilations[captured.program, device] = compilation
        return compilation

    def _leave(self, node: Any, reason: HalideBackendError) -> None:
        """Leave one node to Inductor's own backend, after everything that runs before it."""
        from halide_backend import config

        if not config.delegate:
            raise reason
        self.flush()
        statistics.delegated(reason.what)
        log.warning("%s is left to Inductor's %s backend: %s", node.get_name(), self._delegate.name, reason.what)
        # Triton's backend frees after each node what the group as a whole needs no longer; its next node may read it.
        held, self.scheduler.buffer_names_to_free = self.scheduler.buffer_names_to_free, OrderedSet()
        with self._delegate() as backend:
            backend.codegen_node(node)
            backend.flush()
        self.scheduler.buffer_names_to_free |= held

    def codegen_template(
        self, template_node: Any, epilogue_nodes: Sequence[Any], prologue_nodes: Sequence[Any], **rest: Any
    ) -> Any:
        self.flush()
        statistics.count("delegated_templates")
        with self._delegate() as backend:
            result = backend.codegen_template(template_node, epilogue_nodes, prologue_nodes, **rest)
            backend.flush()
        return result

    def codegen_foreach(self, node: Any) -> None:
        self.flush()
        statistics.delegated("a foreach kernel")
        with self._delegate() as backend:
            backend.codegen_foreach(node)
            backend.flush()

    def benchmark_fused_nodes(self, nodes: Sequence[Any]) -> tuple[float, str]:
        # Only templates, which are the delegate's, are chosen by measuring.
        with self._delegate() as backend:
            return backend.benchmark_fused_nodes(nodes)  # type: ignore[no-any-return]

    def generate_kernel_code_from_nodes(self, nodes: Sequence[Any], *args: Any, **kwargs: Any) -> str:
        with self._delegate() as backend:
            return str(backend.generate_kernel_code_from_nodes(nodes, *args, **kwargs))

    def codegen_sync(self) -> None:
        """Wait for the device; nothing runs asynchronously on a CPU."""
        if self._device != "cpu":
            V.graph.wrapper_code.writeline(V.graph.device_ops.synchronize())

    def ready_to_flush(self) -> bool:
        return sum(len(each.memories) for each in self._group.captured) >= _MAX_ARGUMENTS

    def flush(self) -> None:
        """Write one launch for all pipelines collected since the last one."""
        if not self._group.texts:
            return
        group, self._group = self._group, KernelGroup()
        name = group.write()
        self.codegen_comment(group.nodes, name)

    def codegen_comment(self, node_schedule: Any, kernel_name: str | None = None) -> None:
        handle = set_kernel_post_grad_provenance_tracing(node_schedule, kernel_name or "")
        V.graph.wrapper_code.write_provenance_debug_handle(kernel_name, handle)
