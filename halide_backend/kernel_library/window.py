"""Which elements of a picture the filters of a convolution are multiplied by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Window:
    """The sizes of filters and of their result.

    Attributes:
        rows, columns: of the result. down, across: size of a filter. stride: (down, across).
        above, left: rows and columns of zeros before the picture's; behind it there are as many as are read.
    """

    rows: int
    columns: int
    down: int
    across: int
    stride: tuple[int, int]
    above: int
    left: int

    def dims(self, batch: int, channels: int) -> tuple[tuple[int, int], ...]:
        """(extent, stride) of the result of `batch` pictures, innermost first: the channels of a pixel lie together."""
        row = self.columns * channels
        return ((channels, 1), (self.columns, channels), (self.rows, row), (batch, row * self.rows))
