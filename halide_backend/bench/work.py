"""What a kernel does at least: bytes that it moves, operations that it computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from halide_backend.bench.agreement import tensors


class Operations(TorchDispatchMode):
    """Counts what runs under it: for every operator that computes, an operation for each element it reads or writes.

    A lower bound of arithmetic: an exponential or a whole softmax counts as one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            found = [a for a in args if isinstance(a, Tensor)] + [r for r in _leaves(result) if isinstance(r, Tensor)]
            self.count += max((tensor.numel() for tensor in found), default=0)
        return result


def bytes_moved(arguments: Sequence[Tensor], results: Any, *, gathers: bool) -> int:
    """Bytes of all elements read and written once; of tables that are gathered from, no more than the results'."""
    read: list[int] = [a.numel() * a.element_size() for a in arguments]
    written: int = sum(r.numel() * r.element_size() for r in tensors(results))
    if gathers:
        read = [min(size, written) for size in read]
    return sum(read) + written


def _leaves(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, (tuple, list)) else [value]
