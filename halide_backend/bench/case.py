"""What the benchmark runs: a kernel at one size in one dtype on one device, by a name that says all that."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halide_backend.bench.operands import Maker, Operands

#: Device -> name of a size -> (rows, columns) of a matrix. On a CPU an operand of float32 is 124 KB, within a
#: second-level cache, 4 MB, within a third-level one, and 66 MB, beyond most; rows of 509 and 4001 are no multiple of
#: any vector. On a GPU the operands of several calls are beyond its cache together.
SIZES: dict[str, dict[str, tuple[int, int]]] = {
    "cpu": {"small": (61, 509), "medium": (1024, 1024), "large": (4099, 4001)},
    "cuda": {"odd": (4099, 2001), "even": (8192, 2048), "large": (8192, 4096)},
}

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
    "int64": torch.int64,
    "int8": torch.int8,
    "bool": torch.bool,
}


@dataclass(frozen=True)
class Kernel:
    """A function and what makes its operands.

    Attributes:
        name: unique, a word of letters, digits and underscores.
        function: of tensors; its result is a tensor or a tuple of them.
        operands: makes the arguments for a size.
        dtypes: in which it runs, names of `DTYPES`.
        fixed: whether its operands are the same at all sizes; it runs once then.
        compared: whether eager has the same result (no random numbers).
        timed: whether its time means anything: not that of a few elements.
        gathers: it has tables among its operands, of which it reads no more than it writes.
    """

    name: str
    function: Callable[..., Any]
    operands: Maker
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    fixed: bool = False
    compared: bool = True
    timed: bool = True
    gathers: bool = False


@dataclass(frozen=True)
class Case:
    """A kernel of a group at one size and dtype on one device."""

    group: str
    kernel: Kernel
    size: str
    dtype: str
    device: str

    @property
    def name(self) -> str:
        """Kernel, size in numbers unless it is fixed, and dtype."""
        rows, columns = self._numbers
        size = "" if self.kernel.fixed else f"_{rows}x{columns}"
        return f"{self.kernel.name}{size}_{self.dtype}"

    @property
    def held_back(self) -> bool:
        """Whether its figures are out of sight while rules are tuned: about half of the cases, by their names."""
        return bool(hashlib.sha256(self.name.encode()).digest()[-1] & 1)

    def arguments(self) -> tuple[Tensor, ...]:
        """New operands."""
        return self.kernel.operands(self.operands())

    def operands(self) -> Operands:
        """What makes its operands."""
        return Operands(*self._numbers, DTYPES[self.dtype], self.device)

    @property
    def _numbers(self) -> tuple[int, int]:
        return SIZES[self.device][self.size]


@dataclass(frozen=True)
class Selection:
    """Which cases: `only` are parts of names or groups, all where a field is empty."""

    only: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()

    def has(self, case: Case) -> bool:
        """Whether `case` is one of them."""
        return (
            (not self.only or any(part in case.name or part == case.group for part in self.only))
            and (not self.sizes or case.size in self.sizes)
            and (not self.dtypes or case.dtype in self.dtypes)
        )


def cases(groups: Mapping[str, Iterable[Kernel]], device: str, selection: Selection) -> Iterator[Case]:
    """The selected kernels of `groups` at the selected sizes in the selected dtypes."""
    for group, kernels in groups.items():
        for kernel in kernels:
            sizes = tuple(SIZES[device])
            for size in sizes[:1] if kernel.fixed else sizes:
                for dtype in kernel.dtypes:
                    case = Case(group, kernel, size, dtype, device)
                    if selection.has(case):
                        yield case
