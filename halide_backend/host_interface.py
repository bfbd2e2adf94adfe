"""What Inductor asks about a device that it does not know, answered for one whose memory is the host's."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from torch._dynamo import device_interface
from torch._inductor.codegen import common

from halide_backend.device_type import DeviceType


class HostInterface(device_interface.DeviceInterface):
    """Of a device without streams: whatever was started is done."""

    class Worker:
        @staticmethod
        def current_device() -> int:
            return 0

        @staticmethod
        def get_device_properties(device: Any = None) -> Any:
            """Return the number of processors, from which Inductor concludes how to split reductions."""
            return SimpleNamespace(multi_processor_count=os.cpu_count())

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def synchronize(device: Any = None) -> None:
        pass

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        return 0

    @staticmethod
    def get_compute_capability(device: Any = None) -> str:
        return ""

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        return True


def tell_inductor(kind: DeviceType) -> None:
    """Register the interface and the overrides of `kind`; those of this module where there are none."""
    interfaces = dict(device_interface.get_registered_device_interfaces())
    if kind.interface or kind.name not in interfaces:
        device_interface.register_interface_for_device(kind.name, kind.interface or HostInterface)
    # Torch 2.11 registers its own, those of CUDA among them, when somebody asks while there are none.
    host = common.get_device_op_overrides("cpu")
    if kind.op_overrides or kind.name not in common.device_op_overrides_dict:
        common.register_device_op_overrides(kind.name, kind.op_overrides or host)
