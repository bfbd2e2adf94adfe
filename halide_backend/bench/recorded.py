"""Kernels that were taken from models, in a file: what one kernel computes as a function of tensors, and its operands.

A line of the file is one kernel as JSON. Its `source` defines `forward`, in operations of torch's; `operands` are
shapes, strides and types, and of integers the least number that they stay below.
"""

from __future__ import annotations

import gzip
import json
import linecache
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from halide_backend.bench.case import Kernel
from halide_backend.bench.operands import Operands
from halide_backend.errors import HalideBackendError


@dataclass(frozen=True)
class Operand:
    """A tensor: its shape, its strides in elements, the name of its type, and what its integers stay below."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    below: int = 0

    def tensor(self, device: str) -> Tensor:
        """A new one of random numbers; elements that share memory are equal."""
        dtype = getattr(torch, self.dtype)
        make = Operands(1, 1, dtype, device)
        count = 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.stride)) if self._filled else 0
        integers = not (dtype.is_floating_point or dtype == torch.bool)
        memory = torch.randint(0, self.below, (count,), device=device, dtype=dtype) if integers else make(count)
        return memory.as_strided(self.shape, self.stride)

    @property
    def _filled(self) -> bool:
        return 0 not in self.shape


@dataclass(frozen=True)
class RecordedKernel:
    """One kernel: the digest of its program, the model that it was found in first, a name that says what it computes,
    and the function with its operands."""

    digest: str
    model: str
    name: str
    dtype: str
    source: str
    operands: tuple[Operand, ...]

    def kernel(self, device: str) -> Kernel:
        """What the benchmark runs on `device`."""
        name = f"{self.model}_{self.name}_{self.digest[:8]}"
        gathers = any(operand.below for operand in self.operands)
        function = _function(self.source, name, device)
        return Kernel(name, function, self._operands, (self.dtype,), fixed=True, gathers=gathers)

    def _operands(self, make: Operands) -> tuple[Tensor, ...]:
        return tuple(operand.tensor(make.device) for operand in self.operands)


def write(kernels: Iterable[RecordedKernel], path: Path) -> None:
    """Write a file, compressed if its name ends in ".gz"."""
    text = "".join(json.dumps(asdict(kernel)) + "\n" for kernel in kernels)
    content = text.encode()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def read(path: Path) -> list[RecordedKernel]:
    """The kernels of a file.

    Raises:
        HalideBackendError: there is no such file, or it is none of recorded kernels.
    """
    try:
        content = path.read_bytes()
        lines = (gzip.decompress(content) if path.suffix == ".gz" else content).decode().splitlines()
        return [_kernel(json.loads(line)) for line in lines]
    except (OSError, ValueError, TypeError, KeyError, EOFError) as error:
        cause = f"a line has no {error}" if isinstance(error, KeyError) else error
        raise HalideBackendError(
            f"no kernels can be read: {cause}",
            where=str(path),
            cure="Name a file that `benchmarks/record_kernels.py` wrote.",
        ) from error


def groups(kernels: Iterable[RecordedKernel], device: str) -> dict[str, list[Kernel]]:
    """What the benchmark runs on `device`, by model."""
    found: dict[str, list[Kernel]] = {}
    for each in kernels:
        found.setdefault(each.model, []).append(each.kernel(device))
    return found


def _kernel(fields: dict[str, Any]) -> RecordedKernel:
    operands = tuple(
        Operand(tuple(each["shape"]), tuple(each["stride"]), each["dtype"], each["below"])
        for each in fields.pop("operands")
    )
    return RecordedKernel(**fields, operands=operands)


def _function(source: str, name: str, device: str) -> Callable[..., Any]:
    """The function that `source` defines, of tensors on `device`."""
    # As torch.fx prints graphs: tensors that they make are on the device that they were recorded on.
    namespace: dict[str, Any] = {"torch": torch, "inf": math.inf, "nan": math.nan}
    namespace["device"] = lambda *_, **__: torch.device(device)
    # Up to torch 2.12 Dynamo compiles functions without a source as one code object, eight times at most.
    file = f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), namespace)
    forward: Callable[..., Any] = namespace["forward"]
    return forward
