"""Names of kernels on a GPU, which profilers show: given when a kernel is loaded.

One artifact serves every graph that has its text, each of which has a name of its own for the kernel. So the assembler
gets place holders of a fixed length, and loading writes names over them: in machine code, an ELF file, a shorter string
that ends with zeros moves nothing and leaves every offset as it was.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halide_backend.build.ptx.instructions import Function, Module

#: Characters of a place holder, and the most that a name has.
LENGTH = 160

_ELF = b"\x7fELF"


def with_placeholders(module: Module) -> Module:
    """`module` whose entries have place holders as names, numbered in their order."""
    functions = (_named(function, _placeholder(number)) for number, function in enumerate(module.functions))
    return replace(module, functions=tuple(functions))


def named(image: bytes, names: Sequence[str]) -> bytes:
    """`image`, machine code or PTX made of `with_placeholders`, whose entries have `names`, of at most `LENGTH`."""
    for number, name in enumerate(names):
        filled = name.ljust(LENGTH, "\0") if is_machine_code(image) else name
        image = image.replace(_placeholder(number).encode(), filled.encode())
    return image


def is_machine_code(image: bytes) -> bool:
    """Whether an image is machine code; else it is PTX."""
    return image.startswith(_ELF)


def entry_name(kernel: str, stage: int | str) -> str:
    """The name of `kernel`'s launch number `stage`; of a long one what comes first, and the number at its end."""
    head, _, number = re.sub(r"\W", "_", kernel).rpartition("_")
    tail = f"_{number}__{stage}"
    return f"{head[: LENGTH - len(tail)]}{tail}"


def _named(function: Function, name: str) -> Function:
    # Not its parameters, whose names only begin with its own.
    signature = function.signature.replace(f" {function.name}(", f" {name}(", 1)
    return replace(function, name=name, signature=signature)


def _placeholder(number: int) -> str:
    return f"halide_entry_{number:04}".ljust(LENGTH, "_")
