"""CudaScheduling: what Inductor's scheduler asks of a backend for CUDA, besides what it asks of any."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.codegen.cuda_combined_scheduling import CUDACombinedScheduling
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from halide_backend.capture.delegate import Delegate
from halide_backend.capture.fusion import is_left
from halide_backend.capture.scheduling import HalideScheduling, Tune
from halide_backend.device_type import DeviceType
from halide_backend.refusals import Refusal


class CudaScheduling(HalideScheduling, CUDACombinedScheduling):
    """HalideScheduling for a GPU, whose delegate is what it inherits.

    It inherits because the scheduler hands combo kernels to instances of `CUDACombinedScheduling` alone.
    docs/design/templates.md says of each method who answers, and why.
    """

    def __init__(self, scheduler: Any, kind: DeviceType, tune: Tune | None = None) -> None:
        super().__init__(scheduler, kind, tune)
        self._together = True
        #: Whether a node is the delegate's, for each that was asked for.
        self._left: dict[str, bool] = {}
        self._delegate = Delegate(kind, lambda: super(HalideScheduling, self))

    def get_backend_features(self, device: torch.device) -> OrderedSet[BackendFeature]:
        # Scans and sorts come, and may go to the delegate. What a foreach operator does to each tensor is a loop of
        # its own, which fuses as any other does, and is launched together with those of the other tensors. Blocks of
        # our kernels do not cooperate, so that a long reduction has to be split.
        with self._delegate() as backend:
            features = OrderedSet(backend.get_backend_features(device))
        return features - {BackendFeature.FOREACH, BackendFeature.REDUCE_TO_SINGLE_ELEMENT}

    # -- fusion ------------------------------------------------------------------------------------------------

    def group_fn(self, sizes: Any) -> Any:
        # The form that the delegate reads from the nodes that are left to it.
        return CUDACombinedScheduling.group_fn(self, sizes)

    def can_fuse_vertical(self, node1: Any, node2: Any) -> bool:
        if self._are_left((node1, node2)):
            with self._delegate() as backend:
                return bool(backend.can_fuse_vertical(node1, node2))
        return self._are_of_one_size(node1, node2) and super().can_fuse_vertical(node1, node2)

    def can_fuse_horizontal(self, node1: Any, node2: Any) -> bool:
        if self._are_left((node1, node2)):
            with self._delegate() as backend:
                return bool(backend.can_fuse_horizontal(node1, node2))
        return self._are_of_one_size(node1, node2) and super().can_fuse_horizontal(node1, node2)

    def _are_left(self, nodes: Iterable[Any]) -> bool:
        """Whether the delegate has all of `nodes`, and fuses them as it likes: a scan of a value and its place, say."""
        for node in nodes:
            name = node.get_name()
            if name not in self._left:
                self._left[name] = is_left(node, self._recordings)
            if not self._left[name]:
                return False
        return True

    def _are_of_one_size(self, node1: Any, node2: Any) -> bool:
        """Whether neither node is to be fused with a template, or all loops of one node have the same size.

        Inductor's own backend never fuses loops of several sizes that are no reductions, and takes the first for all.
        """
        if not (node1.is_template() or node2.is_template()):
            return True
        for node in (node1, node2):
            sizes = {part.group for part in node.get_nodes()}
            if not node.is_template() and len(sizes) > 1:
                several = f"{node.get_name()} has loops of {len(sizes)} sizes"
                return self._notes.may_fuse(node1, node2, Refusal("fusion-of-several-sizes-with-template", several))
        return True

    def has_sub_parent_epilogue(self, nodes: Sequence[Any]) -> bool:
        # Triton's way of several sizes in one kernel (from torch 2.14 on), which the scheduler would have us follow.
        return False

    # -- code generation ---------------------------------------------------------------------------------------

    def codegen_combo_kernel(self, node: Any) -> None:
        """What Inductor would have in one launch: what of it is short is launched together in any case."""
        for part in node.snodes:
            self._codegen_or_leave(part)
        self._launch_unless_it_waits(node)

    def codegen_sync(self) -> None:
        self.flush()
        V.graph.wrapper_code.writeline(V.graph.device_ops.synchronize())

    # -- what is chosen by measuring: templates and what is fused into them ------------------------------------

    def generate_kernel_code_from_nodes(self, nodes: Sequence[Any], *args: Any, **kwargs: Any) -> str:
        with self._delegate() as backend:
            return str(backend.generate_kernel_code_from_nodes(nodes, *args, **kwargs))

    def benchmark_fused_nodes(self, nodes: Sequence[Any]) -> tuple[float, str]:
        with self._delegate() as backend:
            return backend.benchmark_fused_nodes(nodes)  # type: ignore[no-any-return]

    def benchmark_codegened_module(self, module: ModuleType) -> tuple[float, str]:
        with self._delegate() as backend:
            return backend.benchmark_codegened_module(module)  # type: ignore[no-any-return]

    def benchmark_combo_kernel(self, node_list: Sequence[Any], node_benchmark_results: Any) -> Any:
        with self._delegate() as backend:
            return backend.benchmark_combo_kernel(node_list, node_benchmark_results)
