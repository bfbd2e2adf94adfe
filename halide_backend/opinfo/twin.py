"""Copies of sample inputs that are laid out as the originals: strides, offsets, shared memory."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map

#: The type that has at least twice the precision.
_WIDER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


def twin(tree: Any) -> Any:
    """A copy of every tensor in `tree`; those that share memory there share it in the copy."""
    storages: dict[int, torch.UntypedStorage] = {}

    def copy(leaf: Any) -> Any:
        return _copied(leaf, storages) if isinstance(leaf, torch.Tensor) else leaf

    return tree_map(copy, tree)


def _copied(tensor: torch.Tensor, storages: dict[int, torch.UntypedStorage]) -> torch.Tensor:
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
    if tensor.is_conj() or tensor.is_neg():
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
    original = tensor.untyped_storage()
    if original.data_ptr() not in storages:
        storages[original.data_ptr()] = original.clone()
    copied = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    copied.set_(storages[original.data_ptr()], tensor.storage_offset(), tensor.size(), tensor.stride())
    return copied.requires_grad_(tensor.requires_grad)


def can_widen(tree: Any) -> bool:
    """Whether a tensor of `tree` has a type that there is a wider one of."""
    return any(leaf.dtype in _WIDER for leaf in tensors(tree))


def wider(tree: Any) -> Any:
    """`twin(tree)` with every float16 and bfloat16 tensor as float32, and every float32 tensor as float64."""

    def widen(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.dtype in _WIDER:
            return leaf.detach().to(_WIDER[leaf.dtype]).requires_grad_(leaf.requires_grad)
        return leaf

    return tree_map(widen, twin(tree))


def like(tree: Any, models: Any) -> Any:
    """The list `tree` with its tensors in the data types of `models`, where both are floats."""
    return [
        value.to(model.dtype)
        if isinstance(value, torch.Tensor)
        and isinstance(model, torch.Tensor)
        and value.dtype != model.dtype
        and _float(value) == _float(model)
        and (value.is_floating_point() or value.is_complex())
        else value
        for value, model in zip(tree, models, strict=True)
    ]


def _float(tensor: torch.Tensor) -> tuple[bool, bool]:
    return tensor.is_floating_point(), tensor.is_complex()


def tensors(tree: Any) -> list[torch.Tensor]:
    """The tensors of `tree`, in order."""
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
