"""What compiling a kernel yields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CompiledKernel:
    """An object file, and what a caller must know of it.

    Attributes:
        object: relocatable ELF image that defines the entry, its `_argv` and `_metadata` forms.
        manifest: plain JSON: "arguments", "checks", "release_gil" (see `ExecutedText.manifest`).
        seconds: time spent compiling.
        image: what runs on the GPU, machine code or PTX; empty for a CPU kernel, whose code is in `object`.
        messages: what Halide and LLVM printed, e.g. warnings; empty when compiled in-process.
    """

    object: bytes
    manifest: Mapping[str, Any]
    seconds: float
    image: bytes = b""
    messages: str = ""
