"""How much of what was freed the C library keeps in this process, so that the next call does not get fresh pages, and
larger pages for what it does not keep.

A model's call frees its intermediate results, and glibc gives the free end of its heap back to the system, above a
threshold that follows from the largest block freed so far: the next call gets the same memory as fresh pages, one page
fault for each (docs/how-to/keep-freed-memory.md has what that costs).
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

from halide_backend.launch.launcher import native

if TYPE_CHECKING:
    import torch

#: Parameters of mallopt (malloc.h).
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3

#: A freed block above the threshold of mmap goes back to the system at once, whatever is kept, and a block below it may
#: leave a hole in the heap: an eighth lets eight blocks share what is kept. Of 256 MB that is the most that glibc
#: chooses by itself (DEFAULT_MMAP_THRESHOLD_MAX, 32 MB), and the most that its older versions accept.
_BLOCKS = 8
_LARGEST_BLOCK_ACCEPTED = 32 << 20

#: Bytes from which on a block is fresh in each call: glibc maps it anew, and gives it back when it is freed.
LARGE_BLOCK = _LARGEST_BLOCK_ACCEPTED

#: Megabytes that can be kept at most: mallopt takes an int.
MOST_MB = 2047

#: Environment variables by which a user sets these thresholds (mallopt(3)).
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_")

_kept_mb = 0


def decided_elsewhere() -> str:
    """Why this process's thresholds are not ours to set: a sentence's end, "" where they are."""
    for name in _VARIABLES:
        if name in os.environ:
            return f"as {name} says"
    if "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", ""):
        return "as GLIBC_TUNABLES says"
    if not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        return "as this C library, which is not glibc, does"
    return ""


def keep_freed_memory(megabytes: int) -> None:
    """Let this process keep up to `megabytes` of the memory that it frees, `MOST_MB` at most; 0 changes nothing.

    The largest number so far holds: another model of the process may have asked for it. Nothing happens where the
    thresholds are `decided_elsewhere`.
    """
    global _kept_mb
    if megabytes <= _kept_mb or decided_elsewhere():
        return
    _kept_mb = megabytes
    mallopt = ctypes.CDLL(None).mallopt
    kept = min(megabytes, MOST_MB) << 20
    mallopt(_TRIM_THRESHOLD, kept)
    if not mallopt(_MMAP_THRESHOLD, kept // _BLOCKS):
        mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK_ACCEPTED)


def in_huge_pages(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor`, whose memory was just allocated on a CPU: of 32 MB and more the first touch brings pages of 2 MB."""
    storage = tensor.untyped_storage()
    if storage.nbytes() >= LARGE_BLOCK:
        native().huge_pages(storage.data_ptr(), storage.nbytes())
    return tensor
