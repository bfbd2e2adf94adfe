"""What a kernel's text says of its arguments, and the manifest entry that the launcher needs for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from halide_backend.program.dtypes import ELEMENT


def known(number: object) -> int:
    """An extent or a stride as a manifest has it: 0 if it is known only when the kernel is called."""
    return number if isinstance(number, int) else 0


@dataclass(frozen=True)
class Input:
    """A tensor that is read: flat memory of `extent` elements of the torch dtype `dtype`.

    Here and below 0 stands for an extent or stride that is known only when the kernel is called.
    """

    name: str
    dtype: str
    extent: int

    def to_json(self) -> dict[str, object]:
        """The manifest entry."""
        return _buffer(self.name, self.dtype, 0, ((self.extent, 1),))


@dataclass(frozen=True)
class Size:
    """A number that the caller passes; a value that int32 cannot hold is refused before anything runs."""

    name: str
    bits: ClassVar[int] = 32

    def to_json(self) -> dict[str, object]:
        """The manifest entry."""
        return {"kind": f"int{self.bits}", "name": self.name}


@dataclass(frozen=True)
class Integer(Size):
    """A number that the caller passes and that is data, an integer argument of the user's function, say."""

    bits: ClassVar[int] = 64


@dataclass(frozen=True)
class Output:
    """A tensor that is written: `dims` are (extent, stride) pairs, innermost first, strides in elements.

    `offset` is the number of elements between the tensor's data pointer and the first one that is written, `extent`
    the number from there to the last one, where that is less than what the dims span (0: it is not).
    """

    name: str
    dtype: str
    dims: tuple[tuple[int, int], ...]
    offset: int = 0
    extent: int = 0

    def to_json(self) -> dict[str, object]:
        """The manifest entry."""
        entry = _buffer(self.name, self.dtype, self.offset, self.dims)
        return {**entry, "extent": self.extent} if self.extent else entry


@dataclass(frozen=True)
class Status:
    """One int32 for each of the `checks`; the kernel sets those that failed. Each is an (error, message) pair."""

    checks: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        return "status"

    def to_json(self) -> dict[str, object]:
        """The manifest entry; the launcher passes its own memory, the caller passes nothing."""
        return {"kind": "status", "name": self.name}


def _buffer(name: str, dtype: str, offset: int, dims: tuple[tuple[int, int], ...]) -> dict[str, object]:
    code, bits = ELEMENT[dtype]
    return {
        "kind": "buffer",
        "name": name,
        "code": code,
        "bits": bits,
        "offset": offset * bits // 8,
        "dims": [list(dim) for dim in dims],
    }
