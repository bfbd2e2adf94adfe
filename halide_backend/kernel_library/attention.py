"""Attention as a Halide pipeline: the softmax of scaled products of queries and keys, times values."""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

from halide_backend.kernel_library import mathematics, memory
from halide_backend.kernel_library.arguments import Input

#: Score of a key that a query does not see.
UNSEEN = float("-inf")

#: The sign of an int32.
_SIGN = -(2**31)


@dataclass(frozen=True)
class Heads:
    """A tensor of a matrix for each head, whose rows are contiguous: strides in elements of batch, head and row."""

    batch: int
    head: int
    row: int


@dataclass(frozen=True)
class Tiles:
    """How the products are tiled.

    Attributes:
        lanes: elements of a vector. rows: queries, and vectors: vectors of keys or of a value, whose sums are in
            registers at the same time. block: queries whose scores are in the second-level cache at the same time, a
            multiple of `rows`.
    """

    lanes: int
    rows: int
    vectors: int
    block: int


@dataclass(frozen=True)
class Attention:
    """The sizes of an attention and where its operands lie.

    Attributes:
        batch, heads, queries, keys, depth: sizes; `depth` is that of a query, a key and a value.
        scale: factor of the products of queries and keys.
        causal: whether query i sees the keys 0 to i alone.
        query, key, value: strides. mask: strides of what is added to scores, 0 where it is the same; None for no mask.
            Its rows are contiguous.
        logsumexp: whether the logarithm of the sum of the exponentials of a query's scores is a second result, which
            the gradients need.
    """

    batch: int
    heads: int
    queries: int
    keys: int
    depth: int
    scale: float
    causal: bool
    query: Heads
    key: Heads
    value: Heads
    mask: Heads | None = None
    logsumexp: bool = False

    @property
    def batches_share_masks(self) -> bool:
        """Whether each head has a mask of its own, the same in all batches, like a bias by distance."""
        return self.mask is not None and self.mask.head != 0 and self.mask.batch == 0

    @property
    def out_dims(self) -> tuple[tuple[int, int], ...]:
        """(extent, stride) of the result, innermost first."""
        return self.dims_of(self.queries)

    def dims_of(self, rows: int) -> tuple[tuple[int, int], ...]:
        """(extent, stride) of matrices of so many rows, innermost first: the heads of a row lie together, as ATen's."""
        row = self.heads * self.depth
        return ((self.depth, 1), (rows, row), (self.heads, self.depth), (self.batch, row * rows))

    @property
    def logsumexp_dims(self) -> tuple[tuple[int, int], ...]:
        """(extent, stride) of the second result, of queries, heads and batches, as ATen's lie."""
        return ((self.queries, self.heads), (self.heads, 1), (self.batch, self.queries * self.heads))


def seen_by(attention: Attention, query: hl.Expr, key: hl.Expr, padded: int, score: hl.Expr) -> hl.Expr:
    """The `score` of a `query` and a `key`, one of `padded`; `UNSEEN` if there is no such key or causality hides it."""
    if attention.causal:
        # key <= query, by the sign: Halide would compute a tile of products up to the query alone, and the tiles behind
        # it are empty.
        score = hl.select((query - key) & hl.i32(_SIGN) == 0, score, hl.f32(UNSEEN))
    if padded != attention.keys:
        score = hl.select(hl.likely(key < attention.keys), score, hl.f32(UNSEEN))
    return score


def attend(
    attention: Attention, tiles: Tiles, arguments: tuple[Input, ...]
) -> tuple[list[hl.ImageParam], list[hl.Func]]:
    """Inputs (query, key, value and the mask, if there is one) and outputs.

    Keys are copied once for each head and transposed there: where the heads of a key lie together, a head's keys are
    pieces far apart, which a copy of whole vectors fetches sooner than the loads of single elements that transpose. The
    scores of a block of queries with all keys are computed in tiles whose sums stay in registers, and so are the sums
    of values; between both the maximum of each row is subtracted before the exponential, and the sum divides the result
    at last. A row that sees no key has the result 0, as ATen's.
    """
    inputs = [memory.source(each) for each in arguments]
    query, key, value = inputs[:3]
    lanes, rows, width = tiles.lanes, tiles.rows, tiles.lanes * tiles.vectors
    padded = -(-attention.keys // width) * width
    d, j, i, h, b, lane = (hl.Var(name) for name in ("d", "j", "i", "h", "b", "lane"))

    def at(image: hl.ImageParam, heads: Heads, row: hl.Expr, element: hl.Expr) -> hl.Expr:
        return image[b * heads.batch + h * heads.head + row * heads.row + element]

    copied, keys = hl.Func("copied"), hl.Func("keys")
    copied[d, j, h, b] = at(key, attention.key, hl.min(j, attention.keys - 1), d) * hl.f32(attention.scale)
    keys[j, d, h, b] = copied[d, j, h, b]

    products, depth = hl.Func("products"), hl.RDom([(0, attention.depth)], "depth")
    products[j, i, h, b] = hl.f32(0)
    products[j, i, h, b] += at(query, attention.query, i, depth) * keys[j, depth, h, b]

    scores, score = hl.Func("scores"), products[j, i, h, b]
    if attention.mask is not None:
        score += at(inputs[3], attention.mask, i, hl.min(j, attention.keys - 1))
    scores[j, i, h, b] = seen_by(attention, i, j, padded, score)

    steps = hl.RDom([(0, padded // lanes)], "steps")
    maxima, across = hl.Func("maxima"), hl.RDom([(0, lanes)], "across")
    maxima[lane, i, h, b] = hl.f32(UNSEEN)
    maxima[lane, i, h, b] = hl.max(maxima[lane, i, h, b], scores[steps * lanes + lane, i, h, b])
    maximum = hl.Func("maximum")
    maximum[i, h, b] = hl.f32(UNSEEN)
    maximum[i, h, b] = hl.max(maximum[i, h, b], maxima[across, i, h, b])
    least = hl.Func("least")
    least[i, h, b] = hl.select(maximum[i, h, b] == hl.f32(UNSEEN), hl.f32(0), maximum[i, h, b])

    weights = hl.Func("weights")
    weights[j, i, h, b] = mathematics.exp(scores[j, i, h, b] - least[i, h, b])
    sums = hl.Func("sums")
    sums[lane, i, h, b] = hl.f32(0)
    sums[lane, i, h, b] += weights[steps * lanes + lane, i, h, b]
    total = hl.Func("total")
    total[i, h, b] = hl.f32(0)
    total[i, h, b] += sums[across, i, h, b]

    mixed, seen = hl.Func("mixed"), hl.RDom([(0, attention.keys)], "seen")
    mixed[d, i, h, b] = hl.f32(0)
    mixed[d, i, h, b] += weights[seen, i, h, b] * at(value, attention.value, seen, d)
    out = hl.Func("out")
    out[d, i, h, b] = mixed[d, i, h, b] / hl.select(total[i, h, b] == 0, hl.f32(1), total[i, h, b])
    memory.target(out, [d, i, h, b], attention.out_dims)

    block, tile, row, column = (hl.Var(name) for name in ("block", "tile", "row", "column"))
    jo, ji, io = (hl.Var(name) for name in ("jo", "ji", "io"))
    out.split(i, block, i, tiles.block, hl.TailStrategy.ShiftInwards).split(i, tile, row, rows)
    # Batches of a head follow one another while its mask is in the caches.
    inner, outer = (b, h) if attention.batches_share_masks else (h, b)
    out.split(d, column, d, min(width, attention.depth)).reorder(d, row, column, tile, block, inner, outer)
    out.vectorize(d, lanes).unroll(d).unroll(row).parallel(inner).parallel(outer)
    mixed.compute_at(out, column).bound_extent(d, min(width, attention.depth)).bound_extent(i, rows)
    mixed.vectorize(d, lanes).unroll(d).unroll(i)
    mixed.update(0).reorder(d, i, seen).vectorize(d, lanes).unroll(d).unroll(i).unroll(seen, 2)

    copied.compute_at(out, inner).bound_extent(j, padded).bound_extent(d, attention.depth).vectorize(d, lanes)
    keys.compute_at(out, inner).bound_extent(j, padded).bound_extent(d, attention.depth)
    keys.split(j, jo, ji, lanes).split(d, column, d, lanes).reorder(ji, d, jo, column).vectorize(ji)
    scores.compute_at(out, block).bound_extent(j, padded).bound_extent(i, tiles.block)
    scores.tile(j, i, jo, io, ji, row, width, rows).reorder(ji, row, io, jo).vectorize(ji, lanes).unroll(ji).unroll(row)
    products.compute_at(scores, io).bound_extent(j, width).bound_extent(i, rows)
    products.vectorize(j, lanes).unroll(j).unroll(i)
    products.update(0).reorder(j, i, depth).vectorize(j, lanes).unroll(j).unroll(i).unroll(depth, 2)
    weights.compute_at(out, block).bound_extent(j, padded).bound_extent(i, tiles.block).vectorize(j, lanes).unroll(j, 2)
    # The second result reads what is subtracted from the scores, too.
    least.compute_at(*((out, block) if attention.logsumexp else (weights, i)))
    by_row = least if attention.logsumexp else weights
    maximum.compute_at(by_row, i).update(0).atomic().vectorize(across)
    maxima.compute_at(by_row, i).bound_extent(lane, lanes).vectorize(lane)
    maxima.update(0).reorder(lane, steps).vectorize(lane)
    total.compute_at(out, block).update(0).atomic().vectorize(across)
    sums.compute_at(out, block).bound_extent(lane, lanes).vectorize(lane)
    sums.update(0).reorder(lane, steps, i).vectorize(lane)
    if not attention.logsumexp:
        return inputs, [out]
    logsumexp = hl.Func("logsumexp")
    logsumexp[i, h, b] = least[i, h, b] + mathematics.log(total[i, h, b])
    memory.target(logsumexp, [i, h, b], attention.logsumexp_dims)
    logsumexp.split(i, block, i, tiles.block, hl.TailStrategy.ShiftInwards).reorder(i, block, inner, outer)
    logsumexp.parallel(inner).parallel(outer).compute_with(out, block)
    return inputs, [out, logsumexp]
