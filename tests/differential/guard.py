"""Runs kernel texts with every buffer against an inaccessible page, first at its end, then at its start.

    python -m tests.differential.guard FOLDER [--limit N] [--record FILE]

Each run is a forked child, so a wild access is a signal and not the end. Around the buffers, on the accessible side,
and between the elements of a strided output lie known bytes that must not change. Buffers of one tensor that a kernel
overwrites in place are separate here: only places are checked, not values. Needs no torch; kernels with extents that
are known only at the call are left out and counted.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import mmap
import operator
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from halide_backend.build.artifacts import get_or_compile
from halide_backend.build.loader import load_object
from halide_backend.build.target import Target
from halide_backend.inspection import machine
from halide_backend.launch.launcher import native
from halide_backend.sources import sources_digest

_PAGE = mmap.PAGESIZE
_CANARY = 0xA5
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Dimension(ctypes.Structure):
    """halide_dimension_t"""

    _fields_ = [(name, ctypes.c_int32) for name in ("min", "extent", "stride", "flags")]


class Buffer(ctypes.Structure):
    """halide_buffer_t"""

    _fields_ = [
        ("device", ctypes.c_uint64),
        ("device_interface", ctypes.c_void_p),
        ("host", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("dimensions", ctypes.c_int32),
        ("dim", ctypes.POINTER(Dimension)),
        ("padding", ctypes.c_void_p),
    ]


@dataclass
class Guarded:
    """One argument's memory: `data` is the tensor, `room` all accessible bytes around and including it."""

    buffer: Buffer
    room: np.ndarray[Any, Any]
    may_change: np.ndarray[Any, Any]
    before: np.ndarray[Any, Any]

    def violated(self) -> bool:
        return bool((self.room[~self.may_change] != self.before[~self.may_change]).any())


def guarded(argument: Mapping[str, Any], at_end: bool, written: bool, seed: int) -> Guarded:
    """Memory for `argument` between two inaccessible pages, touching the one that `at_end` asks for."""
    size = max(1, argument["bits"] // 8)
    dims = argument["dims"]
    elements = 1 + sum((extent - 1) * stride for extent, stride in dims) if dims else 1
    nbytes = argument["offset"] + elements * size
    pages = -(-nbytes // _PAGE)
    start = _libc.mmap(None, (pages + 2) * _PAGE, 3, 0x22, -1, 0)
    _libc.mprotect(start, _PAGE, 0)
    _libc.mprotect(start + (pages + 1) * _PAGE, _PAGE, 0)
    room = np.ctypeslib.as_array(ctypes.cast(start + _PAGE, ctypes.POINTER(ctypes.c_uint8)), (pages * _PAGE,))
    room[:] = _CANARY
    place = pages * _PAGE - nbytes if at_end else 0
    data = room[place : place + nbytes]
    data[:] = np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)
    may_change = np.zeros(pages * _PAGE, dtype=bool)
    if written:
        box = np.lib.stride_tricks.as_strided(
            may_change[place + argument["offset"] :],
            [extent for extent, _ in dims] + [size],
            [stride * size for _, stride in dims] + [1],
        )
        box[...] = True
    array = (Dimension * max(1, len(dims)))(*(Dimension(0, n, stride, 0) for n, stride in dims))
    buffer = Buffer(
        host=start + _PAGE + place + argument["offset"],
        code=argument["code"],
        bits=argument["bits"],
        lanes=1,
        dimensions=len(dims),
        dim=array,
    )
    return Guarded(buffer, room, may_change, room.copy())


def run(address: int, manifest: Mapping[str, Any], written: list[bool], at_end: bool) -> str:
    """Call the kernel once, in this process; "" or what it violated."""
    memory = []
    for number, argument in enumerate(manifest["arguments"]):
        if argument["kind"] == "status":
            count = len(manifest["checks"])
            argument = {"bits": 32, "code": 0, "offset": 0, "dims": [[count, 1]]}
        memory.append(guarded(argument, at_end, written[number], number))
    places = (ctypes.c_void_p * len(memory))(*(ctypes.addressof(m.buffer) for m in memory))
    result = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(address)(ctypes.addressof(places))
    if result:
        return f"returned {result}"
    wrong = [argument["name"] for argument, m in zip(manifest["arguments"], memory) if m.violated()]
    return f"wrote beside {', '.join(wrong)}" if wrong else ""


def in_child(address: int, manifest: Mapping[str, Any], written: list[bool], at_end: bool) -> str:
    """`run` in a forked child; a signal is a violation."""
    child = os.fork()
    if child == 0:
        answer = run(address, manifest, written, at_end)
        if answer:
            print(f"    {answer}", flush=True)
        os._exit(1 if answer else 0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return "wrong bytes" if os.WEXITSTATUS(status) else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=int, default=10**9)
    parser.add_argument("--record", type=Path, help="JSON file for the counts, with machine, versions and date")
    arguments = parser.parse_args()
    target = Target.host()
    symbols = native().symbols()
    counts: Counter[str] = Counter()
    violations = []
    for path in sorted(arguments.folder.glob("*.py"))[: arguments.limit]:
        text = path.read_text()
        try:
            artifact = get_or_compile(text, target, name=path.stem).artifact.result()
        except Exception as error:
            counts["not built"] += 1
            print(f"{path.name}: not built: {str(error)[:200]}", flush=True)
            continue
        described = artifact.manifest["arguments"]
        if any(
            a["kind"] not in ("buffer", "status") or 0 in functools.reduce(operator.iadd, a.get("dims", []), [])
            for a in described
        ):
            counts["dynamic"] += 1
            continue
        namespace: dict[str, Any] = {}
        exec(text, namespace)
        written = [type(a).__name__ in ("Output", "Status") for a in namespace["ARGUMENTS"]]
        code = load_object(artifact.object, f"{artifact.entry}_argv", symbols)
        counts["kernels"] += 1
        for at_end in (True, False):
            counts["runs"] += 1
            problem = in_child(code.address, artifact.manifest, written, at_end)
            if problem:
                side = "end" if at_end else "start"
                violations.append(f"{path.name} against the {side}: {problem}")
                print(violations[-1], flush=True)
    report = {**counts, "violations": violations}
    if arguments.record:
        command = " ".join(["python -m tests.differential.guard", *sys.argv[1:]])
        record = {"command": command, **machine.facts(), "date": time.strftime("%Y-%m-%d", time.gmtime())}
        arguments.record.write_text(json.dumps({**record, "sources": sources_digest(), **report}, indent=1) + "\n")
    print(json.dumps(report))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
