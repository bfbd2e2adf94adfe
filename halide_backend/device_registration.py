"""Registering a device that Inductor does not know, to be compiled for by this backend."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from halide_backend.autoload import TRIGGER
from halide_backend.build.named_targets import NAMED_TARGETS
from halide_backend.device_type import CPU, HOST, AroundLaunch, DeviceType, add_device_type, find_device_type
from halide_backend.errors import DeviceError

#: What a device whose memory is the host's may be compiled for: no other architecture.
TARGETS = (HOST, *(name for name, named in NAMED_TARGETS.items() if named.architecture == "x86-64"))


def register_device(
    name: str,
    target: str,
    interface: Any,
    op_overrides: Any,
    delegate: str | None,
    around_launch: AroundLaunch | None,
) -> DeviceType:
    """See `halide_backend.register_device`."""
    _check_name(name)
    if target not in TARGETS:
        _refuse(name, f"{target!r} is no target of a device", f"take one of {', '.join(map(repr, TARGETS))}.")
    if delegate not in (CPU.delegate, None):
        _refuse(name, f"{delegate!r} is no backend to delegate to", f"take {CPU.delegate!r}, or None for an error.")
    if around_launch is not None and not callable(around_launch):
        _refuse(
            name,
            f"around_launch is {around_launch!r}, which cannot be called",
            "pass a function that returns a context manager.",
        )
    if delegate and around_launch:
        _refuse(
            name,
            f"kernels of Inductor's {delegate} backend are launched without around_launch",
            "say delegate=None, and what this backend cannot compile is an error.",
        )
    kind = DeviceType(name, target, delegate, None, interface, op_overrides, around_launch)
    known = find_device_type(name)
    if known is None:
        _check_free(name)
        known = add_device_type(kind)
    if known != kind:
        _refuse(name, f"the name is taken: {known} is registered", "register a device once, or with the same values.")
    if TRIGGER in sys.modules:
        from halide_backend.plugin import register

        register()
    return kind


def _check_name(name: str) -> None:
    import torch

    private = torch._C._get_privateuse1_backend_name()
    if private == "privateuseone":
        _refuse(
            name,
            "PrivateUse1 has no name of its own yet",
            f"call torch.utils.rename_privateuse1_backend({name!r}) before, as the device's own package does.",
        )
    if name == private:
        return
    try:
        torch.device(name)
    except RuntimeError:
        _refuse(name, "torch knows no device of this name", f"the name that PrivateUse1 has is {private!r}.")
    _refuse(name, "the name is taken: it is a device of torch's own", f"PrivateUse1 has the name {private!r}.")


def _check_free(name: str) -> None:
    """Make sure that no other backend has the device; whoever gave it one has imported where Inductor keeps them."""
    import torch

    common = sys.modules.get("torch._inductor.codegen.common")
    others = getattr(common, "device_codegens", {})
    if name in others or hasattr(getattr(torch, name, None), "Scheduling"):
        _refuse(name, "the name is taken: Inductor has another backend for it", "register the device with one alone.")


def _refuse(name: str, what: str, cure: str) -> NoReturn:
    raise DeviceError(what, where=f"device {name!r}", cure=cure)
