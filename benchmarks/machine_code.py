"""Whether a change of the sources changes what runs: digests of the machine code of the whole benchmark suite.

    python benchmarks/machine_code.py record OUT.json [--only TEXT ...] [--jobs N]
    python benchmarks/machine_code.py compare A.json B.json

`record` compiles every kernel of `halide-backend bench`, for a CPU with AVX-512 and for an H200, on any x86-64 machine:
kernels for a GPU are captured on the CPU, as Inductor lowers there, and none is run. Names do not matter: neither those
of symbols and arguments in an object, nor those of registers, labels and parameters in PTX. The PTX is what the
assembler is given; where ptxas is found it decides on the registers, as it does on a GPU machine.
A case of which this backend would leave a part to another one is recorded as refused. `compare` lists kernels whose
code differs, and exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import re
import struct
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch._inductor.exc import InductorError

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "golden"))

from captured_kernels import CapturedKernel, captured_kernels  # noqa: E402

from halide_backend.bench.case import SIZES, Case, Selection  # noqa: E402
from halide_backend.bench.case import cases as suite  # noqa: E402
from halide_backend.bench.kernels import GROUPS  # noqa: E402
from halide_backend.bench.operands import Operands  # noqa: E402
from halide_backend.build.pool import WorkerPool  # noqa: E402
from halide_backend.build.ptx import ptxas  # noqa: E402
from halide_backend.build.ptx.completion import extract  # noqa: E402
from halide_backend.build.target import Target  # noqa: E402

TARGETS = {"cpu": Target.named("avx512"), "cuda": Target.cuda(9, 0)}

#: An assembler that answers with the PTX that it was given, after the real one, if any, has said what it made of it.
ASSEMBLER = """\
#!/bin/sh
test -z "{ptxas}" || "{ptxas}" "$@" || exit $?
while test $# -gt 1; do
  case "$1" in -o) out="$2" ;; *.ptx) source="$1" ;; esac
  shift
done
cp "$source" "$out"
"""

_SYMBOL = re.compile(r"[$\w.]*[A-Za-z_$][$\w.]*")
#: What PTX declares: kernels, parameters, memory and labels; registers that are not numbered.
_DECLARED = re.compile(
    r"\.entry (\w+)\(|\.param\s[^,;)]*?(\w+)(?:\[\d+\])?\s*[,\n;)]|"
    r"\.(?:shared|global|const)\s[^;]*?(\w+)\[\d*\]\s*[;=]|(?<=[;{}\n])[ \t]*(\$?\w+):(?!:)"
)
_REGISTERS = re.compile(r"\.reg\s+\.\w+\s+([^%;<]+);")


class Uninitialised(Operands):
    """Operands in the memory of this machine whose values nobody reads."""

    def __call__(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self.dtype)

    @staticmethod
    def of_case(case: Case) -> Uninitialised:
        """What `case.operands()` makes, for a kernel that is only captured."""
        made = case.operands()
        return Uninitialised(made.rows, made.columns, made.dtype, "cpu")


@dataclass(frozen=True)
class Section:
    """A section of an object file."""

    name: str
    kind: int
    flags: int
    image: bytes
    link: int
    info: int
    entry_size: int


_HEADER, _SECTION = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ")
_ENTRY, _RELOCATION = struct.Struct("<IBBHQQ"), struct.Struct("<QIIq")
_SYMBOLS, _RELOCATIONS, _NO_BITS = 2, 4, 8
_EXECUTABLE, _MERGED = 4, 16


def sections_of(image: bytes) -> list[Section]:
    """The sections of a relocatable 64-bit object."""
    header = _HEADER.unpack_from(image)
    raw = [_SECTION.unpack_from(image, header[6] + number * _SECTION.size) for number in range(header[12])]

    def content(section: tuple[int, ...]) -> bytes:
        return b"" if section[1] == _NO_BITS else image[section[4] : section[4] + section[5]]

    names = content(raw[header[13]])
    return [
        Section(names[s[0] : names.index(b"\0", s[0])].decode(), s[1], s[2], content(s), s[6], s[7], s[9]) for s in raw
    ]


def code_bytes(image: bytes) -> int:
    """The size of an object's instructions."""
    return sum(len(section.image) for section in sections_of(image) if section.flags & _EXECUTABLE)


def object_digest(image: bytes, *, with_tables: bool) -> str:
    """The digest of an object's instructions and of the constants that they read.

    Without `with_tables` what lies among the names of arguments is left out: the launching half of a kernel for a GPU
    has its PTX there.
    """
    sections = sections_of(image)
    digest = hashlib.sha256()
    for number, code in enumerate(sections):
        if code.flags & _EXECUTABLE:
            digest.update(code.image)
            for part in _relocations(sections, number, with_tables):
                digest.update(repr(part).encode())
    return digest.hexdigest()


def _relocations(sections: list[Section], number: int, with_tables: bool) -> Iterator[tuple[object, ...]]:
    """What the section `number` refers to, each with the place of the reference; what names arguments is left out."""
    starts = _starts(sections)
    for table in sections:
        if table.kind != _RELOCATIONS or table.info != number:
            continue
        symbols = sections[table.link]
        for offset, kind, position, addend in _RELOCATION.iter_unpack(table.image):
            name, _, _, section, value, _ = _ENTRY.unpack_from(symbols.image, position * _ENTRY.size)
            if not section:
                names = sections[symbols.link].image
                yield offset, kind, names[name : names.index(b"\0", name)], addend
                continue
            target = sections[section]
            if target.flags & _EXECUTABLE:
                yield offset, kind, "code", value + addend
            elif target.flags & _MERGED:
                yield offset, kind, target.image[value : value + target.entry_size], addend
            elif target.name == ".rodata" and with_tables:
                start = _start(value + addend)
                end = min((other for other in starts if other > start), default=len(target.image))
                yield offset, kind, target.image[start:end].rstrip(b"\0")
                yield from _jumps(sections, section, start, end)


def _jumps(sections: list[Section], number: int, start: int, end: int) -> Iterator[tuple[object, ...]]:
    """Where the addresses in a part of the section `number` lead."""
    for table in sections:
        if table.kind == _RELOCATIONS and table.info == number:
            symbols = sections[table.link]
            for offset, _, position, addend in _RELOCATION.iter_unpack(table.image):
                if start <= offset < end:
                    yield offset - start, _ENTRY.unpack_from(symbols.image, position * _ENTRY.size)[4] + addend


def _starts(sections: list[Section]) -> list[int]:
    """Where in .rodata something begins that is referred to."""
    found = []
    for table in sections:
        if table.kind == _RELOCATIONS:
            in_code = sections[table.info].flags & _EXECUTABLE
            symbols = sections[table.link]
            for _, _, position, addend in _RELOCATION.iter_unpack(table.image):
                entry = _ENTRY.unpack_from(symbols.image, position * _ENTRY.size)
                if entry[3] and sections[entry[3]].name == ".rodata":
                    found.append(_start(entry[4] + addend) if in_code else entry[4] + addend)
    return found


def _start(reference: int) -> int:
    """Where what an instruction reads begins: a reference counts from the end of its instruction, which is four bytes
    and up to four more of an immediate operand beyond it, and vectors are aligned.
    """
    return -(-(reference + 4) // 8) * 8


def plain_ptx(ptx: str) -> str:
    """PTX without comments, and with numbers for all names that are its own."""
    text = re.sub(r"//.*", "", ptx)
    names: dict[str, str] = {}
    found = [(m.start(), name) for m in _DECLARED.finditer(text) for name in m.groups() if name]
    found += [(m.start(), name.strip()) for m in _REGISTERS.finditer(text) for name in m[1].split(",")]
    for _, name in sorted(found):
        names.setdefault(name, f"name{len(names)}")
    text = _SYMBOL.sub(lambda m: names.get(m[0], m[0]), text)
    return "\n".join(line for raw in text.splitlines() if (line := " ".join(raw.split())))


def cases(only: list[str]) -> Iterator[tuple[str, Case]]:
    """The suite's cases by device."""
    for device in SIZES:
        for case in suite(GROUPS, device, Selection()):
            if not only or any(word in f"{device}/{case.name}" for word in only):
                yield device, case


def record(only: list[str], jobs: int) -> dict[str, object]:
    """Digests and sizes of all kernels by name."""
    kernels: dict[str, Future[dict[str, object]]] = {}
    refused: dict[str, dict[str, object]] = {}
    pool = WorkerPool(jobs, time_limit=300, memory_limit=16 << 30)

    def compiled(kernel: CapturedKernel, name: str) -> dict[str, object]:
        code = pool.compile(kernel.text, kernel.target, "kernel", name)
        if not kernel.target.capability:
            return {"object": object_digest(code.object, with_tables=True), "bytes": code_bytes(code.object)}
        ptx = plain_ptx(code.image.decode().rstrip("\0"))
        # The launching half loads the PTX from its object and has its size, in which names count.
        size = struct.pack("<I", len(extract(code.object).encode()) + 1)
        host = object_digest(code.object.replace(size, bytes(4)), with_tables=False)
        return {"object": host, "ptx": hashlib.sha256(ptx.encode()).hexdigest(), "lines": len(ptx.splitlines())}

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as threads:
        assembler = Path(folder, "bin", "ptxas")
        assembler.parent.mkdir()
        assembler.write_text(ASSEMBLER.format(ptxas=ptxas.find() or ""))
        assembler.chmod(0o755)
        os.environ["CUDA_HOME"] = folder
        for device, case in cases(only):
            name = f"{device}/{case.name}"
            arguments = case.kernel.operands(Uninitialised.of_case(case))
            try:
                found = captured_kernels(case.kernel.function, arguments, TARGETS[device])
            except InductorError as refusal:
                refused[name] = {"refused": str(refusal).splitlines()[0]}
                continue
            print(f"{name}: {len(found)} kernels", flush=True)
            for number, kernel in enumerate(found):
                kernels[f"{name}/{number}"] = threads.submit(compiled, kernel, name)
        results = {name: each.result() for name, each in kernels.items()} | refused
    pool.close()
    versions = {name: importlib.metadata.version(name) for name in ("torch", "halide", "llvmlite")}
    return {"versions": {**versions, "ptxas": ptxas.version()}, "kernels": results}


def compare(before: dict[str, dict[str, object]], after: dict[str, dict[str, object]]) -> int:
    """Print what differs; 1 if anything does."""
    for name, value in before["versions"].items():
        if after["versions"].get(name) != value:
            print(f"{name} was {value}, is {after['versions'].get(name)}")
    old, new = before["kernels"], after["kernels"]
    differing = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    for name in differing:
        print(f"{name}: {_described(old.get(name))} -> {_described(new.get(name))}")
    print(f"{len(old.keys() | new.keys()) - len(differing)} kernels are the same, {len(differing)} differ")
    return 1 if differing else 0


def _described(kernel: object) -> str:
    if not isinstance(kernel, dict):
        return "no such kernel"
    return " ".join(f"{name} {str(value)[:8]}" for name, value in kernel.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("out", type=Path)
    recording.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="cases whose name contains one")
    recording.add_argument("--jobs", type=int, default=1, help="kernels that are compiled at the same time")
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    options = parser.parse_args()
    if options.command == "compare":
        return compare(json.loads(options.before.read_text()), json.loads(options.after.read_text()))
    options.out.write_text(json.dumps(record(options.only, options.jobs), indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
