"""What decides the generated code besides the user's options: versions, sources and the machine.

Inductor knows its own sources, the graph and its own options, but neither the version of Halide nor
the processor; two machines or two environments that share a cache directory would otherwise
exchange code that does not fit.
"""

from __future__ import annotations

from functools import cache

from halide_backend.device_type import device_types
from halide_backend.sources import sources_digest
from halide_backend.versions import check_versions

NAME = "halide_backend"


@cache
def entries(target: str) -> dict[str, str]:
    """Key entries besides the options: read-only, and never the word "host".

    `target` is the option of that name. The first call takes about 50 ms; it does not import
    halide.

    Raises:
        UnsupportedVersionError: a required package is missing or unsupported, or the processor is.
        MissingNativeExtensionError: the compiled part of this package is absent.
    """
    check_versions()
    from halide_backend.build.fingerprint import toolchain
    from halide_backend.build.target import Target

    resolved = Target.named(target)
    return {
        **{f"_{name}": str(value) for name, value in toolchain().items()},
        "_target": " ".join(resolved.to_json().values()),
        "_sources": sources_digest(),
    }


def devices() -> dict[str, str]:
    """A key entry that changes with what registered devices are compiled for, and with who gets what is delegated."""
    registered = (f"{kind.name} {kind.target} {kind.delegate}" for kind in device_types() if kind.registered)
    return {"_devices": " ".join(registered)}


def schedules(function: str, files: tuple[str, ...], folder: str, tune: str, threads: int) -> dict[str, str]:
    """A key entry that changes with every schedule that could apply, by the values of the options that name them and
    the number of torch's threads."""
    from halide_backend.schedules.choice import Sources

    return {"_schedules": Sources(function, files, folder, tune != "never", threads).state()}
