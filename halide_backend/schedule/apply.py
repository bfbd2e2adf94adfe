"""The one place where steps become calls on Halide's Funcs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import singledispatchmethod
from typing import Any

import halide as hl

from halide_backend.errors import KernelTextError
from halide_backend.schedule import steps as step

#: ShiftInwards recomputes (wrong when an output aliases an input), the predicated forms read or write out of bounds.
_TAIL = hl.TailStrategy.GuardWithIf


def apply(steps: Iterable[step.Step], funcs: Mapping[str, hl.Func]) -> dict[str, hl.Func]:
    """Apply `steps` in order; returns `funcs` with the Funcs that RFactor made.

    Raises:
        KernelTextError: a step names a Func that does not exist.
        hl.HalideError: Halide refuses a step.
    """
    application = _Application(dict(funcs))
    for each in steps:
        application.take(each)
    return application.funcs


def _var(name: str) -> Any:
    return hl.RVar(name) if "$" in name else hl.Var(name)


class _Application:
    def __init__(self, funcs: dict[str, hl.Func]) -> None:
        self.funcs = funcs

    def func(self, name: str) -> hl.Func:
        try:
            return self.funcs[name]
        except KeyError:
            raise KernelTextError(
                f"the schedule names a Func {name!r} that the algorithm does not define",
                cure=f"use one of {', '.join(self.funcs)}",
            ) from None

    def definition(self, each: Any) -> Any:
        func = self.func(each.func)
        return func.update(0) if each.update else func

    @singledispatchmethod
    def take(self, each: step.Step) -> None:
        raise KernelTextError(f"{each!r} is not a step", cure="see docs/reference/schedule-steps.md")

    @take.register
    def _(self, each: step.Split) -> None:
        self.definition(each).split(_var(each.old), _var(each.outer), _var(each.inner), each.factor, _TAIL)

    @take.register
    def _(self, each: step.Fuse) -> None:
        self.definition(each).fuse(_var(each.inner), _var(each.outer), _var(each.fused))

    @take.register
    def _(self, each: step.Reorder) -> None:
        self.definition(each).reorder(*(_var(name) for name in each.order))

    @take.register
    def _(self, each: step.Vectorize) -> None:
        self.definition(each).vectorize(_var(each.var))

    @take.register
    def _(self, each: step.Unroll) -> None:
        self.definition(each).unroll(_var(each.var))

    @take.register
    def _(self, each: step.Parallel) -> None:
        # Halide cuts a parallel loop by an `if` in its body, in whose branches it simplified `x0 == 2` to false.
        self.definition(each).parallel(_var(each.var)).never_partition([_var(each.var)])

    @take.register
    def _(self, each: step.Atomic) -> None:
        self.func(each.func).update(0).atomic()

    @take.register
    def _(self, each: step.RFactor) -> None:
        self.funcs[each.into] = self.func(each.func).update(0).rfactor(_var(each.rvar), _var(each.var))

    @take.register
    def _(self, each: step.ComputeAt) -> None:
        self.func(each.func).compute_at(self.func(each.consumer), _var(each.var))

    @take.register
    def _(self, each: step.ComputeRoot) -> None:
        self.func(each.func).compute_root()

    @take.register
    def _(self, each: step.ComputeWith) -> None:
        self.func(each.func).compute_with(self.func(each.parent), _var(each.var))

    @take.register
    def _(self, each: step.Bound) -> None:
        self.func(each.func).bound(_var(each.var), each.minimum, each.extent)

    @take.register
    def _(self, each: step.BoundExtent) -> None:
        self.func(each.func).bound_extent(_var(each.var), each.extent)

    @take.register
    def _(self, each: step.GpuBlocks) -> None:
        self.definition(each).gpu_blocks(*(_var(name) for name in each.vars))

    @take.register
    def _(self, each: step.GpuThreads) -> None:
        self.definition(each).gpu_threads(*(_var(name) for name in each.vars))

    @take.register
    def _(self, each: step.NeverPartition) -> None:
        self.definition(each).never_partition([_var(each.var)])

    @take.register
    def _(self, each: step.StoreInShared) -> None:
        self.func(each.func).store_in(hl.MemoryType.GPUShared)

    @take.register
    def _(self, each: step.AlignStorage) -> None:
        self.func(each.func).align_storage(_var(each.var), each.alignment)

    @take.register
    def _(self, each: step.AllowRaceConditions) -> None:
        self.func(each.func).update(0).allow_race_conditions()
