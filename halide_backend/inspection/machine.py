"""Facts of this machine and of the installed versions, read without importing torch or halide."""

from __future__ import annotations

import os
import platform
import shutil
from importlib import metadata
from pathlib import Path

#: The distributions whose versions decide what a kernel becomes.
DISTRIBUTIONS = ("halide-backend", "torch", "halide", "llvmlite")


def facts() -> dict[str, str]:
    """Machine, system and versions, each as one line, by title."""
    versions = [f"Python {platform.python_version()}"]
    versions += [f"{name} {version(name) or 'missing'}" for name in DISTRIBUTIONS]
    return {
        "machine": f"{processor()}, {cores()} cores",
        "system": f"{platform.system()} {platform.release()}, {' '.join(platform.libc_ver())}",
        "versions": ", ".join(versions),
    }


def version(distribution: str) -> str:
    """Installed version, or "" when the distribution is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def cores() -> int:
    """Logical cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """Model name of the processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def cxx_compiler() -> str:
    """Path of the C++ compiler that Inductor would use ($CXX or g++), or "" when there is none."""
    return shutil.which(os.environ.get("CXX") or "g++") or ""
