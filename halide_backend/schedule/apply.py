"""The one place where steps become calls on Halide's Funcs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatchmethod
from typing import Any

import halide as hl

from halide_backend.errors import KernelTextError
from halide_backend.schedule import steps as step
from halide_backend.schedule.legality.check import check
from halide_backend.schedule.legality.nests import has_update
from halide_backend.schedule.stage import Role, StageGraph
from halide_backend.schedule.tiling import Tiling

_STAGES = "what algorithm() returns and STAGES are about the same Funcs; change both, or none"


def apply(
    steps: Sequence[step.Step],
    funcs: Mapping[str, hl.Func],
    graph: StageGraph,
    tiling: Tiling | None = None,
    inputs: Sequence[hl.ImageParam | hl.Param] = (),
) -> dict[str, hl.Func]:
    """Check `steps` against the `graph` of `funcs` and apply them in order; returns `funcs` with those that steps made.

    Raises:
        IllegalPlan: a step could give another result, or none.
        KernelTextError: `graph` describes other Funcs.
        hl.HalideError: Halide refuses a step.
    """
    _compare(funcs, graph)
    check(graph, steps, tiling)
    images = {argument.name(): argument for argument in inputs if isinstance(argument, hl.ImageParam)}
    sizes = {argument.name(): argument for argument in inputs if isinstance(argument, hl.Param)}
    application = _Application(dict(funcs), images, sizes)
    take = application.take  # functools makes a function whenever it is asked for it
    for each in steps:
        take(each)
    return application.funcs


def _compare(funcs: Mapping[str, hl.Func], graph: StageGraph) -> None:
    """Make sure that `graph` is about `funcs`.

    Raises:
        KernelTextError: it is not.
    """
    for stage in graph.stages:
        func = funcs.get(stage.name)
        if func is None:
            raise KernelTextError(f"STAGES has a Func {stage.name!r}, algorithm() has none", cure=_STAGES)
        named = [var.name() for var in func.args()]
        if stage.role is not Role.SCATTER and named != [loop.name for loop in stage.loops]:
            raise KernelTextError(f"{stage.name} has the loops {named}, in STAGES others", cure=_STAGES)
        if bool(func.num_update_definitions()) is not has_update(stage) or func.num_update_definitions() > 1:
            raise KernelTextError(f"{stage.name} has other updates than in STAGES", cure=_STAGES)
    if others := funcs.keys() - {stage.name for stage in graph.stages}:
        raise KernelTextError(f"STAGES has no {', '.join(sorted(others))}, which algorithm() returns", cure=_STAGES)


def _var(name: str) -> Any:
    return hl.RVar(name) if "$" in name else hl.Var(name)


def _loops(each: step.Split) -> tuple[Any, Any, Any]:
    return _var(each.old), _var(each.outer), _var(each.inner)


class _Application:
    def __init__(self, funcs: dict[str, hl.Func], inputs: dict[str, hl.ImageParam], sizes: dict[str, hl.Param]) -> None:
        self.funcs = funcs
        self.inputs = inputs
        self.sizes = sizes
        #: Of outputs that are split with the tail ShiftInwards: what is computed where loops are long enough.
        self.shifted: dict[str, hl.Stage] = {}
        #: Of outputs that are specialized: what is computed for sizes that are large enough.
        self.specialized: dict[str, hl.Stage] = {}

    def definition(self, each: Any) -> Any:
        func = self.funcs[each.func]
        return func if each.update is None else func.update(each.update)

    def definitions(self, each: Any) -> list[Any]:
        """The definition, and before it that of long loops, if they are computed in another way."""
        others = (each_of[each.func] for each_of in (self.shifted, self.specialized) if each.func in each_of)
        return [*others, self.definition(each)]

    @singledispatchmethod
    def take(self, each: step.Step) -> None:
        raise KernelTextError(f"{each!r} is not a step", cure="see docs/reference/schedule-steps.md")

    @take.register
    def _(self, each: step.Split) -> None:
        tail = hl.TailStrategy.__members__[each.tail]
        definitions = self.definitions(each)
        if tail is hl.TailStrategy.ShiftInwards:
            output, tail = self.funcs[each.func], hl.TailStrategy.GuardWithIf
            dimension = [var.name() for var in output.args()].index(each.old)
            extent = output.output_buffers()[0].parameter().extent_constraint(dimension)
            self.shifted[each.func] = output.specialize(extent >= each.factor)
            self.shifted[each.func].split(*_loops(each), each.factor, hl.TailStrategy.ShiftInwards)
        for definition in definitions:
            definition.split(*_loops(each), each.factor, tail)

    @take.register
    def _(self, each: step.Fuse) -> None:
        for definition in self.definitions(each):
            definition.fuse(_var(each.inner), _var(each.outer), _var(each.fused))

    @take.register
    def _(self, each: step.Reorder) -> None:
        for definition in self.definitions(each):
            definition.reorder(*(_var(name) for name in each.order))

    @take.register
    def _(self, each: step.Vectorize) -> None:
        definitions = self.definitions(each)
        # In loops too short to be shifted Halide would load each lane behind a branch of its own.
        for definition in definitions[:1] if each.func in self.shifted else definitions:
            definition.vectorize(_var(each.var))

    @take.register
    def _(self, each: step.Unroll) -> None:
        for definition in self.definitions(each):
            definition.unroll(_var(each.var))

    @take.register
    def _(self, each: step.Parallel) -> None:
        # Halide cuts a parallel loop by an `if` in its body, in whose branches it simplified `x0 == 2` to false.
        for definition in self.definitions(each):
            definition.parallel(_var(each.var)).never_partition([_var(each.var)])

    @take.register
    def _(self, each: step.Atomic) -> None:
        self.definition(each).atomic()

    @take.register
    def _(self, each: step.RFactor) -> None:
        pairs = [(_var(rvar), _var(var)) for rvar, var in each.pairs]
        self.funcs[each.into] = self.definition(each).rfactor(pairs)

    @take.register
    def _(self, each: step.ComputeInline) -> None:
        self.funcs[each.func].compute_inline()

    @take.register
    def _(self, each: step.ComputeAt) -> None:
        self.funcs[each.func].compute_at(self.funcs[each.consumer], _var(each.var))

    @take.register
    def _(self, each: step.ComputeRoot) -> None:
        self.funcs[each.func].compute_root()

    @take.register
    def _(self, each: step.StoreAt) -> None:
        self.funcs[each.func].store_at(self.funcs[each.consumer], _var(each.var))

    @take.register
    def _(self, each: step.StoreRoot) -> None:
        self.funcs[each.func].store_root()

    @take.register
    def _(self, each: step.StoreIn) -> None:
        self.funcs[each.func].store_in(hl.MemoryType.__members__[each.memory])

    @take.register
    def _(self, each: step.FoldStorage) -> None:
        self.funcs[each.func].fold_storage(_var(each.var), each.extent)

    @take.register
    def _(self, each: step.In) -> None:
        self.funcs[each.into] = self.funcs[each.func].in_(self.funcs[each.consumer])

    @take.register
    def _(self, each: step.CloneIn) -> None:
        self.funcs[each.into] = self.funcs[each.func].clone_in(self.funcs[each.consumer])

    @take.register
    def _(self, each: step.Prefetch) -> None:
        source = (self.inputs | self.funcs).get(each.source)
        if source is None:
            raise KernelTextError(f"{each!r}: there is no {each.source!r}", cure="use an input, or a Func")
        # By name: given in order, an input is taken for a Func, of which there is nothing to fetch.
        kind = "image" if isinstance(source, hl.ImageParam) else "func"
        loops = {"at": _var(each.at), "from": _var(each.along)}
        for definition in self.definitions(each):
            definition.prefetch(**{kind: source}, **loops, offset=each.offset)

    @take.register
    def _(self, each: step.ComputeWith) -> None:
        self.funcs[each.func].compute_with(self.funcs[each.parent], _var(each.var))

    @take.register
    def _(self, each: step.Bound) -> None:
        self.funcs[each.func].bound(_var(each.var), each.minimum, each.extent)

    @take.register
    def _(self, each: step.BoundExtent) -> None:
        self.funcs[each.func].bound_extent(_var(each.var), each.extent)

    @take.register
    def _(self, each: step.BoundStorage) -> None:
        self.funcs[each.func].bound_storage(_var(each.var), each.extent)

    @take.register
    def _(self, each: step.GpuBlocks) -> None:
        self.definition(each).gpu_blocks(*(_var(name) for name in each.vars))

    @take.register
    def _(self, each: step.GpuThreads) -> None:
        self.definition(each).gpu_threads(*(_var(name) for name in each.vars))

    @take.register
    def _(self, each: step.Specialize) -> None:
        size = self.sizes.get(each.size)
        if size is None:
            raise KernelTextError(f"{each!r}: {each.size!r} is no size", cure="name a Size of ARGUMENTS")
        self.specialized[each.func] = self.funcs[each.func].specialize(size >= each.least)

    @take.register
    def _(self, each: step.NeverPartition) -> None:
        for definition in self.definitions(each):
            definition.never_partition([_var(each.var)])

    @take.register
    def _(self, each: step.AlignStorage) -> None:
        self.funcs[each.func].align_storage(_var(each.var), each.alignment)

    @take.register
    def _(self, each: step.ReorderStorage) -> None:
        self.funcs[each.func].reorder_storage(*(_var(name) for name in each.order))

    @take.register
    def _(self, each: step.AllowRaceConditions) -> None:
        self.definition(each).allow_race_conditions()
