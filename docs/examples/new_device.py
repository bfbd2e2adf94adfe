"""A device of one's own in Python, and torch.compile on it with this backend.

    python docs/examples/new_device.py

The device "demo" has the host's memory, and nothing of it is written in C++. torch keeps a place for one device that it
does not know, PrivateUse1; its tensors are made here through DLPack, and all its operators but a few run the CPU's on
the same memory, one by one. That is eager mode. `halide_backend.register_device` then has torch.compile make kernels
for it, and main() trains a small network on it and compares every number with the CPU's.
"""

from __future__ import annotations

import collections
import copy
import ctypes
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import halide_backend

NAME = "demo"

#: Eager operators that ran on the device, and how often; kernels of torch.compile are not among them.
eager_operators: collections.Counter[str] = collections.Counter()


# -- memory: tensors made through DLPack ------------------------------------------------------------------------------


class _Tensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    """DLManagedTensor of dlpack.h: torch calls `deleter` when nobody has the memory any more."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


#: Type codes of dlpack.h, and its number for a device that it does not know.
_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6
_EXTENSION_DEVICE = 12
_CODES = {
    **dict.fromkeys((torch.float16, torch.float32, torch.float64), _FLOAT),
    **dict.fromkeys((torch.int8, torch.int16, torch.int32, torch.int64), _INT),
    **dict.fromkeys((torch.complex64, torch.complex128), _COMPLEX),
    torch.bfloat16: _BFLOAT,
    torch.uint8: _UINT,
    torch.bool: _BOOL,
}

#: What is allocated, by the address of its _Managed: that, and the memory and the arrays it points to.
_allocated: dict[int, tuple[Any, ...]] = {}

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _release(managed: int) -> None:
    del _allocated[managed]


def _allocate(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of the device, with memory of its own that begins at a multiple of 64 bytes."""
    size, stride = tuple(map(int, size)), tuple(map(int, stride))
    reach = 1 + sum((n - 1) * step for n, step in zip(size, stride)) if all(size) else 0
    memory = ctypes.create_string_buffer(reach * dtype.itemsize + 64)
    array = ctypes.c_int64 * len(size)
    shape, strides = array(*size), array(*stride)
    managed = _Managed(
        _Tensor(
            data=-(-ctypes.addressof(memory) // 64) * 64,
            device_type=_EXTENSION_DEVICE,
            dimensions=len(size),
            code=_CODES[dtype],
            bits=8 * dtype.itemsize,
            lanes=1,
            shape=shape,
            strides=strides,
        ),
        deleter=ctypes.cast(_release, ctypes.c_void_p),
    )
    address = ctypes.addressof(managed)
    _allocated[address] = managed, memory, shape, strides
    return torch.utils.dlpack.from_dlpack(_new_capsule(address, b"dltensor", None))


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor over the memory of one of the device's."""
    storage = tensor.untyped_storage()
    if not storage.nbytes():
        return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
    memory = (ctypes.c_uint8 * storage.nbytes()).from_address(storage.data_ptr())
    elements = torch.frombuffer(memory, dtype=tensor.dtype)
    return elements.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


# -- operators --------------------------------------------------------------------------------------------------------


def _is_ours(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == NAME


def _empty(size: Any, *, dtype: Any = None, memory_format: Any = None, **_: Any) -> torch.Tensor:
    layout = torch.empty(size, device="meta", memory_format=memory_format or torch.contiguous_format)
    return _allocate(size, layout.stride(), dtype or torch.get_default_dtype())


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> torch.Tensor:
    return _allocate(size, stride, dtype or torch.get_default_dtype())


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    pair = [_on_host(each) if _is_ours(each) else each for each in (source, target)]
    pair[1].copy_(pair[0])
    return target


def _without_memory(operator: Any) -> Any:
    """An operator that makes a view: the CPU's touches no memory, and so serves any device."""
    cpu = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    return lambda *arguments, **named: operator.redispatch(cpu, *arguments, **named)


def _on_cpu(operator: Any, *arguments: Any, **named: Any) -> Any:
    """Any other operator: the CPU's, on the same memory; what it makes anew is copied into memory of the device."""
    if any(result.alias_info and not result.alias_info.is_write for result in operator._schema.returns):
        raise NotImplementedError(f"{operator}: a view that the device {NAME!r} does not have")
    eager_operators[str(operator)] += 1
    given: dict[int, torch.Tensor] = {}

    def there(value: Any) -> Any:
        if isinstance(value, torch.device) and value.type == NAME:
            return torch.device("cpu")
        if not _is_ours(value):
            return value
        host = _on_host(value)
        given[id(host)] = value
        return host

    def back(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) in given:
            return given[id(value)]
        made = _allocate(value.size(), value.stride(), value.dtype)
        _on_host(made).copy_(value)
        return made

    # The views of host memory have to live until `back` has compared them.
    views = tree_map(there, (arguments, named))
    result = operator(*views[0], **views[1])
    for view in tree_leaves(views):
        if id(view) in given and view.size() != given[id(view)].size():
            raise NotImplementedError(f"{operator}: the device {NAME!r} cannot resize a tensor")
    return tree_map(back, result)


#: torch forgets the operators of a library that nobody has any more.
_libraries: list[torch.library.Library] = []


def make_device() -> None:
    """Give torch the device; once a process."""
    _setup_privateuseone_for_python_backend(NAME)
    operators = torch.library.Library("aten", "IMPL", "PrivateUse1")
    operators.impl("empty.memory_format", _empty)
    operators.impl("empty_strided", _empty_strided)
    operators.impl("_copy_from", _copy_from)
    for view in ("as_strided", "view", "_reshape_alias", "unfold"):
        operators.impl(view, _without_memory(getattr(torch.ops.aten, view).default))
    all_others = torch.library.Library("_", "IMPL")
    all_others.fallback(_on_cpu, "PrivateUse1")
    _libraries.extend((operators, all_others))


# -- what it is good for ----------------------------------------------------------------------------------------------


def main() -> None:
    """Train a network on the CPU in eager mode and on the device compiled, and print how far they are apart."""
    make_device()
    halide_backend.register_device(NAME)
    torch.manual_seed(0)
    reference = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 10)
    )
    network = copy.deepcopy(reference).to(NAME)
    inputs, labels = torch.randn(16, 32), torch.randint(0, 10, (16,))

    def trained(model: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor, fast: bool) -> list[float]:
        forward = torch.compile(model) if fast else model
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        step = torch.compile(optimizer.step) if fast else optimizer.step
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(forward(inputs), labels)
            loss.backward()
            step()
            losses.append(loss.item())
        return losses

    expected = trained(reference, inputs, labels, fast=False)
    eager_operators.clear()
    found = trained(network, inputs.to(NAME), labels.to(NAME), fast=True)
    difference = max(abs(a - b) for a, b in zip(found, expected))
    for here, there in zip(network.parameters(), reference.parameters()):
        difference = max(difference, (here.cpu() - there).abs().max().item())
    statistics = halide_backend.stats()
    print(f"losses {', '.join(f'{loss:.4f}' for loss in found)}; largest difference from the CPU {difference:.1e}")
    print(f"native kernels {statistics['native_kernels']}, delegated {statistics['delegated_kernels']}")
    print("eager operators", ", ".join(f"{name} {number}" for name, number in sorted(eager_operators.items())))


if __name__ == "__main__":
    main()
