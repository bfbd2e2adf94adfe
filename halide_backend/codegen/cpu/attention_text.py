"""The kernel text of an attention."""

from __future__ import annotations

from collections.abc import Sequence

from halide_backend.kernel_library.attention import Attention, Tiles

#: Vectors of a tile, and its queries where AVX-512 has 32 registers and elsewhere: their sums leave some for operands.
_VECTORS, _ROWS, _FEWER_ROWS = 2, 8, 4

#: Queries of a block: the first that pads the queries least is taken.
_BLOCKS = (32, 24, 16, 8)

_TEMPLATE = """\
from halide_backend.kernel_library.arguments import Input, Output
from halide_backend.kernel_library.attention import Attention, Heads, Tiles, attend

ATTENTION = {attention!r}
TILES = {tiles!r}
ARGUMENTS = (
{inputs}
    Output('out', 'float32', ATTENTION.out_dims),
)
RELEASE_GIL = True


def pipeline():
    return attend(ATTENTION, TILES, ARGUMENTS[:-1])
"""


def tiles(queries: int, lanes: int) -> Tiles:
    """How the products of at least 8 queries are tiled for vectors of `lanes` elements."""
    rows = _ROWS if lanes == 16 else _FEWER_ROWS
    block = min((each for each in _BLOCKS if each <= queries), key=lambda each: -(-queries // each) * each)
    return Tiles(lanes, rows, _VECTORS, block)


def attention_text(attention: Attention, extents: Sequence[int], lanes: int) -> str:
    """The text for operands (query, key, value and mask, if there is one) of `extents` elements of memory."""
    names = ("query", "key", "value", "mask")
    inputs = "\n".join(f"    Input({name!r}, 'float32', {extent})," for name, extent in zip(names, extents))
    return _TEMPLATE.format(attention=attention, tiles=tiles(attention.queries, lanes), inputs=inputs)
