"""The kernel text of filters of 3 x 3 by Winograd's algorithm."""

from __future__ import annotations

from halide_backend.kernel_library.winograd import POINTS, Blocks, Winograd

#: Tiles whose sums are in registers, by vectors of filters: with AVX-512's 32 registers, and with 16.
_COLUMNS = {1: 24, 2: 12, 3: 8, 4: 6}
_FEWER_COLUMNS = {1: 12, 2: 6}

#: Transformed weights, in bytes, up to which they stay in a core's cache from one block of tiles to the next, and the
#: tiles of a block then, which shall stay there as well, and otherwise.
_KEPT_WEIGHTS, _FEW_TILES, _MANY_TILES = 1 << 19, 24, 200

_TEMPLATE = """\
from halide_backend.kernel_library.arguments import Input, Output
from halide_backend.kernel_library.window import Window
from halide_backend.kernel_library.winograd import Blocks, Winograd, convolve

WORK = {work!r}
BLOCKS = {blocks!r}
ARGUMENTS = (
    Input('picture', 'float32', {picture}),
    Input('weights', 'float32', {weights}),{terms}
    Output('out', 'float32', WORK.flat_dims),
)
RELEASE_GIL = True


def pipeline():
    return convolve(WORK, BLOCKS, ARGUMENTS[:-1])
"""


def blocks(work: Winograd, lanes: int, threads: int) -> Blocks | None:
    """How tiles and filters are grouped for vectors of `lanes` elements and as many threads, or None if vectors do not
    divide channels and filters, or there are as many products as without the algorithm."""
    columns = _COLUMNS if lanes == 16 else _FEWER_COLUMNS
    vectors = next((each for each in reversed(columns) if work.filters % (each * lanes) == 0), 0)
    products, without = work.tiles * POINTS**2, work.pixels * work.window.down * work.window.across
    if vectors == 0 or work.channels % lanes or products >= without:
        return None
    together, weights = min(columns[vectors], work.tiles), 4 * POINTS**2 * work.channels * work.filters
    is_kept = weights <= _KEPT_WEIGHTS
    groups, most_blocks = work.filters // (vectors * lanes), -(-work.tiles // together)
    by_filters = not is_kept and (groups % threads == 0 or groups > most_blocks)
    count = -(-work.tiles // (_FEW_TILES if is_kept else _MANY_TILES))
    if not by_filters:
        count += -count % threads
    tiles = -(-work.tiles // count)
    return Blocks(lanes, vectors, together, tiles + -tiles % together, by_filters)


def winograd_text(work: Winograd, blocks: Blocks) -> str:
    """The text for pictures, weights, a number for each filter, and what is added, if anything."""
    picture = work.batch * work.channels * work.height * work.width
    terms = f"\n    Input('offsets', 'float32', {work.filters})," if work.has_offsets else ""
    if work.adds:
        terms += f"\n    Input('added', 'float32', {work.pixels * work.filters}),"
    weights = POINTS**2 * work.channels * work.filters
    if work.weight_strides is not None:
        sizes = (work.filters, work.channels, work.window.down, work.window.across)
        weights = 1 + sum((size - 1) * stride for size, stride in zip(sizes, work.weight_strides))
    return _TEMPLATE.format(work=work, blocks=blocks, picture=picture, weights=weights, terms=terms)
