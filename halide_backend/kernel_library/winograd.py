"""Filters of 3 x 3 over pictures of many channels as a Halide pipeline, by Winograd's algorithm.

Four results of a filter, 2 x 2 of them, are a product of each of 16 numbers that are made of 4 x 4 elements of the
picture by one of 16 numbers that are made of the filter, where they would be 36 products (Lavin and Gray, "Fast
Algorithms for Convolutional Neural Networks", 2015, F(2 x 2, 3 x 3)). In all channels, these are 16 products of
matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import halide as hl

from halide_backend.kernel_library import memory
from halide_backend.kernel_library.activations import ACTIVATIONS
from halide_backend.kernel_library.arguments import Input
from halide_backend.kernel_library.window import Window

#: Numbers along a side of what a tile of a picture is transformed to, and results along a side of the tile.
POINTS, SIDE = 4, 2


@dataclass(frozen=True)
class Winograd:
    """The sizes of filters of 3 x 3 without steps, and of pictures whose channels lie together.

    Attributes:
        batch, channels, height, width: of the pictures.
        filters: their number.
        after: the activation, a name of `ACTIVATIONS`.
        has_offsets: whether there is a number for each filter to begin with.
        adds: whether a tensor of the result's layout is added before the activation.
        weight_strides: of the weights by filter, channel, row and column, in elements, or None if they are transformed
            already. is_turned: whether their rows and columns are taken from the last to the first, as for gradients.
    """

    batch: int
    channels: int
    height: int
    width: int
    filters: int
    window: Window
    after: str
    has_offsets: bool
    adds: bool
    weight_strides: tuple[int, int, int, int] | None = None
    is_turned: bool = False

    @property
    def out_dims(self) -> tuple[tuple[int, int], ...]:
        """(extent, stride) of the result, innermost first."""
        return self.window.dims(self.batch, self.filters)

    @property
    def pixels(self) -> int:
        """Of all results."""
        return self.batch * self.window.rows * self.window.columns

    @property
    def flat_dims(self) -> tuple[tuple[int, int], ...]:
        """Those of the result with its pixels in one row."""
        return ((self.filters, 1), (self.pixels, self.filters))

    @property
    def tiles_of_a_picture(self) -> tuple[int, int]:
        """Down and across."""
        return -(-self.window.rows // SIDE), -(-self.window.columns // SIDE)

    @property
    def tiles(self) -> int:
        """Of all pictures."""
        down, across = self.tiles_of_a_picture
        return self.batch * down * across


@dataclass(frozen=True)
class Blocks:
    """How tiles and filters are grouped.

    Attributes:
        lanes: filters, or channels, of a vector. vectors: of filters, whose weights lie together. columns: tiles whose
            sums for these filters are in registers at the same time. tiles: that are transformed before any is
            multiplied, at least `columns`. by_filters: whether threads have filters each, or blocks of tiles.
    """

    lanes: int
    vectors: int
    columns: int
    tiles: int
    by_filters: bool

    @property
    def filters(self) -> int:
        """Whose weights lie together."""
        return self.lanes * self.vectors


def convolve(work: Winograd, blocks: Blocks, arguments: tuple[Input, ...]) -> tuple[list[hl.ImageParam], list[hl.Func]]:
    """Inputs (pictures; weights, if they are transformed by group of filters, row, column, channel and filter of the
    group; one number for each filter to begin with, and what is added, if anything) and output."""
    inputs = [memory.source(each) for each in arguments]
    picture, weights, *terms = inputs
    c, f, g, t, i, j = (hl.Var(name) for name in ("c", "f", "g", "t", "i", "j"))

    loaded, rows, transformed = hl.Func("loaded"), hl.Func("rows"), hl.Func("transformed")
    loaded[c, t, i, j] = _element(work, picture, c, t, i, j)
    rows[c, t, i, j] = _of_picture(i, lambda point: loaded[c, t, point, j])
    transformed[c, t, i, j] = _of_picture(j, lambda point: rows[c, t, i, point])

    channel, sums, products = hl.RDom([(0, work.channels)], "channel"), hl.Func("sums"), hl.Func("products")
    filters = _filters(work, blocks, weights)
    sums[f, g, t, i, j] = hl.f32(0)
    sums[f, g, t, i, j] += transformed[channel, t, i, j] * filters[f, channel, i, j, g]
    products[f, g, t, i, j] = sums[f, g, t, i, j]
    columns, result = hl.Func("columns"), hl.Func("result")
    columns[f, g, t, i, j] = _of_result(i, lambda point: products[f, g, t, point, j])
    result[f, g, t, i, j] = _of_result(j, lambda point: columns[f, g, t, i, point])

    groups, tiles = work.filters // blocks.filters, -(-work.tiles // blocks.tiles)
    # The loops, innermost first: a pixel is computed from several of them, and Halide would reorder none of those.
    extents = (blocks.lanes, SIDE, SIDE, blocks.vectors, blocks.tiles, groups, tiles)
    domain = hl.RDom([(0, extent) for extent in extents], "domain")
    lane, column, row, vector, tile, group, block = (domain[each] for each in range(len(extents)))
    out, pixel = hl.Func("out"), hl.Var("pixel")
    at = block * blocks.tiles + tile
    place = _place(work, domain, at, row, column)
    of_group, of_all = vector * blocks.lanes + lane, group * blocks.filters + vector * blocks.lanes + lane
    value = result[of_group, group, at, row, column]
    if work.has_offsets:
        value += terms[0][of_all]
    if work.adds:
        value += terms[-1][place * work.filters + of_all]
    out[f, pixel] = hl.undef(hl.Float(32))
    out[of_all, place] = ACTIVATIONS[work.after](value)
    memory.target(out, [f, pixel], work.flat_dims)

    # No pixel is stored twice, which Halide cannot see.
    stage = out.update(0).allow_race_conditions().vectorize(lane).unroll(column).unroll(row)
    stage.parallel(group if blocks.by_filters else block)
    if work.weight_strides is not None and tiles == 1:
        filters.compute_at(out, group)  # which stay in the cache until they are used
    elif work.weight_strides is not None:
        filters.compute_root().parallel(g)
    columns.compute_at(out, vector).vectorize(f).unroll(i).unroll(j)
    inner, outer = hl.Var("inner"), hl.Var("outer")
    products.compute_at(out, group).split(f, outer, f, blocks.lanes)
    products.split(t, t, inner, blocks.columns, hl.TailStrategy.ShiftInwards)
    products.reorder(f, outer, inner, t, g, i, j).vectorize(f).unroll(outer).unroll(inner)
    sums.compute_at(products, t).split(f, outer, f, blocks.lanes).reorder(f, outer, t).vectorize(f)
    sums.unroll(outer).unroll(t)
    stage = sums.update(0).split(f, outer, f, blocks.lanes).reorder(f, outer, t, channel)
    stage.vectorize(f).unroll(outer).unroll(t)
    transformed.compute_at(out, block).split(c, c, inner, blocks.lanes).reorder(inner, i, j, c, t)
    transformed.vectorize(inner).unroll(i).unroll(j)
    for each in (loaded, rows):
        each.compute_at(transformed, c).vectorize(c).unroll(i).unroll(j)
    return inputs, [out]


def _filters(work: Winograd, blocks: Blocks, weights: hl.ImageParam) -> hl.Func:
    """The transformed weights: of filter, channel, row, column and group."""
    f, c, i, j, g = (hl.Var(name) for name in ("f", "c", "i", "j", "g"))
    filters = hl.Func("filters")
    if work.weight_strides is None:
        place = ((g * POINTS + i) * POINTS + j) * work.channels + c
        filters[f, c, i, j, g] = weights[place * blocks.filters + f]
        return filters
    of_filter, of_channel, of_row, of_column = work.weight_strides
    staged, taken, rows = hl.Func("staged"), hl.Func("taken"), hl.Func("rows_of_filters")
    filter = g * blocks.filters + f
    staged[c, i, j, f, g] = weights[filter * of_filter + c * of_channel + i * of_row + j * of_column]
    taken[f, c, i, j, g] = staged[(c, 2 - i, 2 - j, f, g) if work.is_turned else (c, i, j, f, g)]
    rows[f, c, i, j, g] = _of_filter(i, lambda point: taken[f, c, point, j, g])
    filters[f, c, i, j, g] = _of_filter(j, lambda point: rows[f, c, i, point, g])
    vector, block = hl.Var("vector"), hl.Var("block")
    filters.split(f, vector, f, blocks.lanes).split(c, block, c, blocks.lanes)
    filters.reorder(f, i, j, c, block, vector, g).vectorize(f).unroll(i).unroll(j)
    for each in (taken, rows):
        each.compute_at(filters, c).vectorize(f).unroll(i).unroll(j)
    if of_channel == 1 < of_filter:
        # Vectors of filters have an element in a line each, and all lines may have the same place in the cache.
        staged.compute_at(filters, block).vectorize(c)
    return filters


def _place_of_tile(work: Winograd, tile: hl.Expr) -> tuple[hl.Expr, hl.Expr, hl.Expr]:
    """The picture, and the first row and column of the result."""
    down, across = work.tiles_of_a_picture
    return tile // (down * across), tile // across % down * SIDE, tile % across * SIDE


def _element(work: Winograd, picture: hl.ImageParam, c: hl.Var, tile: hl.Var, i: hl.Var, j: hl.Var) -> hl.Expr:
    """Of a tile of the pictures. There is no tile behind the last one, which the last block may reach beyond."""
    image, row, column = _place_of_tile(work, hl.min(tile, work.tiles - 1))
    row, column = row + i - work.window.above, column + j - work.window.left
    inside = (row >= 0) & (row < work.height) & (column >= 0) & (column < work.width)
    row, column = hl.clamp(row, 0, work.height - 1), hl.clamp(column, 0, work.width - 1)
    place = ((image * work.height + row) * work.width + column) * work.channels + c
    return hl.select(inside, picture[place], hl.f32(0))


def _place(work: Winograd, domain: hl.RDom, tile: hl.Expr, i: hl.RVar, j: hl.RVar) -> hl.Expr:
    """The pixel of a tile's result, for those that are there alone."""
    rows, columns = work.window.rows, work.window.columns
    image, row, column = _place_of_tile(work, tile)
    row, column = row + i, column + j
    domain.where(tile < work.tiles)
    if rows % SIDE:
        domain.where(row < rows)
    if columns % SIDE:
        domain.where(column < columns)
    return memory.place((image * rows + row) * columns + column, work.pixels)


def _of_picture(which: hl.Var, at: Callable[[int], hl.Expr]) -> hl.Expr:
    return hl.mux(which, [at(0) - at(2), at(1) + at(2), at(2) - at(1), at(1) - at(3)])


def _of_filter(which: hl.Var, at: Callable[[int], hl.Expr]) -> hl.Expr:
    ends, middle = (at(0) + at(2)) * hl.f32(0.5), at(1) * hl.f32(0.5)
    return hl.mux(which, [at(0), ends + middle, ends - middle, at(2)])


def _of_result(which: hl.Var, at: Callable[[int], hl.Expr]) -> hl.Expr:
    return hl.mux(which, [at(0) + at(1) + at(2), at(1) - at(2) - at(3)])
