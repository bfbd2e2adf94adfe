"""HostDeviceScheduling: what Inductor's scheduler asks of a backend for a registered device."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V

from halide_backend.capture.delegate import Delegate
from halide_backend.capture.scheduling import HalideScheduling
from halide_backend.device_type import CPU, DeviceType


class HostDeviceScheduling(HalideScheduling):
    """HalideScheduling for a device that has the host's memory and another name than "cpu".

    The scheduler takes every such device for a GPU.
    """

    def __init__(self, scheduler: Any, kind: DeviceType) -> None:
        super().__init__(scheduler, kind)
        self._delegate = Delegate(kind, lambda: _HostCpp(scheduler))

    def group_fn(self, sizes: Any) -> Any:
        # Numbers of points, as the scheduler multiplies them where it fits loops of a GPU to those of a reduction.
        return tuple(V.graph.sizevars.simplify(sympy_product(size)) for size in sizes)


class _HostCpp(CppScheduling):
    """Inductor's C++ backend, for nodes that are grouped as on a GPU, and kernels that take any host memory."""

    def codegen_node(self, node: Any) -> None:
        for part in node.get_nodes():
            part.group = part.group[0], self.group_fn(part._sizes)
        super().codegen_node(node)

    def flush(self) -> None:
        # The wrapper knows how to call a C++ kernel on the CPU alone.
        with V.graph.set_current_device(torch.device(CPU.name)):
            super().flush()
