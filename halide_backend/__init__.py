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
    from torch.export import ExportedProgram

    from halide_backend import config as config
    from halide_backend import schedules as schedules
    from halide_backend.device_type import AroundLaunch, DeviceType
    from halide_backend.kernel_records.record import KernelRecord

__version__ = "0.1.0"

__all__ = [
    *("__version__", "aot_configs", "config", "devices", "package_without_compiler", "records", "register_device"),
    *("reset_stats", "schedules", "stats"),
]

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


def aot_configs() -> dict[str, str | int]:
    """What Inductor has to be told for a package with kernels for `config.aot_targets`, or for this machine.

    It is for `inductor_configs` of torch._inductor.aoti_compile_and_package: the backend, and for which processors
    Inductor compiles the C++ code around the kernels. docs/how-to/ship-a-model.md has an example.
    """
    from halide_backend.capture import package_targets

    return package_targets.aot_configs()


def package_without_compiler(exported_program: ExportedProgram, path: str) -> None:
    """Write an AOTInductor package for a CPU that stock torch loads, and start no compiler.

    A prototype: docs/how-to/ship-a-model.md has an example, docs/design/bytecode.md what it cannot do.

    Args:
        exported_program: what torch.export.export returns.
        path: the file, FILE.pt2; replaced if it is there, and left as it was if there is an error.

    Raises:
        PackageError: the model has something that such packages cannot have, the library that executes them was not
            built for this version of torch, or the file cannot be written.
        HalideBackendError: a kernel cannot be compiled by this backend.
    """
    from halide_backend.packages.bytecode import make

    make.package_without_compiler(exported_program, path)


def register_device(
    name: str,
    target: str = "host",
    interface: Any = None,
    op_overrides: Any = None,
    delegate: str | None = "cpp",
    around_launch: AroundLaunch | None = None,
) -> DeviceType:
    """Compile for the device that PrivateUse1 has been renamed to, whose memory the processor can read and write.

    From now on torch.compile does so whatever `cpu_backend` is. Doing it again with the same values changes nothing;
    every process has to do it. docs/how-to/add-a-device.md has an example.

    Args:
        name: the device type, as torch.utils.rename_privateuse1_backend was told.
        target: "host" for this machine, or whatever the option `target` says; or a level: "sse41", "avx2", "avx512".
        interface: a subclass of torch._dynamo.device_interface.DeviceInterface; None leaves the one that is
            registered, or else takes one for host memory.
        op_overrides: an instance of Inductor's DeviceOpOverrides, likewise.
        delegate: "cpp" leaves what this backend cannot compile to Inductor's C++ backend; with None it is an error.
        around_launch: called with the arguments of each launch, tensors and sizes; it returns a context manager that
            is entered before and left after it. It needs delegate=None.

    Raises:
        DeviceError: PrivateUse1 has no name yet or another one, the name is taken, or a value is not allowed.
    """
    from halide_backend import device_registration

    return device_registration.register_device(name, target, interface, op_overrides, delegate, around_launch)


def devices() -> tuple[DeviceType, ...]:
    """The device types that this backend compiles for: CPU, CUDA, and what was registered."""
    from halide_backend.device_type import device_types

    return device_types()


def __getattr__(name: str) -> Any:
    # `halide_backend.config` and `.schedules` work after `import halide_backend`, but import torch and
    # sympy only when they are asked for.
    if name in ("config", "schedules"):
        from importlib import import_module

        return import_module(f"halide_backend.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
