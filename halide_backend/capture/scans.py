"""Scans: what Inductor's function of two elements computes, recorded once for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch._inductor.virtualized import V

from halide_backend.capture.recorded import BodyRecorder, Recorded
from halide_backend.errors import Unsupported
from halide_backend.program.loop_program import Combination, LoopProgram, Scan

#: A function of the components of an earlier and of a later element.
Combine: TypeAlias = Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]


def record(
    dtypes: tuple[torch.dtype, ...],
    combine: Combine,
    values: tuple[Any, ...],
    recorder: BodyRecorder,
    empty: BodyRecorder,
) -> tuple[Recorded, ...]:
    """The components of the inclusive scan of `values` over the reduced loops of the recorder's nest; `empty` records
    what `combine` does to two elements.

    Raises:
        Unsupported: a mask hides elements from the scan, or `combine` reads memory or can fail.
    """
    if recorder.mask is not None:
        raise Unsupported("masked-scan", "a scan within a masked branch")
    # The dtypes in which Inductor's Triton kernels accumulate.
    kinds = tuple(torch.float32 if kind in (torch.bfloat16, torch.float16) else kind for kind in dtypes)
    operands = [recorder.cast(recorder.number(value, kind), kind) for value, kind in zip(values, kinds, strict=True)]
    axes = recorder.nest.reduction
    if not axes:
        return tuple(operands)
    combination = _combination(combine, kinds, empty)
    return tuple(
        recorder.value("scan", kind, *operands, attribute=Scan(axes, combination, number))
        for number, kind in enumerate(kinds)
    )


def _combination(combine: Combine, kinds: tuple[torch.dtype, ...], recorder: BodyRecorder) -> Combination:
    earlier, later = (
        tuple(recorder.value(name, kind, attribute=number) for number, kind in enumerate(kinds))
        for name in ("earlier", "later")
    )
    with V.set_ops_handler(recorder):
        # Inductor's own functions return what its `ops` have wrapped.
        made = [getattr(result, "value", result) for result in combine(earlier, later)]
        results = [recorder.cast(recorder.number(each, kind), kind) for each, kind in zip(made, kinds, strict=True)]
    builder = recorder.builder
    if builder.checks or builder.reads:
        raise Unsupported("scan-combine-function", "the function that combines two elements reads memory, or can fail")
    program = LoopProgram((), (), (), tuple(builder.values), (), (), ())
    return Combination(program, tuple(result.position for result in results))
