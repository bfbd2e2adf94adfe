"""Arguments of a kernel, made from its program alone: random numbers, indices that are in range, typical sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from halide_backend.program.dtypes import FLOAT8
from halide_backend.program.loop_program import Buffer, Indirect, Load, LoopProgram
from halide_backend.tune.typical_sizes import number

#: Integers that are no indices are below this, so that sums of them fit in 32 bits.
_BELOW = 100

#: An integer argument of the user's function whose value nobody knows.
_DATA = 3


class Operands:
    """Memory for one program, which is filled with the same numbers again and again.

    Attributes:
        memory: tensors by the program's numbers of memory. bytes: of all of them.
    """

    def __init__(self, program: LoopProgram, device: str, *, zero_indices: bool = False, seed: int = 0) -> None:
        """Make the tensors.

        Args:
            zero_indices: whether integers are 0, for programs whose indices are made of several.

        Raises:
            NothingToTune: a size cannot be told from the program.
        """
        self._program = program
        limits = {} if zero_indices else index_limits(program)
        below = 1 if zero_indices else _BELOW
        generator = torch.Generator().manual_seed(seed)
        self.memory: dict[int, Tensor] = {}
        buffers = (*program.inputs, *program.outputs)
        for buffer in sorted(buffers, key=lambda each: -number(each.extent, program)):
            if buffer.memory not in self.memory:
                count = max(1, number(buffer.extent, program))
                made = _random(buffer, count, limits.get(buffer.name, below), generator)
                self.memory[buffer.memory] = made.to(device)
        written = {buffer.memory for buffer in program.outputs}
        self._first = {key: tensor.clone() for key, tensor in self.memory.items() if key in written}
        self._updated = written & {buffer.memory for buffer in program.inputs}
        self.bytes = sum(tensor.nbytes for tensor in self.memory.values())

    def arguments(self, described: Sequence[Mapping[str, Any]]) -> list[Any]:
        """What a kernel is called with, given the arguments of its manifest."""
        buffers = {buffer.name: buffer for buffer in (*self._program.inputs, *self._program.outputs)}
        sizes = {size.name: size for size in self._program.sizes}
        found: list[Any] = []
        for argument in described:
            name = argument["name"]
            if name in buffers:
                found.append(self.memory[buffers[name].memory])
            elif argument["kind"] != "status":
                found.append(_DATA if sizes[name].data else number(sizes[name].value, self._program))
        return found

    def restore(self, *, updated_only: bool = False) -> None:
        """Fill what kernels write with what it held at first; with `updated_only` what they read as well, alone."""
        for key, first in self._first.items():
            if not updated_only or key in self._updated:
                self.memory[key].copy_(first)

    @property
    def updates(self) -> bool:
        """Whether a kernel changes what it reads."""
        return bool(self._updated)

    def written(self) -> dict[int, Tensor]:
        """Copies of what a kernel has written, by memory."""
        return {key: self.memory[key].clone() for key in self._first}

    def read_only_sums(self) -> list[int]:
        """A sum over each tensor that no kernel may write, to see whether one did."""
        return [int(_words(tensor).sum()) for key, tensor in self.memory.items() if key not in self._first]


def index_limits(program: LoopProgram) -> dict[str, int]:
    """Buffers whose elements become indices -> the least size of the dimensions that they index."""
    found: dict[str, int] = {}
    for value in program.values:
        if isinstance(value.attribute, Indirect):
            size = number(value.attribute.size, program)
            for name in _loaded(program, value.operands):
                found[name] = min(size, found.get(name, size))
    return found


def _loaded(program: LoopProgram, roots: Sequence[int]) -> set[str]:
    """Buffers that these values are computed from without another index in between."""
    found: set[str] = set()
    stack, seen = list(roots), set[int]()
    while stack:
        position = stack.pop()
        value = program.values[position]
        if position not in seen and not isinstance(value.attribute, Indirect):
            seen.add(position)
            stack += value.operands
            if isinstance(value.attribute, Load):
                found.add(value.attribute.buffer)
    return found


def _random(buffer: Buffer, count: int, below: int, generator: torch.Generator) -> Tensor:
    dtype = getattr(torch, buffer.dtype)
    if dtype == torch.bool:
        return torch.rand(count, generator=generator) > 0.5
    if not dtype.is_floating_point:
        return torch.randint(0, max(below, 1), (count,), generator=generator).to(dtype)
    if buffer.dtype in FLOAT8 or dtype != torch.float64:
        return torch.randn(count, generator=generator).to(dtype)
    return torch.randn(count, generator=generator, dtype=dtype)


def _words(tensor: Tensor) -> Tensor:
    """The tensor's memory as integers, as wide as its size allows."""
    raw = tensor.view(torch.uint8)
    return raw.view(torch.int64) if math.gcd(raw.numel(), 8) == 8 else raw
