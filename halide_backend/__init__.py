"""An Inductor backend that compiles every loop kernel with Halide, without a C++ compiler.

    torch.compile(model, backend="halide_backend")
    torch.compile(model, options={"cpu_backend": "halide_backend"})
    torch._inductor.config.cpu_backend = "halide_backend"

Importing this package is needed only where TORCH_DEVICE_BACKEND_AUTOLOAD=0. It imports neither
torch nor halide, and must stay so: `import torch` imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from halide_backend import autoload

if TYPE_CHECKING:
    from halide_backend import config as config
    from halide_backend import schedules as schedules
    from halide_backend.kernel_records.record import KernelRecord

__version__ = "0.1.0"

__all__ = ["__version__", "config", "records", "reset_stats", "schedules", "stats"]

autoload.install()


def records() -> tuple[KernelRecord, ...]:
    """What this process knows of its kernels, in the order in which they were captured or loaded: the last 2,048.

    docs/reference/records.md describes the fields.
    """
    from halide_backend.kernel_records.journal import journal

    return journal.records()


def stats() -> dict[str, object]:
    """Sums over all records of this process: native and delegated kernels, compiles, loads, cache hits, misses.

    `compile_seconds` is in seconds; `delegation_reasons` maps the code of each reason to its number of kernels
    (docs/reference/refusals.md).
    """
    from halide_backend.kernel_records.journal import journal

    return journal.stats()


def reset_stats() -> None:
    """Forget all records, so that every counter of `stats()` is zero."""
    from halide_backend.kernel_records.journal import journal

    journal.reset()


def __getattr__(name: str) -> Any:
    # `halide_backend.config` and `.schedules` work after `import halide_backend`, but import torch and
    # sympy only when they are asked for.
    if name in ("config", "schedules"):
        from importlib import import_module

        return import_module(f"halide_backend.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
