"""Which device types Inductor is set to this backend for."""

from __future__ import annotations

from halide_backend.cache_key import NAME
from halide_backend.device_type import DeviceType


def is_selected(kind: DeviceType) -> bool:
    """Whether kernels of `kind` are compiled by this backend, in the calling thread."""
    from torch._inductor import config

    return kind.setting is None or bool(getattr(config, kind.setting) == NAME)
