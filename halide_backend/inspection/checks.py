"""What `halide-backend doctor` looks at, one function a check."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from halide_backend.errors import HalideBackendError
from halide_backend.inspection import machine, process_audit

OK, NOTE, FAIL = "ok", "note", "FAIL"
#: Free space below which the cache (2 GiB at most by default) is likely to meet a full disk.
LITTLE_SPACE = 1 << 30


@dataclass(frozen=True)
class Check:
    """One line of the doctor's report: `state` is OK, NOTE or FAIL; `advice` says what to do."""

    title: str
    state: str
    finding: str
    advice: str = ""


def all_checks() -> Iterator[Check]:
    """Every check in an order in which the first failure is the one to cure first."""
    for title, check in CHECKS.items():
        yield _guarded(title, check)


def _guarded(title: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except HalideBackendError as error:
        finding = f"{error.where}: {error.what}" if error.where else error.what
        return Check(title, FAIL, finding, error.cure)
    # A doctor that dies of the disease helps nobody: whatever is broken becomes a line.
    except Exception as error:
        return Check(title, FAIL, f"{type(error).__name__}: {error}", "Please report this with --json.")


def _system() -> Check:
    finding = (
        f"{platform.system()} {platform.machine()}, "
        f"{machine.processor()}, {machine.cores()} cores, "
        f"Python {platform.python_version()} ({sys.executable})"
    )
    if platform.system() == "Linux" and platform.machine() == "x86_64":
        return Check("system", OK, finding)
    return Check("system", FAIL, finding, "This backend needs Linux on x86-64; use cpu_backend='cpp' here.")


def _versions() -> Check:
    from halide_backend.versions import check_versions

    check_versions()
    found = (f"{name} {machine.version(name)}" for name in machine.DISTRIBUTIONS)
    return Check("versions", OK, ", ".join(found))


def _extension() -> Check:
    from halide_backend.launch import launcher

    native = launcher.native()
    return Check("native extension", OK, f"{native.__file__}, ABI {native.ABI}")


def _halide_library() -> Check:
    from halide_backend.build.fingerprint import library_identity

    found = f"libHalide {library_identity('halide', 'lib64/libHalide.so')}"
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        foreign = sorted(Path(folder).glob("libHalide.so*")) if folder else []
        if foreign:
            return Check(
                "halide library",
                NOTE,
                f"{found}; LD_LIBRARY_PATH offers {foreign[0]}",
                "It may be loaded instead of the one in the wheel; remove it from LD_LIBRARY_PATH.",
            )
    return Check("halide library", OK, found)


def _target() -> Check:
    from halide_backend import config
    from halide_backend.build.target import Target

    target = Target.named(config.target)
    target.check_runs_here()
    return Check("target", OK, f"{target.halide}, LLVM processor {target.cpu}")


def _threads() -> Check:
    import torch

    from halide_backend.launch import launcher

    runtime = launcher.configure()
    if not runtime.openmp:
        return Check(
            "threads",
            NOTE,
            "no OpenMP library is loaded, kernels run on one thread",
            "Install a build of torch with OpenMP; the wheels on PyPI have it.",
        )
    threads = torch.get_num_threads()
    finding = f"{threads} of {machine.cores()} cores, on {runtime.openmp}"
    if not runtime.torch_threads:
        return Check(
            "threads",
            NOTE,
            f"{finding}; torch.set_num_threads is not followed",
            "Set OMP_NUM_THREADS before Python starts instead.",
        )
    return Check("threads", OK, finding)


def _freed_memory() -> Check:
    from halide_backend import config
    from halide_backend.launch.freed_memory import MOST_MB, decided_elsewhere

    megabytes = min(config.kept_memory_mb, MOST_MB)
    kept = f"up to {megabytes} MB are kept" if megabytes else "as glibc decides"
    return Check("freed memory", OK, decided_elsewhere() or kept)


def _cache() -> Check:
    from kernels_cache.environment import DIRECTORY
    from kernels_cache.errors import CacheError
    from kernels_cache.root import Root, default_path

    try:
        root = Root(default_path())
        root.prepare()
        probe = Path(root.part("temporary"), f"doctor.{os.getpid()}")
        probe.write_bytes(b"")
        probe.unlink()
    except CacheError as error:
        return Check("cache directory", FAIL, f"{error.where}: {error.what}", error.cure)
    except OSError as error:
        return Check(
            "cache directory",
            FAIL,
            f"it cannot be written: {error}",
            f"Free it, or set {DIRECTORY} to a directory that only you can write. Until then every "
            "process compiles its kernels anew.",
        )
    mode = stat.S_IMODE(os.stat(root.path).st_mode)
    files = [entry for entry in Path(root.part("entries")).rglob("*") if entry.is_file()]
    size = sum(entry.stat().st_size for entry in files)
    free = shutil.disk_usage(root.path).free
    finding = f"{root.path}, mode {mode:04o}, {len(files)} kernels, {size / 1e6:.1f} MB, {free / 1e9:.1f} GB free"
    if free < LITTLE_SPACE:
        return Check("cache directory", NOTE, finding, f"Free some space, or move it with {DIRECTORY}.")
    return Check("cache directory", OK, finding)


def _schedules() -> Check:
    from halide_backend import config
    from halide_backend.build.target import Target
    from halide_backend.schedule.device import device_of
    from halide_backend.schedules.packaged import packaged_schedules
    from halide_backend.schedules.tuned_store import tuned_store
    from halide_backend.schedules.user_files import entries_of, files_in

    device = device_of(Target.named(config.target)).name
    counts = {path: len(entries_of(path)) for path in (*config.schedule_files, *files_in(config.schedule_folder))}
    counts["this machine"] = sum(1 for _ in tuned_store().entries())
    for entries in packaged_schedules().values():
        for entry in entries:
            name = f"the package for {entry.device}"
            counts[name] = counts.get(name, 0) + 1
    found = ", ".join(f"{number} of {where}" for where, number in counts.items())
    left_out = "; tuned ones are left out (option tune)" if config.tune == "never" else ""
    return Check("schedules", OK, f"this processor is of the class {device}; schedules: {found}{left_out}")


def _products() -> Check:
    from halide_backend.products.choice import Choice
    from halide_backend.products.precision import Kind, Work

    choice = Choice.of_this_process()
    own = "in float32" if choice.widens(Work(Kind.PRODUCT, multiplications=1, numbers=0)) else "in its own type"
    return Check("matrix products", OK, f"float32: {choice.describe()}; bfloat16: {own}")


def _registration() -> Check:
    import torch._inductor.compile_fx  # noqa: F401  the import that registers the backend
    from torch._inductor.codegen.common import device_codegens

    from halide_backend.plugin import SchedulingChoice, register

    autoloaded = isinstance(device_codegens["cpu"].scheduling, SchedulingChoice)
    register()
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") != "1":
        return Check(
            "registration",
            NOTE,
            "torch's autoload is switched off (TORCH_DEVICE_BACKEND_AUTOLOAD)",
            "`import halide_backend` once in your program, or unset the variable.",
        )
    if not autoloaded or not machine.version("halide-backend"):
        return Check(
            "registration",
            NOTE,
            "torch does not find the package's entry points",
            "Install it (pip install halide-backend), or `import halide_backend` in your program.",
        )
    return Check("registration", OK, "torch finds the backend without any import")


def _devices() -> Check:
    import torch  # noqa: F401  packages of devices register them in `import torch`

    from halide_backend.device_type import device_types

    known = device_types()
    found = (f"{kind.name} (registered, for {kind.target})" if kind.registered else kind.name for kind in known)
    return Check("device types", OK, ", ".join(found))


def _proof() -> Check:
    from halide_backend.inspection.small_kernel import prove

    started = process_audit.watch()
    proof = prove(started)
    finding = (
        f"one kernel compiled in {proof.compile * 1e3:.0f} ms "
        f"({proof.first_answer * 1e3:.0f} ms with the start of its worker), loaded in "
        f"{proof.load * 1e3:.2f} ms, right in every element; "
        f"started: {started.workers} compile worker{'s' * (started.workers != 1)}, "
        f"{sum(started.others.values())} other programs"
    )
    if started.others:
        return Check(
            "compiles without a compiler",
            FAIL,
            finding,
            f"Please report what was started: {'; '.join(started.others)}",
        )
    return Check("compiles without a compiler", OK, finding)


def _cxx() -> Check:
    compiler = machine.cxx_compiler()
    if compiler:
        return Check("C++ compiler", OK, f"{compiler} (only AOTInductor packages and Inductor's C++ wrapper need it)")
    return Check(
        "C++ compiler",
        OK,
        "none, and none is needed but for AOTInductor packages, Inductor's C++ wrapper, and what is delegated to "
        "Inductor's own backend",
    )


CHECKS: dict[str, Callable[[], Check]] = {
    "system": _system,
    "versions": _versions,
    "native extension": _extension,
    "halide library": _halide_library,
    "target": _target,
    "threads": _threads,
    "freed memory": _freed_memory,
    "cache directory": _cache,
    "schedules": _schedules,
    "matrix products": _products,
    "registration": _registration,
    "device types": _devices,
    "compiles without a compiler": _proof,
    "C++ compiler": _cxx,
}
