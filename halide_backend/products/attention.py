"""Whether attention of float32 is a kernel of this backend or ATen's, by its sizes and the processor."""

from __future__ import annotations

from dataclasses import dataclass

from halide_backend.products.processor import Processor
from halide_backend.products.rule import mkl_is_narrow

#: Value of the option `attention`: always, where there is a kernel.
HALIDE = "halide"

#: Below this many operations the time of a call counts, in which the kernel is looked up by the operands' strides.
_FEWEST_OPERATIONS = 4_000_000

#: Queries of a tile: with fewer the transposition of the keys is not made good.
_FEWEST_QUERIES = 8

#: The scores of a block of queries with all keys, twice, have to stay near the second-level cache.
_MOST_KEYS = 8192

#: ATen leaves out blocks of 512 keys that no query of a block sees; the kernel computes all.
_MOST_CAUSAL_KEYS = 1024

#: Bytes of a vector for which MKL is slower than the kernel.
_WIDE = 64


@dataclass(frozen=True)
class AttentionWork:
    """The sizes of an attention.

    Attributes:
        heads: matrices of queries, in all batches. queries, keys, depth: rows and columns of them. causal: whether half
            of the scores are not needed.
    """

    heads: int
    queries: int
    keys: int
    depth: int
    causal: bool

    @property
    def operations(self) -> int:
        """Multiplications and additions of both products."""
        return 4 * self.heads * self.queries * self.keys * self.depth


def has_kernel(work: AttentionWork, lanes: int) -> bool:
    """Whether there is a kernel for vectors of `lanes` elements."""
    return work.queries >= _FEWEST_QUERIES and 0 < work.keys <= _MOST_KEYS and work.depth % lanes == 0


def kernel_is_faster(work: AttentionWork, lanes: int, processor: Processor) -> bool:
    """Whether the kernel is faster than ATen's operator, whose products are MKL's."""
    enough = work.operations >= _FEWEST_OPERATIONS and not (work.causal and work.keys > _MOST_CAUSAL_KEYS)
    return mkl_is_narrow(processor) and lanes * 4 >= _WIDE and enough
