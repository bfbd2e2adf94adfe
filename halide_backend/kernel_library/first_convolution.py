"""A convolution of pictures with few channels as a Halide pipeline, as networks begin with, and its activation."""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

from halide_backend.kernel_library import memory
from halide_backend.kernel_library.activations import ACTIVATIONS
from halide_backend.kernel_library.arguments import Input
from halide_backend.kernel_library.window import Window


@dataclass(frozen=True)
class FirstConvolution:
    """The sizes of filters and of pictures.

    Attributes:
        batch, channels, height, width: of the pictures. strides: theirs in elements, in that order.
        filters: their number.
        after: the activation, a name of `ACTIVATIONS`.
    """

    batch: int
    channels: int
    height: int
    width: int
    strides: tuple[int, int, int, int]
    filters: int
    window: Window
    after: str

    @property
    def out_dims(self) -> tuple[tuple[int, int], ...]:
        """(extent, stride) of the result, innermost first."""
        return self.window.dims(self.batch, self.filters)


@dataclass(frozen=True)
class Tiles:
    """How the result is tiled.

    Attributes:
        lanes: filters of a vector. vectors, columns: whose sums are in registers at the same time. rows: of the result
            that a thread computes in turn.
    """

    lanes: int
    vectors: int
    columns: int
    rows: int


def convolve(
    work: FirstConvolution, tiles: Tiles, arguments: tuple[Input, ...]
) -> tuple[list[hl.ImageParam], list[hl.Func]]:
    """Inputs (pictures, weights by row, column, channel and filter, and one number for each filter to begin with) and
    output. Each element of a picture is multiplied by vectors of filters, and read where it lies: the layout of the
    pictures does not matter."""
    inputs = [memory.source(each) for each in arguments]
    (picture, weights, offsets), window = inputs, work.window
    f, x, y, n = (hl.Var(name) for name in ("f", "x", "y", "n"))

    tap, sums = hl.RDom([(0, work.channels), (0, window.across), (0, window.down)], "tap"), hl.Func("sums")
    row, column = y * window.stride[0] + tap.z - window.above, x * window.stride[1] + tap.y - window.left
    tap.where((row >= 0) & (row < work.height))
    inside = hl.likely(column >= 0) & hl.likely(column < work.width)
    row, column = hl.clamp(row, 0, work.height - 1), hl.clamp(column, 0, work.width - 1)
    place = sum(at * stride for at, stride in zip((n, tap.x, row, column), work.strides))
    sums[f, x, y, n] = offsets[f]
    weight = weights[((tap.z * window.across + tap.y) * work.channels + tap.x) * work.filters + f]
    sums[f, x, y, n] += hl.select(inside, picture[place], hl.f32(0)) * weight

    out = hl.Func("out")
    out[f, x, y, n] = ACTIVATIONS[work.after](sums[f, x, y, n])
    memory.target(out, [f, x, y, n], work.out_dims)

    block, tile, group, vector, column = (hl.Var(name) for name in ("block", "tile", "group", "vector", "column"))
    out.split(y, block, y, tiles.rows, hl.TailStrategy.GuardWithIf)
    out.split(x, tile, column, tiles.columns, hl.TailStrategy.ShiftInwards)
    out.split(f, group, f, tiles.vectors * tiles.lanes, hl.TailStrategy.ShiftInwards).split(f, vector, f, tiles.lanes)
    out.reorder(f, vector, column, tile, group, y, block, n).vectorize(f).unroll(vector).unroll(column)
    out.parallel(block).parallel(n)
    sums.compute_at(out, tile).split(f, vector, f, tiles.lanes).reorder(f, vector, x, y, n)
    sums.vectorize(f).unroll(vector).unroll(x)
    stage = sums.update(0).split(f, vector, f, tiles.lanes).reorder(f, vector, x, tap.x, tap.y, tap.z)
    stage.vectorize(f).unroll(vector).unroll(x).unroll(tap.x).unroll(tap.y)
    return inputs, [out]
