"""DeviceType: what this backend makes of one of torch's device types.

How a device is called ("cpu", "cuda", or as its vendor likes) says nothing about how its kernels are compiled and
called. Everything that depends on that asks the value here and compares no names.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from halide_backend.errors import DeviceError

if TYPE_CHECKING:
    import torch

#: Targets of a device type, besides the levels of x86-64: this machine, unless `halide_backend.config.target` names a
#: level; and whichever GPU a tensor is on.
HOST, GPU = "host", "gpu"

#: Called with the arguments of a launch, it returns what is entered before and left after it.
AroundLaunch = Callable[..., AbstractContextManager[Any]]


@dataclass(frozen=True)
class DeviceType:
    """One of torch's device types, and how its kernels are compiled and called.

    Attributes:
        name: `torch.device.type`.
        target: what its kernels are compiled for: HOST, a level of x86-64, or GPU.
        delegate: Inductor's own backend that gets what this one cannot compile, by its name in Inductor's
            configuration; None for none.
        setting: the entry of `torch._inductor.config` that selects a backend for it; None where it is always this one.
        interface: the class of `torch._dynamo.device_interface` that Inductor asks about a registered device; None for
            one of this package where there is none.
        op_overrides: the same for Inductor's `DeviceOpOverrides`.
        around_launch: what each launch of a registered device is enclosed in, if anything.
    """

    name: str
    target: str
    delegate: str | None
    setting: str | None = None
    interface: Any = None
    op_overrides: Any = None
    around_launch: AroundLaunch | None = None

    @property
    def on_host(self) -> bool:
        """Whether its memory is the host's, where calls of kernels end when the kernels do; else they have a stream."""
        return self.target != GPU

    @property
    def memory(self) -> str:
        """Whose memory its tensors have, as the manifests of kernels call it: "cpu" or "cuda"."""
        return "cpu" if self.on_host else "cuda"

    @property
    def registered(self) -> bool:
        """Whether Inductor does not know it, but by `halide_backend.register_device`."""
        return self.setting is None


CPU = DeviceType("cpu", HOST, "cpp", "cpu_backend")
CUDA = DeviceType("cuda", GPU, "triton", "cuda_backend")

_known = {each.name: each for each in (CPU, CUDA)}


def add_device_type(kind: DeviceType) -> DeviceType:
    """Have this backend compile for `kind` from now on; returns what there is under its name."""
    return _known.setdefault(kind.name, kind)


def device_types() -> tuple[DeviceType, ...]:
    """All device types that this backend compiles for, CPU and CUDA first."""
    return tuple(_known.values())


def find_device_type(device: torch.device | str) -> DeviceType | None:
    """The device type of `device` (a name such as "cuda:0", or the device), None if it is none of this backend's."""
    return _known.get(str(device).partition(":")[0])


def device_type(device: torch.device | str) -> DeviceType:
    """The same, where it has to be one.

    Raises:
        DeviceError: it is none.
    """
    found = find_device_type(device)
    if found is None:
        raise DeviceError(
            "kernels of this backend are asked for, but in this process nobody registered the device",
            where=f"device {str(device)!r}",
            cure="call halide_backend.register_device before the first compilation, in every process.",
        )
    return found
