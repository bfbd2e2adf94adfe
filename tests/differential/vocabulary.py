"""All that random programs do, as often as it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from . import neighbourhoods, operations, places

if TYPE_CHECKING:
    from .generator import Generator

TABLE: tuple[Callable[[Generator], None], ...] = (
    *operations.TABLE,
    *[neighbourhoods.pooling] * 3, *[neighbourhoods.enlarged] * 2, neighbourhoods.wrapped, *[neighbourhoods.windows] * 2, neighbourhoods.folded,
    neighbourhoods.sampled, neighbourhoods.mixed_pixels, *[neighbourhoods.normalised_groups] * 2, *[neighbourhoods.turned] * 6,
    *[places.looked_up] * 3, *[places.reduced_into] * 2, places.found_between, *[places.counted] * 3, *[places.shifted_far] * 2,
    *[places.rebuilt] * 2, *[places.written_parts] * 2, places.accumulated, *[places.compared_rows] * 2, places.classified,
)  # fmt: skip
