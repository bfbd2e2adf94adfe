"""The check of an index that data hold: one comparison of what has no sign, unless a part of it is known."""

from __future__ import annotations

import torch

from halide_backend.capture.recorded import BodyRecorder, Recorded
from halide_backend.program.loop_program import Extent


def record(recorder: BodyRecorder, index: Recorded, size: Extent, signed: bool, wrap_neg: bool) -> Recorded:
    """Whether `index` is not in [0, size), or [-size, size) if negative ones count from the end."""
    above: Recorded = recorder.ge(index, recorder.size_value(size))
    if not signed:
        return above
    below: Recorded = recorder.lt(index, recorder.size_value(-size) if wrap_neg else 0)
    if any(recorder.builder.number(each.position) is not None for each in (above, below)):
        either: Recorded = recorder.logical_or(above, below)
        return either
    # With n added, what is in [-n, n) is below 2 n as an unsigned number, and nothing else is: the sum wraps.
    narrow = index.dtype is not torch.int64 and isinstance(size, int) and size < 2**31
    unsigned = torch.uint32 if narrow else torch.uint64
    place = recorder.cast(index, unsigned)
    limit = recorder.cast(recorder.number(recorder.size_value(size), torch.int64), unsigned)
    if wrap_neg:
        place, limit = recorder.add(place, limit), recorder.add(limit, limit)
    outside: Recorded = recorder.ge(place, limit)
    return outside
