"""What a package says of each of its kernels: a line of text in the library or the source, which nobody loads.

halide_backend kernel=halide_fused_gelu_0 targets=avx2,avx512 c_interface=1 torch=2.13.0+cpu;
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from halide_backend.build.c_interface import VERSION

_LINE = re.compile(rb"halide_backend kernel=(\S+) targets=(\S+) c_interface=(\d+) torch=([^\s;]+);")


@dataclass(frozen=True)
class KernelNote:
    """One kernel of a package.

    Attributes:
        kernel: its name in the C++ wrapper.
        targets: what it is compiled for, by the names of `aot_targets`; for the machine where the package was
            made LLVM's name of the processor.
        c_interface: the version of the C interface. torch: the version that made the package.
    """

    kernel: str
    targets: tuple[str, ...]
    c_interface: int
    torch: str


def line(kernel: str, targets: Sequence[str], torch: str) -> str:
    """The line of a kernel, without its end."""
    return f"halide_backend kernel={kernel} targets={','.join(targets)} c_interface={VERSION} torch={torch};"


def note(kernel: str, targets: Sequence[str], torch: str) -> str:
    """Assembly language that puts the line of a kernel into a section of its own."""
    text = line(kernel, targets, torch)
    return f'.pushsection .comment.halide_backend,"",@progbits\n.ascii "{text}\\n"\n.popsection\n'


def notes(file: bytes) -> list[KernelNote]:
    """The lines in a library, in C++ source, or in bytecode."""
    found = []
    for match in _LINE.finditer(file):
        kernel, targets, version, torch = (text.decode() for text in match.groups())
        found.append(KernelNote(kernel, tuple(targets.split(",")), int(version), torch))
    return found
