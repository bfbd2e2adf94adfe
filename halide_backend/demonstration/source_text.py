"""Real text that every Python carries: the source files of its own standard library, as bytes."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import torch


def tokens(length: int) -> torch.Tensor:
    """The first `length` bytes of the standard library's modules: int64 (length,) in [0, 256).

    Raises:
        RuntimeError: the library's sources are not on disk (a frozen or zipped Python).
    """
    text = bytearray()
    folder = Path(sysconfig.get_path("stdlib"))
    for file in sorted(folder.glob("*.py")):
        text += file.read_bytes()
        if len(text) >= length:
            return torch.frombuffer(text[:length], dtype=torch.uint8).long()
    raise RuntimeError(
        f"{folder} holds only {len(text)} bytes of Python source, the demo needs {length}; "
        "run it with a Python whose standard library is installed as files"
    )


def batches(count: int, rows: int, columns: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """`count` pairs (input, target), int64 (rows, columns); a target is its input one byte on."""
    per_batch = rows * columns + 1
    text = tokens(count * per_batch)
    pairs = []
    for number in range(count):
        piece = text[number * per_batch : (number + 1) * per_batch]
        pairs.append((piece[:-1].view(rows, columns), piece[1:].view(rows, columns)))
    return pairs
