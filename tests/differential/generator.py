"""Draws random programs. Each line is run eagerly as it is drawn, so shapes, dtypes and magnitudes are known facts.

Rounded values may differ in the last bit between two right programs, so nothing that turns such a bit into a step
(comparisons, rounding to integers, positions of a maximum) is applied to a value unless it is `exact`: computed by
operations whose IEEE result is unique. Magnitudes of rounded values stay below `LIMIT`, where the absolute part of the
tolerance still means something.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import torch
import torch.nn.functional as F

from . import operations, vocabulary
from .program import Line, Program
from .tensors import Tensor

EXTENTS = (0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 65, 127, 129, 255, 257, 1000)

#: Elements of the largest tensor.
MAX_ELEMENTS = 1 << 16

#: Largest magnitude of a rounded value.
LIMIT = 64.0

FLOATS = (torch.float32, torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)

#: The first seed of programs that draw of all of the vocabulary.
WIDE = 1_000_000

#: Layouts of inputs, as often as they are drawn, of programs with a part of the vocabulary and with all of it.
_FEW_LAYOUTS = ("contiguous",) * 5 + ("permuted", "permuted", "sliced", "offset", "expanded")
_LAYOUTS = ("contiguous",) * 5 + ("permuted", "permuted", "channels_last", "sliced", "stepped", "offset", "expanded", "repeated", "overlapping")  # fmt: skip

Item = TypeVar("Item")


class Draw(Protocol):
    """Where the choices come from: a seed, or hypothesis."""

    def integer(self, low: int, high: int) -> int:
        """A number between `low` and `high`, both included."""


class SeededDraw:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


@dataclass
class Variable:
    """A name of the program and its value so far."""

    name: str
    value: torch.Tensor
    exact: bool

    @property
    def dtype(self) -> torch.dtype:
        return self.value.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def dim(self) -> int:
        return self.value.dim()

    @property
    def storage(self) -> int:
        return self.value.untyped_storage().data_ptr()

    @property
    def overlaps(self) -> bool:
        """Whether two elements may share memory, which forbids writing."""
        sizes = [n for n in self.value.shape if n > 1]
        strides = [s for n, s in zip(self.value.shape, self.value.stride()) if n > 1]
        reach = 1
        for stride, size in sorted(zip(strides, sizes)):
            if stride < reach:
                return True
            reach = stride * size
        return False


class Generator:
    """Draws one program; `vocabulary` holds what it draws, of which `operations` is a part, unless it may be `wide`."""

    def __init__(self, draw: Draw, gradients: bool, wide: bool = True) -> None:
        self.wide = wide
        self.draw = draw
        self.gradients = gradients
        self.inputs: list[Tensor] = []
        self.lines: list[Line] = []
        self.variables: list[Variable] = []
        self.namespace: dict[str, object] = {
            "torch": torch,
            "F": F,
            "inf": math.inf,
            "nan": math.nan,
        }
        self.extents = self._extents()

    # -- choices -----------------------------------------------------------------------------------------------

    def choose(self, items: Sequence[Item]) -> Item:
        return items[self.draw.integer(0, len(items) - 1)]

    def chance(self, one_in: int) -> bool:
        return self.draw.integer(0, one_in - 1) == 0

    def _extents(self) -> list[int]:
        """Up to four extents that all shapes of the program are made of, so that operands often fit each other."""
        low = 0 if self.chance(12) else 1
        count = self.choose((1, 2, 2, 2, 3, 3, 4))
        extents = [self.choose(EXTENTS[low:]) for _ in range(count)]
        while math.prod(max(e, 1) for e in extents) > MAX_ELEMENTS:
            extents[extents.index(max(extents))] = self.choose(EXTENTS[2:10])
        return extents

    # -- inputs ------------------------------------------------------------------------------------------------

    def input(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        content: str = "",
        layout: str = "",
    ) -> Variable:
        name = f"a{len(self.inputs)}"
        if not content:
            content = self._content(dtype)
        if not layout:
            layout = self.choose(_LAYOUTS if self.wide else _FEW_LAYOUTS)
        if self.gradients and layout in ("expanded", "repeated", "overlapping"):
            layout = "permuted"
        tensor = Tensor(name, shape, dtype, content, layout, self.draw.integer(0, 2**31))
        self.inputs.append(tensor)
        value = tensor.make()
        self.namespace[name] = value
        variable = Variable(name, value, True)
        self.variables.append(variable)
        return variable

    def _content(self, dtype: torch.dtype) -> str:
        if dtype is torch.bool:
            return "whole"
        if not dtype.is_floating_point:
            return self.choose(("whole", "wide"))
        if self.gradients:
            return "normal"
        return self.choose(("normal", "normal", "whole", "special"))

    def shape(self) -> tuple[int, ...]:
        """The program's extents, some dropped from the front or replaced by 1."""
        kept = self.extents[self.draw.integer(0, min(1, len(self.extents) - 1)) :]
        kept = [] if self.wide and self.chance(30) else kept
        return tuple(1 if self.chance(6) else extent for extent in kept)

    # -- lines -------------------------------------------------------------------------------------------------

    def add(self, text: str, operands: Sequence[Variable], *, keeps: bool, inplace: bool = False) -> bool:
        """Run `text` with `{0}`, `{1}`, ... replaced by the operands' names; keep the line if its value is usable.

        `keeps` says whether the operation gives one right result bit for bit from exact operands.
        """
        names = tuple(operand.name for operand in operands)
        text = text.format(*names)
        copies = {v.storage: v.value.untyped_storage().clone() for v in operands[:1]} if inplace else {}
        try:
            if inplace:
                exec(text, self.namespace)
                value = operands[0].value
            else:
                value = eval(text, self.namespace)
        except (RuntimeError, TypeError, IndexError, ValueError):
            self._restore(operands, copies)
            return False
        values = value if isinstance(value, tuple) else (value,)
        if any(not isinstance(v, torch.Tensor) or v.numel() > MAX_ELEMENTS or v.dim() > 6 for v in values):
            self._restore(operands, copies)
            return False
        exact = keeps and all(operand.exact for operand in operands)
        if not all(self._usable(v, exact) for v in values):
            self._restore(operands, copies)
            return False
        if inplace:
            self.lines.append(Line(text, "", names))
            for variable in self.variables:
                if variable.storage == operands[0].storage:
                    variable.exact = exact and variable.exact
            return True
        if isinstance(value, tuple):
            return self._unpack(text, names, values, exact)
        name = f"v{len(self.lines)}"
        self.lines.append(Line(text, name, names))
        self._define(name, value, exact, operands)
        return True

    def _restore(self, operands: Sequence[Variable], copies: dict[int, torch.UntypedStorage]) -> None:
        for operand in operands[:1]:
            if operand.storage in copies:
                operand.value.untyped_storage().copy_(copies[operand.storage])

    def _unpack(self, text: str, names: tuple[str, ...], values: tuple[torch.Tensor, ...], exact: bool) -> bool:
        for number, value in enumerate(values):
            name = f"v{len(self.lines)}"
            self.lines.append(Line(f"{text}[{number}]", name, names))
            self._define(name, value, exact or not value.is_floating_point(), ())
        return True

    def _define(self, name: str, value: torch.Tensor, exact: bool, operands: Sequence[Variable]) -> None:
        self.namespace[name] = value
        if value.numel() and any(v.storage == value.untyped_storage().data_ptr() and not v.exact for v in operands):
            exact = False
        self.variables.append(Variable(name, value, exact or not value.is_floating_point()))

    def _usable(self, value: torch.Tensor, exact: bool) -> bool:
        if not value.is_floating_point() or exact or value.numel() == 0:
            return True
        finite = value[torch.isfinite(value)]
        return finite.numel() == 0 or float(finite.abs().max()) < LIMIT

    # -- operands ----------------------------------------------------------------------------------------------

    def pick(
        self,
        *,
        floating: bool | None = None,
        exact: bool = False,
        min_dim: int = 0,
        boolean: bool | None = None,
        nonempty: bool = False,
    ) -> Variable | None:
        """One of the variables that fit, the latest ones more often."""
        fitting = [
            v
            for v in self.variables
            if (floating is None or v.dtype.is_floating_point == floating)
            and (boolean is None or (v.dtype is torch.bool) == boolean)
            and (not exact or v.exact)
            and v.dim >= min_dim
            and (not nonempty or v.value.numel() > 0)
        ]
        if not fitting:
            return None
        if self.chance(2):
            fitting = fitting[-4:]
        return self.choose(fitting)

    def partner(self, first: Variable, *, same_dtype: bool = True) -> Variable | None:
        """A variable that broadcasts with `first`."""
        fitting = [
            v
            for v in self.variables
            if (v.dtype is first.dtype or not same_dtype) and _broadcasts(v.shape, first.shape)
        ]
        return self.choose(fitting) if fitting else None


def _broadcasts(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(one), reversed(other)))


def generate(draw: Draw, *, wide: bool = False) -> Program:
    """A program of up to 14 lines, of all of the vocabulary if it may be `wide`."""
    mode = draw.integer(0, 9)
    generator = Generator(draw, gradients=mode == 0, wide=wide)
    # The gradients of a low precision carry eager's own roundings, which no tolerance of its dtype covers.
    low = generator.choose(FLOATS[:4] if generator.gradients else FLOATS)
    dtypes: list[torch.dtype] = [low, low]
    if mode in (1, 2):
        integer = generator.choose(INTEGERS)
        dtypes = [integer, integer]
    elif mode in (3, 4):
        dtypes += [generator.choose((*FLOATS, *INTEGERS, torch.bool))]
    for dtype in dtypes:
        generator.input(generator.shape(), dtype)
    if generator.chance(3):
        generator.input(generator.shape(), torch.bool)
    wanted = draw.integer(4, 14)
    for _ in range(4 * wanted):
        if len(generator.lines) >= wanted:
            break
        generator.choose(vocabulary.TABLE if wide else operations.TABLE)(generator)
    return Program(
        tuple(generator.inputs),
        tuple(generator.lines),
        _outputs(generator),
        generator.gradients,
    )


def _outputs(generator: Generator) -> tuple[str, ...]:
    """All values that no later line uses, and some others."""
    used = {name for line in generator.lines for name in line.names}
    defined = [line.target for line in generator.lines if line.target]
    kept = [name for name in defined if name not in used or generator.chance(4)]
    return tuple(kept) or (generator.inputs[0].name,)


def program_of_seed(seed: int) -> Program:
    """Every fourth one has dynamic shapes. Seeds from a million on, those of long runs, draw of all of the vocabulary,
    of which a few programs in a hundred still have a group of nodes without a legal schedule."""
    return replace(generate(SeededDraw(seed), wide=seed >= WIDE), dynamic=seed % 4 == 3)
