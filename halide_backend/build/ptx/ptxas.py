"""NVIDIA's assembler, from wherever it is: it turns PTX into machine code for one kind of GPU, and needs none."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from halide_backend.errors import HalideCompileError

#: Where an installed package keeps it: Triton's wheel, and NVIDIA's own for CUDA 12 and 13.
_PACKAGES = (
    ("triton", "backends/nvidia/bin/ptxas"),
    ("nvidia", "cuda_nvcc/bin/ptxas"),
    ("nvidia", "cu13/bin/ptxas"),
)
#: Registers of an SM, how many a thread gets at a time, and the threads that it can have.
_REGISTERS, _UNIT, _MOST_THREADS = 1 << 16, 8, 2048

#: Seconds in which the assembler has to say its version, in the user's process; all else it does in workers.
_PATIENCE_S = 10.0

_USED = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"\b[1-9]\d* bytes (?:stack frame|spill)")
_THREADS = re.compile(r"^\.maxntid (\d+), (\d+), (\d+)$", re.MULTILINE)
_RELEASE = re.compile(r"release [\d.]+, V([\d.]+)")


@cache
def find() -> str | None:
    """Path of ptxas: from the toolkit of CUDA_HOME, an installed package, or PATH; None if there is none."""
    return next((str(path) for path in _candidates() if os.access(path, os.X_OK)), None)


@cache
def version() -> str:
    """Version of the assembler, which decides the machine code; "" where the driver has to do its work.

    Raises:
        HalideCompileError: it does not run, or takes longer than `_PATIENCE_S` seconds to answer.
    """
    path = find()
    if path is None:
        return ""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=_PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HalideCompileError(
            f"the assembler does not say its version: {error}",
            where=path,
            cure="Set CUDA_HOME to a toolkit whose ptxas runs here.",
        ) from None
    found = _RELEASE.search(done.stdout)
    return found[1] if found else done.stdout.strip()


def assemble(ptx: str, capability: str, name: str, registers: str | float = "auto") -> bytes:
    """Machine code for `capability` ("sm_90"); for "compute_90", or where there is no assembler, the PTX, which the
    driver assembles.

    Args:
        registers: what a thread may have. "auto": as many as the assembler takes. A number: at most so many. A part f,
            0 < f < 1: where at least f of what the assembler would take is left if one more block is to fit on an SM,
            so many, unless they are too few to keep values out of memory.

    Raises:
        HalideCompileError: ptxas refuses the PTX.
    """
    if isinstance(registers, int):
        ptx = _THREADS.sub(rf"\g<0>\n.maxnreg {registers}", ptx)
    path = find()
    if path is None or not capability.startswith("sm_"):
        return ptx.encode() + b"\0"
    with tempfile.TemporaryDirectory(prefix="halide-backend-") as folder:
        source, target = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        command = [path, "-v", "-O3", f"-arch={capability}", str(source), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise HalideCompileError(
                f"ptxas: {(done.stderr or done.stdout).strip()[:2000]}",
                where=f"kernel {name}",
                cure="Please report it with the kernel's text.",
            )
        image = target.read_bytes()
        if isinstance(registers, float) and (blocks := _another_block(ptx, done.stderr, registers)):
            source.write_text(_THREADS.sub(rf"\g<0>\n.minnctapersm {blocks}", ptx))
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0 and not _SPILLS.search(done.stderr):
                return target.read_bytes()
        return image


def _another_block(ptx: str, told: str, part: float) -> int:
    """The blocks on an SM if it had one more than with the registers that the assembler `told`; 0 if it cannot have, or
    if threads would have less than `part` of those registers."""
    used, block = _USED.findall(told), _THREADS.findall(ptx)
    if len(used) != 1 or len(block) != 1:
        return 0
    threads = math.prod(map(int, block[0]))
    blocks = _REGISTERS // (-(-int(used[0]) // _UNIT) * _UNIT * threads) + 1
    fewer = _REGISTERS // (threads * blocks) // _UNIT * _UNIT
    return blocks if threads * blocks <= _MOST_THREADS and fewer >= part * int(used[0]) else 0


def _candidates() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if folder := os.environ.get(variable):
            yield Path(folder, "bin", "ptxas")
    for package, place in _PACKAGES:
        # Their spec says where they are without importing them.
        spec = importlib.util.find_spec(package)
        for location in (spec.submodule_search_locations or ()) if spec else ():
            yield Path(location, place)
    if found := shutil.which("ptxas"):
        yield Path(found)
    yield Path("/usr/local/cuda/bin/ptxas")
