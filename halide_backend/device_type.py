"""DeviceType: what this backend makes of one of torch's device types.

How a device is called ("cpu", "cuda") says nothing about how its kernels are compiled and called. Everything that
depends on that asks the value here and compares no names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: Targets of a device type, besides the levels of x86-64: this machine, unless `halide_backend.config.target` names a
#: level; and whichever GPU a tensor is on.
HOST, GPU = "host", "gpu"


@dataclass(frozen=True)
class DeviceType:
    """One of torch's device types, and how its kernels are compiled and called.

    Attributes:
        name: `torch.device.type`.
        target: what its kernels are compiled for: HOST, a level of x86-64, or GPU.
        delegate: Inductor's own backend that gets what this one cannot compile, by its name in Inductor's
            configuration.
        setting: the entry of `torch._inductor.config` that selects a backend for it.
    """

    name: str
    target: str
    delegate: str
    setting: str

    @property
    def on_host(self) -> bool:
        """Whether its memory is the host's, where calls of kernels end when the kernels do; else they have a stream."""
        return self.target != GPU

    @property
    def memory(self) -> str:
        """Whose memory its tensors have, as the manifests of kernels call it: "cpu" or "cuda"."""
        return "cpu" if self.on_host else "cuda"


CPU = DeviceType("cpu", HOST, "cpp", "cpu_backend")
CUDA = DeviceType("cuda", GPU, "triton", "cuda_backend")

_known = {each.name: each for each in (CPU, CUDA)}


def device_types() -> tuple[DeviceType, ...]:
    """All device types that this backend compiles for."""
    return tuple(_known.values())


def find_device_type(device: torch.device | str) -> DeviceType | None:
    """The device type of `device` (a name such as "cuda:0", or the device), None if it is none of this backend's."""
    return _known.get(str(device).partition(":")[0])


def device_type(device: torch.device | str) -> DeviceType:
    """The same, where it can only be one of this backend's.

    Raises:
        KeyError: it is none.
    """
    return _known[str(device).partition(":")[0]]
