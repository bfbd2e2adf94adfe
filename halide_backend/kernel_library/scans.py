"""Elements of scans: a tuple of components is one element, also where there is one component."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import halide as hl

from halide_backend.kernel_library.element_types import STORAGE

#: The components of one element.
Element: TypeAlias = tuple[hl.Expr, ...]
Combine: TypeAlias = Callable[[Element, Element], Element]


def element(func: hl.Func, count: int, place: Sequence[hl.Expr | hl.Var | int]) -> Element:
    """The `count` components of Func `func` at `place`."""
    found = func[tuple(place)]
    return (hl.Expr(found),) if count == 1 else tuple(hl.Expr(found[number]) for number in range(count))


def defined(values: Element) -> hl.Expr | Element:
    """`values` as the definition of a Func."""
    return values[0] if len(values) == 1 else values


def converted(values: Element, dtypes: Sequence[str]) -> Element:
    """`values` as numbers of `dtypes`, in which they are combined."""
    return tuple(hl.cast(STORAGE[dtype], value) for value, dtype in zip(values, dtypes))


def unset(dtypes: Sequence[str]) -> Element:
    """An element that no update has set yet."""
    return tuple(hl.undef(STORAGE[dtype]) for dtype in dtypes)


def next_of(combine: Combine, earlier: Element, later: Element, step: hl.Expr) -> Element:
    """The element at `step`: `later` is the operand there, and what it is combined with from the second step on."""
    values = zip(combine(earlier, later), later)
    return tuple(hl.select(step > 0, hl.likely(value), first) for value, first in values)


def within_chunk(combine: Combine, earlier: Element, own: Element, has_earlier: hl.Expr) -> Element:
    """An element of a chunk combined with an `earlier` one, if the chunk has that."""
    return tuple(hl.select(has_earlier, value, alone) for value, alone in zip(combine(earlier, own), own))
