"""The half of a kernel that runs on a GPU, and how the other half launches it."""

from __future__ import annotations

import re

from halide_backend.build import elf
from halide_backend.build.c_interface import LAUNCH
from halide_backend.build.executed_text import REFUSED, ExecutedText
from halide_backend.build.ptx.completion import complete, extract_from_ir, with_eviction_priority
from halide_backend.build.ptx.dependent_launch import waiting
from halide_backend.build.ptx.instructions import Module
from halide_backend.build.target import SHARED_BYTES, Target
from halide_backend.errors import HalideCompileError

#: The threads of a block in a launch and its bytes of shared memory.
_LAUNCH = re.compile(r"call i32 @halide_cuda_run\((?:ptr [^,]+, ){3}(?:i32 [^,]+, ){3}((?:i32 [^,]+, ){3})i32 ([^,]+),")
#: What the host half of a kernel calls to launch the other one (launch/cuda.c), and its C function.
_LAUNCHING = frozenset((LAUNCH, "halide_error")) | frozenset(
    f"halide_{name}"
    for name in (
        "copy_to_device",
        "cuda_device_interface",
        "cuda_finalize_kernels",
        "cuda_initialize_kernels",
        "cuda_run",
    )
)


def check_shared_memory(ir: str, name: str) -> None:
    """Look at the launches in the IR of a GPU kernel.

    Raises:
        HalideCompileError: a block needs more shared memory than it gets, or it is not known how much.
    """
    launches = _LAUNCH.findall(ir)
    if computed := [shared for _, shared in launches if not shared.isdecimal()]:
        raise HalideCompileError(
            f"the shared memory of a block is computed when it is launched ({computed[0]})",
            where=f"kernel {name}",
            cure=REFUSED,
        )
    if (most := max((int(shared) for _, shared in launches), default=0)) > SHARED_BYTES:
        raise HalideCompileError(
            f"a block needs {most} bytes of shared memory, more than {SHARED_BYTES}",
            where=f"kernel {name}",
            cure=REFUSED,
        )


def check_calls(machine_code: bytes, name: str) -> None:
    """Look at the object of the half of a GPU kernel that launches the other one.

    Raises:
        HalideCompileError: it would allocate or copy memory.
    """
    calls = elf.symbols(machine_code).undefined
    if beyond := sorted(s for s in calls if s.startswith("halide_") and s not in _LAUNCHING):
        raise HalideCompileError(
            f"its launch needs {', '.join(beyond)}; a kernel may not keep results in memory of its own",
            where=f"kernel {name}",
            cure=REFUSED,
        )


def block_threads(ir: str) -> tuple[int, ...]:
    """Threads of a block in three dimensions; empty if launches differ, or compute it."""
    sizes = {tuple(map(int, re.findall(r"i32 (\d+)", threads))) for threads, _ in _LAUNCH.findall(ir)}
    threads = sizes.pop() if len(sizes) == 1 else ()
    return threads if len(threads) == 3 else ()


def device_code(kernel: ExecutedText, ir: str, target: Target) -> Module:
    """What runs on the GPU, as it is assembled."""
    module = complete(extract_from_ir(ir), kernel.name, target.capability, block_threads(ir))
    return waiting(with_eviction_priority(module, str(kernel.namespace.get("LOADS", ""))), target.capability)
