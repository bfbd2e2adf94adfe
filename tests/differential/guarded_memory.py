"""Tensors whose memory touches an inaccessible page: a kernel that reads or writes beyond them is a signal.

Unlike `guard`, this needs no kernel texts and knows kernels of any sizes; what is written beside a strided output it
does not notice.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def empty(
    size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, *, offset: int = 0, at_end: bool = True
) -> torch.Tensor:
    """A tensor in memory of its own of which the last element lies before an inaccessible page, or, unless `at_end`, the
    first one of the storage behind one. Its elements are whatever 0xA5 bytes are."""
    if 0 in size:
        return torch.empty_strided(tuple(size), tuple(stride), dtype=dtype)
    count = offset + 1 + sum((n - 1) * step for n, step in zip(size, stride))
    nbytes = count * dtype.itemsize
    pages = -(-nbytes // _PAGE)
    memory = mmap.mmap(-1, (pages + 2) * _PAGE)
    view = ctypes.c_char.from_buffer(memory)
    start = ctypes.addressof(view)
    del view
    ctypes.memset(start + _PAGE, 0xA5, pages * _PAGE)
    for page in (0, pages + 1):
        if _libc.mprotect(start + page * _PAGE, _PAGE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    place = _PAGE + (pages * _PAGE - nbytes if at_end else 0)
    storage = torch.frombuffer(memory, dtype=dtype, count=count, offset=place)
    return storage.as_strided(tuple(size), tuple(stride), offset)


def copied(tensor: torch.Tensor, *, at_end: bool) -> torch.Tensor:
    """`tensor` with its strides and offset in such memory."""
    found = empty(tensor.shape, tensor.stride(), tensor.dtype, offset=tensor.storage_offset(), at_end=at_end)
    if tensor.numel():
        count = found.untyped_storage().size() // tensor.dtype.itemsize
        found.as_strided((count,), (1,), 0).copy_(tensor.as_strided((count,), (1,), 0))
    return found


@contextmanager
def of_buffers() -> Iterator[None]:
    """All buffers that code which Inductor generates inside allocates on a CPU are in such memory, at its end."""
    guards = torch._C._dynamo.guards
    original = guards._empty_strided_cpu
    guards._empty_strided_cpu = empty
    try:
        yield
    finally:
        guards._empty_strided_cpu = original
