"""The call of a partition of oneDNN's graph API in Inductor's IR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch._inductor.ir import ExternKernelAlloc, FixedLayout
from torch._inductor.virtualized import V

from halide_backend.products.partition import Partition, offer_partition


class PartitionCall(ExternKernelAlloc):
    """`partition`, a `layer`, of `operands`, for which constants that held its weights, `replaced`, are not needed."""

    def __init__(self, layer: str, partition: Partition, operands: Sequence[Any], replaced: str) -> None:
        first, result = operands[0], partition.result
        layout = FixedLayout(first.get_device(), first.get_dtype(), [*result.size], [*result.stride])
        super().__init__(layout, operands)
        self._layer = layer
        self._partition = partition
        self._replaced = replaced

    def codegen(self, wrapper: Any) -> None:
        wrapper.add_import_once("from halide_backend.products.partition import take_partition")
        name = self.python_kernel_name = f"{self._layer}_{wrapper.next_kernel_suffix()}"
        wrapper.define_kernel(name, f"take_partition({offer_partition(name, self._partition)!r})", gpu=False)
        # The weights are in the partition as well: 100 MB twice, for a ResNet-50.
        reads = (read.name for node in V.graph.scheduler.nodes for read in node.read_writes.reads)
        if self._replaced not in reads:
            V.graph.constants.pop(self._replaced, None)
        super().codegen(wrapper)

    def apply_constraint(self) -> None:
        """Operands have the layout that the partition was compiled for already."""
