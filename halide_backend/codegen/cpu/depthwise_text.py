"""The kernel text of a filter of each channel by itself."""

from __future__ import annotations

from halide_backend.codegen.cpu.blocks_of_rows import rows_of_a_block
from halide_backend.kernel_library.depthwise import Depthwise, Tiles

#: Columns whose sums are in registers: the filter's weights and what is read need others.
_COLUMNS = 8

_TEMPLATE = """\
from halide_backend.kernel_library.arguments import Input, Output
from halide_backend.codegen.cpu.blocks_of_rows import rows_of_a_block
from halide_backend.kernel_library.depthwise import Depthwise, Tiles, filter_channels
from halide_backend.kernel_library.window import Window

WORK = {work!r}
TILES = {tiles!r}
ARGUMENTS = (
    Input('picture', 'float32', {picture}),
    Input('weights', 'float32', {weights}),
    Input('offsets', 'float32', {channels}),
    Output('out', 'float32', WORK.out_dims),
)
RELEASE_GIL = True


def pipeline():
    return filter_channels(WORK, TILES, ARGUMENTS[:-1])
"""


def tiles(work: Depthwise, lanes: int, threads: int) -> Tiles:
    """How the result is tiled for vectors of `lanes` channels and as many threads."""
    return Tiles(lanes, min(_COLUMNS, work.window.columns), rows_of_a_block(work.window.rows, work.batch, threads))


def depthwise_text(work: Depthwise, tiles: Tiles) -> str:
    """The text for a picture, weights by row, column and channel, and a number for each channel to begin with."""
    picture = work.batch * work.channels * work.height * work.width
    weights = work.window.down * work.window.across * work.channels
    return _TEMPLATE.format(work=work, tiles=tiles, picture=picture, weights=weights, channels=work.channels)
