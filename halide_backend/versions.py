"""The versions this backend works with, and every difference between them that it has to know.

`capture` uses private parts of Inductor. What differs there between torch 2.11 and 2.15 is handled
here, by asking for the attribute; nothing else compares versions.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import metadata

from halide_backend.errors import UnsupportedVersionError

#: Distribution -> first supported version, first version beyond; pyproject.toml says the same.
SUPPORTED = {
    "torch": ((2, 11), (2, 16)),
    "halide": ((21, 0), (22, 0)),
    "llvmlite": ((0, 50), (0, 51)),
}


@cache
def check_versions() -> None:
    """Refuse to go on with a torch, halide or llvmlite outside the supported range.

    Called when the backend is used, not when it is imported.

    Raises:
        UnsupportedVersionError: one is missing, too old or too new.
    """
    for name, (first, beyond) in SUPPORTED.items():
        installed = installed_version(name)
        if installed is not None and first <= _numbers(installed) < beyond:
            continue
        requirement = f"{name}>={_text(first)},<{_text(beyond)}"
        found = f"{name} {installed} is not supported" if installed else f"{name} is not installed"
        raise UnsupportedVersionError(
            f"{found}; this backend needs {requirement}",
            where="halide_backend",
            cure=f"Run `pip install '{requirement}'`, or use Inductor's own backend (cpu_backend='cpp').",
        )


def takes_march() -> bool:
    """Whether Inductor can be told which processors to compile C++ for, as from torch 2.13 on."""
    from torch._inductor import config

    return hasattr(config.cpp, "march")


@cache
def saturates_float8() -> bool:
    """Whether what is too large for float8_e4m3fn becomes its largest number, not NaN, as from torch 2.13 on."""
    return _numbers(installed_version("torch") or "") >= (2, 13)


def loads_packages_of_bytecode() -> bool:
    """Whether torch writes whole models as FX graphs and finds a package's metadata by its library, as from 2.13 on."""
    return _numbers(installed_version("torch") or "") >= (2, 13)


def installed_version(distribution: str) -> str | None:
    """Version of an installed distribution, found without importing it; None if it is missing."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version)).removesuffix(".0")
