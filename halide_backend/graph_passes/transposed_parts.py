"""Concatenations of parts that lie across each other in memory: each part is stored by a kernel of its own.

Inductor computes all of a small concatenation in one kernel of a GPU, under masks. A part that is transposed would be
read an element of each row at a time there, and threads that transpose a tile together cannot have masks. On an H200,
the transpose of 4224 x 4096 bfloat16 and 4096 x 4224 one below the other took 254 us, as two kernels 39 us, Triton's
kernel 37 us.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._inductor import ir
from torch._inductor.virtualized import V

from halide_backend.device_type import DeviceType
from halide_backend.graph_passes.own_lowerings import prefer

#: Elements of the two axes of a transpose from which on it is worth tiles, and a kernel: a line of memory of 32 bits.
_LONG = 32

#: Elements that are transposed from which on they are worth a launch, and the part of all elements from which on what
#: reads the result had better read it from memory.
_MANY, _MUCH = 1 << 20, 1 / 4


@functools.cache
def store_transposed_parts_apart(kind: DeviceType) -> None:
    """Let Inductor lower concatenations on devices of this `kind` so, for graphs of this backend."""
    prefer(torch.ops.aten.cat.default, functools.partial(_cat, kind.name), kind)


def _cat(device: str, tensors: Any, dim: int = 0) -> ir.TensorBox | None:
    """Parts in slices of one tensor; None where most of them lie as the result does, or sizes are not known."""
    node = V.graph.current_node
    if node.target is not torch.ops.aten.cat.default:
        return None  # The lowering of another operator asks.
    parts, whole = [each.meta.get("val") for each in node.args[0]], node.meta.get("val")
    if not all(isinstance(part, torch.Tensor) and part.device.type == device for part in (*parts, whole)):
        return None
    known = all(isinstance(size, int) for part in (*parts, whole) for size in (*part.shape, *part.stride()))
    alike = len({(part.dtype, part.dim()) for part in parts}) == 1
    if not known or not alike or len(parts) < 2:
        return None
    along = max(range(whole.dim()), key=lambda axis: (whole.stride(axis) == 1, whole.size(axis)), default=0)
    turned = sum(part.numel() for part in parts if _is_transposed(part, along))
    if turned < max(_MANY, _MUCH * whole.numel()):
        return None
    return ir.TensorBox(ir.ConcatKernel.create(tensors, dim % whole.dim()))


def _is_transposed(part: torch.Tensor, along: int) -> bool:
    """Whether memory goes on along another long axis than the one `along` which the result's does."""
    others = [size for axis, size in enumerate(part.shape) if part.stride(axis) == 1 and axis != along]
    return part.stride(along) > 1 and part.size(along) >= _LONG and max(others, default=0) >= _LONG
