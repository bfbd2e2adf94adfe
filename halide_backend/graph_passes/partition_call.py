"""The call of a partition of oneDNN's graph API in Inductor's IR."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from torch._inductor.ir import ExternKernelAlloc, FixedLayout
from torch.utils._mode_utils import no_dispatch

from halide_backend.graph_passes.unread_constants import leave_out_unread
from halide_backend.products.partition import Partition, offer_partition

_log = logging.getLogger(__name__)


class PartitionCall(ExternKernelAlloc):
    """`partition`, a `layer`, of `operands`, for which constants that held its weights, `replaced`, are not needed.

    `without_swish` compiles the layer without the swish at its end, if it has one, and may raise what `Partition` does.
    """

    def __init__(
        self,
        layer: str,
        partition: Partition,
        operands: Sequence[Any],
        replaced: str,
        without_swish: Callable[[], Partition] | None = None,
    ) -> None:
        first, result = operands[0], partition.result
        layout = FixedLayout(first.get_device(), first.get_dtype(), [*result.size], [*result.stride])
        super().__init__(layout, operands)
        self._layer = layer
        self._partition = partition
        self._replaced = replaced
        self._without_swish = without_swish

    def leave_out_swish(self) -> bool:
        """Leave the swish at the layer's end to what reads the result; False if there is none or it cannot be done."""
        if self._without_swish is None:
            return False
        try:
            with no_dispatch():
                partition = self._without_swish()
        except (RuntimeError, ValueError) as error:
            _log.debug("%s keeps its swish: %s", self._layer, error)
            return False
        if partition.result != self._partition.result:
            return False
        self._partition, self._without_swish = partition, None
        return True

    def codegen(self, wrapper: Any) -> None:
        wrapper.add_import_once("from halide_backend.products.partition import take_partition")
        name = self.python_kernel_name = f"{self._layer}_{wrapper.next_kernel_suffix()}"
        wrapper.define_kernel(name, f"take_partition({offer_partition(name, self._partition)!r})", gpu=False)
        leave_out_unread(self._replaced)  # the weights are in the partition as well
        super().codegen(wrapper)

    def apply_constraint(self) -> None:
        """Operands have the layout that the partition was compiled for already."""
