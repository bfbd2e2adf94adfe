"""The gradients of an attention as a Halide pipeline."""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

from halide_backend.kernel_library import mathematics, memory
from halide_backend.kernel_library.arguments import Input
from halide_backend.kernel_library.attention import UNSEEN, Attention, Heads, Tiles, seen_by


@dataclass(frozen=True)
class AttentionGradients:
    """An attention, and where the further operands of its gradients lie.

    Attributes:
        attention: what has been computed. gradient: strides of the gradient of its result. result: those of that, and
            logsumexp: of the logarithms of the sums of exponentials, whose rows have one element.
    """

    attention: Attention
    gradient: Heads
    result: Heads
    logsumexp: Heads

    @property
    def key_dims(self) -> tuple[tuple[int, int], ...]:
        """(extent, stride) of the gradients of key and value, innermost first: laid out as ATen's."""
        return self.attention.dims_of(self.attention.keys)


def differentiate(
    gradients: AttentionGradients, tiles: Tiles, arguments: tuple[Input, ...]
) -> tuple[list[hl.ImageParam], list[hl.Func]]:
    """Inputs (gradient of the result, query, key, value, result, logarithms of sums and the mask, if there is one) and
    outputs: the gradient of the query, and those of key and value as a Tuple.

    With the weights W = exp(scale Q K' + mask - logsumexp) and the gradient G of the result R, the gradients are

        W' G of the value, scale D K of the query and scale D' Q of the key, where D = W * (G V' - sum(G * R))

    (Dao et al., "FlashAttention", 2022, appendix B.4). W and D of a block of queries with all keys are in the
    second-level cache. All three gradients take their part of them there, so that nothing is computed twice: the loops
    over heads and blocks of the query's gradient and of the others are one.
    """
    attention = gradients.attention
    inputs = [memory.source(each) for each in arguments]
    gradient, query, key, value, result, logsumexp = inputs[:6]
    lanes, rows, width = tiles.lanes, tiles.rows, tiles.lanes * tiles.vectors
    depth, block = attention.depth, tiles.block
    padded, blocks = -(-attention.keys // width) * width, -(-attention.queries // block)
    d, j, i, h, b, n, lane = (hl.Var(name) for name in ("d", "j", "i", "h", "b", "n", "lane"))

    def at(image: hl.ImageParam, heads: Heads, row: hl.Expr, element: hl.Expr | int) -> hl.Expr:
        return image[b * heads.batch + h * heads.head + row * heads.row + element]

    exists, last = i < attention.queries, hl.min(i, attention.queries - 1)
    queries, slopes = hl.Func("queries"), hl.Func("slopes")
    for copied, image, heads in ((queries, query, attention.query), (slopes, gradient, gradients.gradient)):
        # Rows behind the last one add nothing to the gradients of keys and values.
        copied[d, i, h, b] = hl.select(exists, at(image, heads, last, d), hl.f32(0))
    steps, across = hl.RDom([(0, depth // lanes)], "steps"), hl.RDom([(0, lanes)], "across")
    parts, shares = hl.Func("parts"), hl.Func("shares")
    element = steps * lanes + lane
    parts[lane, i, h, b] = hl.f32(0)
    parts[lane, i, h, b] += slopes[element, i, h, b] * at(result, gradients.result, last, element)
    shares[i, h, b] = hl.f32(0)
    shares[i, h, b] += parts[across, i, h, b]

    copied_keys, keys, copied_values, values = (
        hl.Func(each) for each in ("copied_keys", "keys", "copied_values", "values")
    )
    key_row = hl.min(j, attention.keys - 1)
    copied_keys[d, j, h, b] = at(key, attention.key, key_row, d) * hl.f32(attention.scale)
    copied_values[d, j, h, b] = at(value, attention.value, key_row, d)
    products, mixed, inner = hl.Func("products"), hl.Func("mixed"), hl.RDom([(0, depth)], "inner")
    for copied, turned, left, sums in (
        (copied_keys, keys, queries, products),
        (copied_values, values, slopes, mixed),
    ):
        turned[j, d, h, b] = copied[d, j, h, b]
        sums[j, i, h, b] = hl.f32(0)
        sums[j, i, h, b] += left[inner, i, h, b] * turned[j, inner, h, b]

    score = products[j, i, h, b]
    if attention.mask is not None:
        score += at(inputs[6], attention.mask, last, key_row)
    score = seen_by(attention, i, j, padded, score)
    sum_ = at(logsumexp, gradients.logsumexp, last, 0)
    # A query that sees no key has no sum, and the result 0.
    sum_ = hl.select(exists & (sum_ != hl.f32(UNSEEN)), sum_, -hl.f32(UNSEEN))
    weight, weights = hl.Func("weight"), hl.Func("weights")
    weight[j, i, h, b] = mathematics.exp(score - sum_)
    w = weight[j, i, h, b]
    weights[j, i, h, b] = (w, w * (mixed[j, i, h, b] - shares[i, h, b]) * hl.f32(attention.scale))

    # Both RDoms have one name, as have their dimensions: that is what `compute_with` tells loops by.
    places = hl.RDom([(0, block), (0, blocks)], "places")
    row = places.y * block + places.x
    places.where(row < attention.queries)
    of_query, query_gradient = hl.Func("of_query"), hl.Func("query_gradient")
    seen = hl.RDom([(0, attention.keys)], "seen")
    of_query[d, i, h, b] = hl.f32(0)
    of_query[d, i, h, b] += weights[seen, i, h, b][1] * at(key, attention.key, seen, d)
    query_gradient[d, i, h, b] = hl.undef(hl.Float(32))
    query_gradient[d, row, h, b] = of_query[d, row, h, b]

    turns, rising = hl.RDom([(0, 1), (0, blocks)], "places"), hl.RDom([(0, block)], "rising")
    of_block, gradients_of_key = hl.Func("of_block"), hl.Func("key_and_value_gradients")
    at_row = n * block + rising
    of_block[d, j, n, h, b] = (hl.f32(0), hl.f32(0))
    of_block[d, j, n, h, b] = (
        of_block[d, j, n, h, b][0] + weights[j, at_row, h, b][1] * queries[d, at_row, h, b],
        of_block[d, j, n, h, b][1] + weights[j, at_row, h, b][0] * slopes[d, at_row, h, b],
    )
    gradients_of_key[d, j, h, b] = (hl.f32(0), hl.f32(0))
    added = of_block[d, j, turns.x + turns.y, h, b]
    gradients_of_key[d, j, h, b] = tuple(gradients_of_key[d, j, h, b][k] + added[k] for k in range(2))

    memory.target(query_gradient, [d, i, h, b], attention.out_dims)
    for k in range(2):
        memory.target(gradients_of_key, [d, j, h, b], gradients.key_dims, k)

    heads_and_batches = (b, h) if attention.batches_share_masks else (h, b)
    column, tile, jo, io, ji = (hl.Var(name) for name in ("column", "tile", "jo", "io", "ji"))
    x, tiles_of_rows, in_tile = places.x, hl.RVar("tiles_of_rows"), hl.RVar("in_tile")
    # An update rounds a dimension up to whole tiles.
    columns = width if depth % width == 0 else lanes
    stage = query_gradient.update(0)
    stage.split(x, tiles_of_rows, in_tile, rows).split(d, column, d, columns)
    stage.reorder(d, in_tile, column, tiles_of_rows, places.y, *heads_and_batches)
    stage.vectorize(d, lanes).unroll(d).unroll(in_tile)
    for each in heads_and_batches:
        stage.parallel(each)
    of_query.compute_at(query_gradient, column).bound_extent(d, columns).bound_extent(i, rows)
    of_query.vectorize(d, lanes).unroll(d).unroll(i)
    of_query.update(0).reorder(d, i, seen).vectorize(d, lanes).unroll(d).unroll(i).unroll(seen, 2)

    # Two sums for each element of a tile.
    few = rows // 2
    gradients_of_key.vectorize(d, lanes)
    stage = gradients_of_key.update(0)
    stage.split(j, tile, j, few, hl.TailStrategy.GuardWithIf).split(d, column, d, columns)
    stage.reorder(d, j, column, tile, turns.x, turns.y, *heads_and_batches)
    stage.vectorize(d, lanes).unroll(d).unroll(j)
    for each in heads_and_batches:
        stage.parallel(each)
    of_block.compute_at(gradients_of_key, column).bound_extent(d, columns).bound_extent(j, few)
    of_block.vectorize(d, lanes).unroll(d).unroll(j)
    of_block.update(0).reorder(d, j, rising).vectorize(d, lanes).unroll(d).unroll(j).unroll(rising, 2)
    stage.compute_with(query_gradient.update(0), places.y)

    of_head, of_rows = (query_gradient, heads_and_batches[0]), (query_gradient, places.y)
    for copied, turned in ((copied_keys, keys), (copied_values, values)):
        copied.compute_at(*of_head).bound_extent(j, padded).bound_extent(d, depth).vectorize(d, lanes)
        turned.compute_at(*of_head).bound_extent(j, padded).bound_extent(d, depth)
        turned.split(j, jo, ji, lanes).split(d, column, d, lanes).reorder(ji, d, jo, column).vectorize(ji)
    for copied in (queries, slopes):
        copied.compute_at(*of_rows).bound_extent(i, block).bound_extent(d, depth).vectorize(d, lanes)
    shares.compute_at(*of_rows).bound_extent(i, block).update(0).atomic().vectorize(across)
    parts.compute_at(shares, i).bound_extent(lane, lanes).vectorize(lane).update(0).reorder(lane, steps).vectorize(lane)
    weights.compute_at(*of_rows).bound_extent(j, padded).bound_extent(i, block)
    weights.tile(j, i, jo, io, j, i, width, rows).reorder(j, i, io, jo).vectorize(j, lanes).unroll(j).unroll(i)
    weight.compute_at(weights, j).vectorize(j, lanes)
    for sums in (products, mixed):
        sums.compute_at(weights, io).bound_extent(j, width).bound_extent(i, rows)
        sums.vectorize(j, lanes).unroll(j).unroll(i)
        sums.update(0).reorder(j, i, inner).vectorize(j, lanes).unroll(j).unroll(i).unroll(inner, 2)
    return inputs, [query_gradient, gradients_of_key]
