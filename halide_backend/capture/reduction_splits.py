"""Into how many parts Inductor splits a reduction on a GPU: a number that divides it.

Inductor's own number need not: the last part is then shorter, every load is masked, and its index has a division in
it. Triton's kernels pay little for that; ours read vectors where they can prove that nothing lies between.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from halide_backend.cache_key import NAME


def install() -> None:
    """Choose the splits of graphs whose `cuda_backend` is this one; the second time does nothing."""
    from torch._inductor.choices import InductorChoices

    present = InductorChoices.__dict__["reduction_split_factor"].__func__
    if not hasattr(present, "__wrapped__"):
        InductorChoices.reduction_split_factor = staticmethod(_dividing(present))


def _dividing(chosen: Callable[..., int]) -> Callable[..., int]:
    @wraps(chosen)
    def split(device: Any, reduction_numel_hint: int, *rest: Any, **named: Any) -> int:
        from torch._inductor import config

        count = chosen(device, reduction_numel_hint, *rest, **named)
        if config.cuda_backend != NAME or getattr(device, "type", "") != "cuda":
            return count
        return near_divisor(int(reduction_numel_hint), int(count))

    return split


def near_divisor(number: int, wanted: int) -> int:
    """`wanted` if it divides `number` or nothing between half of and twice it does, else such a divisor.

    Of several the one with most factors of two, which is likeliest to end parts where lines of memory end.
    """
    if wanted <= 1 or number % wanted == 0:
        return wanted
    found = [d for d in range(-(-wanted // 2), 2 * wanted + 1) if number % d == 0]
    return min(found, key=lambda d: (-(d & -d), abs(d - wanted)), default=wanted)
