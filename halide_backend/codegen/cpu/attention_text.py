"""The kernel texts of an attention and of its gradients."""

from __future__ import annotations

from collections.abc import Sequence

from halide_backend.kernel_library.attention import Attention, Tiles
from halide_backend.kernel_library.attention_gradients import AttentionGradients

#: Vectors of a tile, and its queries where AVX-512 has 32 registers and elsewhere: their sums leave some for operands.
_VECTORS, _ROWS, _FEWER_ROWS = 2, 8, 4

#: Queries of a block: the first that pads the queries least is taken.
_BLOCKS = (32, 24, 16, 8)

_FORWARD = """\
from halide_backend.kernel_library.arguments import Input, Output
from halide_backend.kernel_library.attention import Attention, Heads, Tiles, attend

ATTENTION = {attention!r}
TILES = {tiles!r}
ARGUMENTS = (
{inputs}
    Output('out', 'float32', ATTENTION.out_dims),{logsumexp}
)
RELEASE_GIL = True


def pipeline():
    return attend(ATTENTION, TILES, ARGUMENTS[:{count}])
"""

_LOGSUMEXP = """
    Output('logsumexp', 'float32', ATTENTION.logsumexp_dims),"""

_BACKWARD = """\
from halide_backend.kernel_library.arguments import Input, Output
from halide_backend.kernel_library.attention import Attention, Heads, Tiles
from halide_backend.kernel_library.attention_gradients import AttentionGradients, differentiate

GRADIENTS = {gradients!r}
TILES = {tiles!r}
ARGUMENTS = (
{inputs}
    Output('query_gradient', 'float32', GRADIENTS.attention.out_dims),
    Output('key_gradient', 'float32', GRADIENTS.key_dims),
    Output('value_gradient', 'float32', GRADIENTS.key_dims),
)
RELEASE_GIL = True


def pipeline():
    return differentiate(GRADIENTS, TILES, ARGUMENTS[:{count}])
"""


def tiles(queries: int, lanes: int) -> Tiles:
    """How the products of at least 8 queries are tiled for vectors of `lanes` elements."""
    rows = _ROWS if lanes == 16 else _FEWER_ROWS
    block = min((each for each in _BLOCKS if each <= queries), key=lambda each: -(-queries // each) * each)
    return Tiles(lanes, rows, _VECTORS, block)


def attention_text(attention: Attention, extents: Sequence[int], lanes: int) -> str:
    """The text for operands (query, key, value and mask, if there is one) of `extents` elements of memory."""
    return _FORWARD.format(
        attention=attention,
        tiles=tiles(attention.queries, lanes),
        inputs=_inputs(("query", "key", "value", "mask"), extents),
        logsumexp=_LOGSUMEXP if attention.logsumexp else "",
        count=len(extents),
    )


def gradients_text(gradients: AttentionGradients, extents: Sequence[int], lanes: int) -> str:
    """The text for operands (gradient of the result, query, key, value, result, logarithms of sums and mask, if there
    is one) of `extents` elements of memory."""
    names = ("gradient", "query", "key", "value", "result", "logsumexp", "mask")
    return _BACKWARD.format(
        gradients=gradients,
        tiles=tiles(gradients.attention.queries, lanes),
        inputs=_inputs(names, extents),
        count=len(extents),
    )


def _inputs(names: Sequence[str], extents: Sequence[int]) -> str:
    return "\n".join(f"    Input({name!r}, 'float32', {extent})," for name, extent in zip(names, extents))
