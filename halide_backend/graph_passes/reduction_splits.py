"""Into how many parts Inductor splits a reduction on a GPU: a number that divides it.

Inductor's own number need not: the last part is then shorter, every load is masked, and its index has a division in
it. Triton's kernels pay little for that; ours read vectors where they can prove that nothing lies between.
"""

from __future__ import annotations

from typing import Any

from torch._inductor import config
from torch._inductor.virtualized import V

from halide_backend.cache_key import NAME

#: Elements of a column up to which one kernel is over before a second one that adds up parts would be, of so few
#: columns, less than a sector's for each SM of an H200: some threads of a block have each (measured on an H200, in two
#: steps and in one: sums of 512 x 512 floats 2.93 and 2.14 us, of 2048 x 512 4.8 and 4.0 us, two of 1000 x 768 7.07 and
#: 6.50 us, of 256 x 2048 7.12 and 4.18 us, but of 512 x 1536 7.12 and 9.07 us, of 2048 x 1500 6.1 and 8.4 us).
_COLUMN, _FEW = 2048, 1056

#: Elements from which more columns have too many threads together, and columns with which a GPU is busy without them,
#: 16 at a time for each SM of an H200; elements of such a column, and of all, up to which that takes no longer than
#: another kernel that adds up parts.
_LONG, _GROUPS, _SHORTER, _MANY = 512, 2112, 1024, 1 << 22

#: Parts of columns, the most of them and of all columns together, and the fewest rows of one: short ones are summed by
#: threads with a word of a row each, as many as a GPU has, and all their loads are in flight.
_PARTS, _OF_ALL, _ROWS = 1024, 160_000, 16

#: Results that a GPU has enough of, two for each SM of an H200: Inductor splits no reduction along memory to as many.
LINES = 264

#: Elements of the widest memory instruction, of 16 bits each.
_VECTOR = 8


class EvenSplits:
    """Inductor's choices, `others`, with another number of parts in graphs whose `cuda_backend` is this one."""

    def __init__(self, others: Any) -> None:
        self._others = others

    def __getattr__(self, name: str) -> Any:
        return getattr(self._others, name)

    def reduction_split_factor(
        self, device: Any, reduction_numel_hint: int, numel_hint: int, inner_reduction: bool
    ) -> int:
        count = int(self._others.reduction_split_factor(device, reduction_numel_hint, numel_hint, inner_reduction))
        if config.cuda_backend != NAME or device.type != "cuda":
            return count
        return parts(int(reduction_numel_hint), int(numel_hint), count, along_memory=inner_reduction)


def choose_even_splits() -> None:
    """Install the choices in this thread, where Inductor keeps them.

    To be called before each CUDA graph is lowered, because `inductor_choices_class` can be set until then.
    """
    if not isinstance(V.choices, EvenSplits):
        V.set_choices_handler(EvenSplits(V.choices))


def parts(length: int, results: int, wanted: int, *, along_memory: bool) -> int:
    """Parts of reductions of `length` elements to so many `results`, where Inductor takes `wanted` ones."""
    count = near_divisor(length, wanted)
    if along_memory or count <= 1:
        return count
    few = results < _FEW and length <= _COLUMN
    shorter = length < _LONG or (results >= _GROUPS and length <= _SHORTER)
    if few or (shorter and length * results <= _MANY):
        return 1
    most = min(_PARTS, _OF_ALL // max(results, 1), length // _ROWS)
    possible = [d for d in range(count, most + 1) if length % d == 0]
    return max((d for d in possible if length // d % _VECTOR == 0), default=max(possible, default=count))


def near_divisor(number: int, wanted: int) -> int:
    """`wanted` if it divides `number` or nothing between half of and twice it does, else such a divisor.

    Of several one that leaves parts of whole vectors, and of those the one with most factors of two, which is likeliest
    to end parts where lines of memory end.
    """
    if wanted <= 1 or number % wanted == 0:
        return wanted
    found = [d for d in range(-(-wanted // 2), 2 * wanted + 1) if number % d == 0]
    return min(found, key=lambda d: (number // d % _VECTOR != 0, -(d & -d), abs(d - wanted)), default=wanted)
