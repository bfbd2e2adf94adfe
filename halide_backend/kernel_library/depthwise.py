"""A filter of each channel of a picture by itself as a Halide pipeline, with activations before and after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import halide as hl

from halide_backend.kernel_library import memory
from halide_backend.kernel_library.activations import ACTIVATIONS
from halide_backend.kernel_library.arguments import Input
from halide_backend.kernel_library.window import Window


@dataclass(frozen=True)
class Depthwise:
    """The sizes of a filter and of pictures whose channels lie together.

    Attributes:
        batch, channels, height, width: of the pictures.
        before, after: activations, names of `ACTIVATIONS`.
    """

    batch: int
    channels: int
    height: int
    width: int
    window: Window
    before: str
    after: str

    @property
    def out_dims(self) -> tuple[tuple[int, int], ...]:
        """(extent, stride) of the result, innermost first."""
        return self.window.dims(self.batch, self.channels)


@dataclass(frozen=True)
class Tiles:
    """How the result is tiled.

    Attributes:
        lanes: channels of a vector. columns: whose sums are in registers at the same time. rows: of the result that a
            thread computes in turn, so that a row of the picture that several of them read is activated once.
    """

    lanes: int
    columns: int
    rows: int


def filter_channels(
    work: Depthwise, tiles: Tiles, arguments: tuple[Input, ...]
) -> tuple[list[hl.ImageParam], list[hl.Func]]:
    """Inputs (pictures, weights by row, column and channel, and one number for each channel to begin with) and output.

    Sums of a vector of channels for some columns stay in registers. Rows of the picture are activated when a row of the
    result needs them first, into memory of as many rows as the filter has, rounded up to a power of two.
    """
    inputs = [memory.source(each) for each in arguments]
    (picture, weights, offsets), window = inputs, work.window
    c, x, y, n = (hl.Var(name) for name in ("c", "x", "y", "n"))

    def pixel(row: hl.Expr, column: hl.Expr) -> hl.Expr:
        return picture[((n * work.height + row) * work.width + column) * work.channels + c]

    tap, sums = hl.RDom([(0, window.across), (0, window.down)], "tap"), hl.Func("sums")
    row, column = y * window.stride[0] + tap.y - window.above, x * window.stride[1] + tap.x - window.left
    tap.where((row >= 0) & (row < work.height))
    row = hl.clamp(row, 0, work.height - 1)
    activated, domains = _activated(work, pixel, (c, x, y, n))
    if work.before == "none":
        inside = hl.likely(column >= 0) & hl.likely(column < work.width)
        read = hl.select(inside, pixel(row, hl.clamp(column, 0, work.width - 1)), hl.f32(0))
    else:
        read = activated[c, column + window.left, row, n]
    sums[c, x, y, n] = offsets[c]
    sums[c, x, y, n] += read * weights[(tap.y * window.across + tap.x) * work.channels + c]

    out = hl.Func("out")
    out[c, x, y, n] = ACTIVATIONS[work.after](sums[c, x, y, n])
    memory.target(out, [c, x, y, n], work.out_dims)

    block, tile, vector, column = (hl.Var(name) for name in ("block", "tile", "vector", "column"))
    out.split(y, block, y, tiles.rows, hl.TailStrategy.GuardWithIf)
    out.split(x, tile, column, tiles.columns, hl.TailStrategy.ShiftInwards)
    out.split(c, vector, c, tiles.lanes, hl.TailStrategy.ShiftInwards)
    out.reorder(c, column, tile, vector, y, block, n).vectorize(c).unroll(column).parallel(block).parallel(n)
    sums.compute_at(out, tile).vectorize(c).unroll(x)
    sums.update(0).reorder(c, x, tap.x, tap.y).vectorize(c).unroll(x).unroll(tap.x).unroll(tap.y)
    if work.before != "none":
        rows = 1 << (window.down - 1).bit_length()
        activated.compute_at(out, y).store_at(out, block).fold_storage(y, rows)
        for number, domain in enumerate(domains):
            stage = activated.update(number).split(c, vector, c, tiles.lanes, hl.TailStrategy.Predicate)
            stage.reorder(c, vector, domain.x).vectorize(c)
    return inputs, [out]


def _activated(
    work: Depthwise, pixel: Callable[[hl.Expr, hl.Expr], hl.Expr], variables: tuple[hl.Var, ...]
) -> tuple[hl.Func, list[hl.RDom]]:
    """The picture's rows after the activation, with zeros on the left and the right, and what its updates go over."""
    (c, x, y, n), window = variables, work.window
    behind = (window.columns - 1) * window.stride[1] + window.across - window.left - work.width
    activated = hl.Func("activated")
    activated[c, x, y, n] = hl.undef(hl.Float(32))
    columns = hl.RDom([(0, work.width)], "columns")
    activated[c, columns + window.left, y, n] = ACTIVATIONS[work.before](pixel(y, columns.x))
    domains = [columns]
    for name, first, extent in (("left", 0, window.left), ("right", window.left + work.width, behind)):
        if extent > 0:
            domains.append(hl.RDom([(0, extent)], name))
            activated[c, domains[-1] + first, y, n] = hl.f32(0)
    return activated, domains
