"""What a kernel accepts as an argument: the slow, explaining half of the native launcher.

The native code knows plain tensors and numbers at once. It asks `convert` about everything else,
and `check_call` about the first call of each kernel; later calls are not checked, because the
generated wrapper has asserted sizes and strides and torch has guarded dtype and device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from halide_backend.device_type import CPU, find_device_type
from halide_backend.errors import KernelArgumentError

if TYPE_CHECKING:
    import torch

#: halide_type_code_t, HalideRuntime.h of Halide 21.
_INT, _UINT, _FLOAT, _BFLOAT = 0, 1, 2, 3

_NUMBER_BITS = {"int32": 32, "int64": 64}


def check_call(kernel: str, pipelines: Sequence[Sequence[Any]], values: tuple[object, ...]) -> None:
    """Checks the arguments of a kernel's first call against its manifest.

    A tensor must lie on the kernel's device, have the compiled element type, and own all the memory that the
    pipelines were compiled to touch. Raises KernelArgumentError naming the kernel and the argument.
    """
    for _, arguments, positions, *_ in pipelines:
        described = [a for a in arguments if a["kind"] != "status"]
        for argument, position in zip(described, positions, strict=True):
            if argument["kind"] == "buffer":
                _check_buffer(kernel, argument, values[position])


def convert(kernel: str, pipeline: Sequence[Any], index: int, value: object) -> int:
    """The data pointer, or the number, that `value` stands for as argument `index` of `pipeline`.

    Raises KernelArgumentError naming the kernel and the argument where it stands for none.
    """
    argument = pipeline[1][index]
    if argument["kind"] == "buffer":
        return _pointer(kernel, argument, value)
    return _integer(kernel, argument["name"], value, _NUMBER_BITS[argument["kind"]])


def _refuse(kernel: str, argument: str, problem: str) -> NoReturn:
    raise KernelArgumentError(
        f"argument {argument!r} {problem}",
        where=f"kernel {kernel}",
        cure="call the kernel with what it was compiled for, or compile it again",
    )


def _tensor(kernel: str, name: str, value: object) -> torch.Tensor:
    import torch

    if not isinstance(value, torch.Tensor):
        _refuse(kernel, name, f"must be a tensor, not {type(value).__name__}")
    return value


def _pointer(kernel: str, argument: Mapping[str, Any], value: object) -> int:
    name = argument["name"]
    tensor = _tensor(kernel, name, value)
    try:
        # A FakeTensor says it is on the CPU; only its storage tells.
        is_meta = tensor.untyped_storage().device.type == "meta"
        pointer: int = 0 if is_meta else tensor.data_ptr()
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        _refuse(kernel, name, f"is a {type(value).__name__} without memory: {reason}")
    # An extent of 0 may also mean one that is known only at the call, so the tensor is asked too.
    if pointer == 0 and (tensor.numel() or all(extent for extent, _ in argument["dims"])):
        _refuse(kernel, name, f"of shape {tuple(tensor.shape)} on {tensor.device} has no memory")
    alignment = argument.get("alignment", 1)
    if (pointer + argument.get("offset", 0)) % alignment:
        _refuse(kernel, name, f"begins at {pointer:#x}, which is no multiple of {alignment} bytes")
    return pointer


def _check_buffer(kernel: str, argument: Mapping[str, Any], value: object) -> None:
    name = argument["name"]
    tensor = _tensor(kernel, name, value)
    memory = argument.get("device", CPU.memory)
    found = find_device_type(tensor.device)
    if found is None or found.memory != memory:
        _refuse(kernel, name, f"is on {tensor.device}, but the kernel runs on the {memory.upper()}")
    _pointer(kernel, argument, value)
    if (argument["code"], argument["bits"]) not in _elements(tensor):
        kind = ("int", "uint", "float", "bfloat")[argument["code"]]
        _refuse(kernel, name, f"is of {tensor.dtype}, but holds {kind}{argument['bits']} elements")
    first, last = _span(argument)
    start = tensor.storage_offset() * tensor.element_size()
    size = tensor.untyped_storage().nbytes()
    if last > first and not 0 <= start + first <= start + last <= size:
        _refuse(
            kernel,
            name,
            f"of shape {tuple(tensor.shape)} starts at byte {start} of {size} bytes of memory, "
            f"but the kernel touches bytes {start + first} to {start + last}",
        )


def _elements(tensor: torch.Tensor) -> set[tuple[int, int]]:
    """The Halide types (code, bits) that may stand for a tensor's elements."""
    bits = tensor.element_size() * 8
    dtype = str(tensor.dtype)
    if tensor.is_complex():
        return {(_FLOAT, bits // 2)}
    if not tensor.is_floating_point():
        return {(_INT, bits), (_UINT, bits)} | ({(_UINT, 1)} if "bool" in dtype else set())
    # Floats narrower than 32 bits may also be handled as raw words.
    raw = {(_UINT, bits)} if bits < 32 else set()
    if bits == 8:
        return raw
    return raw | {(_BFLOAT if "bfloat16" in dtype else _FLOAT, bits)}


def _span(argument: Mapping[str, Any]) -> tuple[int, int]:
    """First byte a buffer touches and the byte after the last, relative to the data pointer."""
    width = max(1, argument["bits"] // 8)
    if not all(extent for extent, _ in argument["dims"]):
        return 0, 0
    if extent := argument.get("extent"):
        return argument["offset"], argument["offset"] + width * extent
    reaches = [(extent - 1) * stride for extent, stride in argument["dims"]]
    first = argument.get("offset", 0) + width * sum(min(0, reach) for reach in reaches)
    last = argument.get("offset", 0) + width * (1 + sum(max(0, reach) for reach in reaches))
    return first, last


def _integer(kernel: str, name: str, value: object, bits: int) -> int:
    # A tensor with one element has __index__ and __float__ too; reading it would hide a mistake.
    if hasattr(value, "data_ptr") or not hasattr(value, "__index__"):
        _refuse(kernel, name, f"must be an integer, not {type(value).__name__}")
    number = int(value.__index__())
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        _refuse(kernel, name, f"is {number}, which does not fit {bits} bits")
    return number
