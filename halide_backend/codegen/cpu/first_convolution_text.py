"""The kernel text of a convolution of pictures with few channels."""

from __future__ import annotations

from collections.abc import Sequence

from halide_backend.codegen.cpu.blocks_of_rows import rows_of_a_block
from halide_backend.kernel_library.first_convolution import FirstConvolution, Tiles

#: Columns whose sums are in registers, by vectors of filters: with AVX-512's 32 registers, and with 16.
_COLUMNS = {1: 16, 2: 8, 3: 8, 4: 4}
_FEWER_COLUMNS = {1: 8, 2: 4}

_TEMPLATE = """\
from halide_backend.kernel_library.arguments import Input, Output
from halide_backend.kernel_library.first_convolution import FirstConvolution, Tiles, convolve
from halide_backend.kernel_library.window import Window

WORK = {work!r}
TILES = {tiles!r}
ARGUMENTS = (
    Input('picture', 'float32', {picture}),
    Input('weights', 'float32', {weights}),
    Input('offsets', 'float32', {filters}),
    Output('out', 'float32', WORK.out_dims),
)
RELEASE_GIL = True


def pipeline():
    return convolve(WORK, TILES, ARGUMENTS[:-1])
"""


def tiles(work: FirstConvolution, lanes: int, threads: int) -> Tiles:
    """How the result is tiled for vectors of `lanes` filters and as many threads."""
    columns = _COLUMNS if lanes == 16 else _FEWER_COLUMNS
    vectors = next((each for each in reversed(columns) if work.filters % (each * lanes) == 0), 1)
    rows = rows_of_a_block(work.window.rows, work.batch, threads)
    return Tiles(lanes, vectors, min(columns[vectors], work.window.columns), rows)


def first_convolution_text(work: FirstConvolution, tiles: Tiles) -> str:
    """The text for pictures, weights by row, column, channel and filter, and a number for each filter."""
    sizes: Sequence[int] = (work.batch, work.channels, work.height, work.width)
    picture = 1 + sum((size - 1) * stride for size, stride in zip(sizes, work.strides))
    weights = work.window.down * work.window.across * work.channels * work.filters
    return _TEMPLATE.format(work=work, tiles=tiles, picture=picture, weights=weights, filters=work.filters)
