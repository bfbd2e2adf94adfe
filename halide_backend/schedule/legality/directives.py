"""What one step may do: the loops and Funcs that it names exist, and its arguments are within limits."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import singledispatchmethod

from halide_backend.schedule import steps as step
from halide_backend.schedule.legality.nests import Kind, Nest, NestLoop, Nests, Place
from halide_backend.schedule.legality.refusal import refuse
from halide_backend.schedule.stage import Loop, Role, Stage

#: A loop is no longer after a split than before but for so many steps, which a guard leaves out.
MOST_PADDING = 1 << 16

#: Operators for which Halide knows that neither order nor grouping matters.
_ASSOCIATIVE = frozenset({"sum", "prod", "min", "max"})

#: The widest vector, in lanes: four registers of AVX-512 full of float32.
MOST_LANES = 64

#: Steps of a loop that are written out. Compile time explodes beyond.
MOST_UNROLLED = 128

#: Steps that something may be fetched before it is needed.
MOST_AHEAD = 1 << 10

_NAME = re.compile(r"[A-Za-z_]\w*(\$\w+)?|\w+\$\w+", re.ASCII)

#: Funcs that hold what anybody could compute again.
_PLAIN = (Role.INLINE, Role.SHARED, Role.STAGED_LOAD)


class Directives:
    """Takes the steps of a kernel one after another, and refuses the first that names what is not there."""

    def __init__(self, nests: Nests) -> None:
        self.nests = nests
        self.number = 0
        self.atomic: set[str] = set()
        self.seen: set[tuple[type[step.Step], str]] = set()

    def follow(self, number: int, each: step.Step) -> None:
        """Apply step `number`.

        Raises:
            IllegalPlan: it names what does not exist, contradicts an earlier one, or has an argument out of range.
        """
        self.number = number
        if not isinstance(each, step.Step) or each.func not in self.nests.stages:
            refuse(number, each, f"there is no Func {getattr(each, 'func', '')!r} at this step", self._funcs())
        self.take(each)
        self.nests.scheduled.add(each.func)

    # -- what steps name ---------------------------------------------------------------------------------------

    def _funcs(self) -> str:
        return f"use one of {', '.join(self.nests.stages)}"

    def _stage(self, each: step.Step, name: str) -> Stage:
        if name not in self.nests.stages:
            refuse(self.number, each, f"there is no Func {name!r} at this step", self._funcs())
        return self.nests.stages[name]

    def _once(self, each: step.Step, kind: type[step.Step] | None = None) -> None:
        key = kind or type(each), each.func
        if key in self.seen:
            refuse(self.number, each, "an earlier step has said this of the Func, or the opposite")
        self.seen.add(key)

    def _nest(self, each: step.Step) -> Nest:
        update = getattr(each, "update", None)
        nest = self.nests.nests.get((each.func, update)) if type(update) is not bool else None
        if nest is None:
            has = "an update definition, of number 0" if (each.func, 0) in self.nests.nests else "no update definition"
            refuse(self.number, each, f"there is no update {update!r}", f"{each.func} has {has}")
        return nest

    def _place(self, each: step.Step, nest: Nest, name: str) -> int:
        place = nest.find(name)
        if place is None:
            cure = f"it has {', '.join(loop.name for loop in nest.loops) or 'none'}"
            refuse(self.number, each, f"the Func has no loop {name!r} at this step", cure)
        return place

    def _serial(self, each: step.Step, nest: Nest, name: str) -> int:
        place = self._place(each, nest, name)
        if nest.loops[place].kind is not Kind.SERIAL:
            refuse(self.number, each, f"the loop {name!r} is {nest.loops[place].kind.value} already")
        return place

    def _new(self, each: step.Step, nest: Nest, *names: str, rvar: bool = False) -> None:
        for name in names:
            if not isinstance(name, str) or not _NAME.fullmatch(name) or ("$" in name) is not rvar:
                cure = "pieces of an RVar have a $ in their name, those of a Var none"
                refuse(self.number, each, f"{name!r} cannot be the name of this loop", cure)
            if name == "s":
                refuse(self.number, each, "Halide computes half of a Func whose loop is called s", "call it otherwise")
            if nest.find(name) is not None or names.count(name) > 1:
                refuse(self.number, each, f"the Func has a loop {name!r} already", "call it otherwise")

    def _number(self, each: step.Step, value: object, least: int, most: int, what: str) -> int:
        if type(value) is not int or not least <= value <= most:
            refuse(self.number, each, f"{what} is {value!r}", f"use a number from {least} to {most}")
        return value

    def _only_on(self, each: step.Step, gpu: bool) -> None:
        if self.nests.on_gpu is not gpu:
            refuse(self.number, each, f"this step is for a {'GPU' if gpu else 'CPU'}")

    def _set(self, each: step.Step, nest: Nest, name: str, kind: Kind) -> NestLoop:
        place = self._serial(each, nest, name)
        nest.loops[place] = replace(nest.loops[place], kind=kind)
        return nest.loops[place]

    def _written_out(self, each: step.Step, nest: Nest, name: str, kind: Kind) -> NestLoop:
        loop = self._set(each, nest, name, kind)
        if nest.stage.role is Role.SERIAL:
            refuse(self.number, each, "the value is a loop of up to 2**31 steps, of which a vector would do all")
        if not loop.fixed:
            refuse(self.number, each, f"the length of the loop {name!r} is no constant", "split it first")
        return loop

    # -- loops -------------------------------------------------------------------------------------------------

    @singledispatchmethod
    def take(self, each: step.Step) -> None:
        raise NotImplementedError(type(each))

    @take.register
    def _(self, each: step.Split) -> None:
        nest = self._nest(each)
        place = self._serial(each, nest, each.old)
        old = nest.loops[place]
        rest = replace(nest, loops=[loop for loop in nest.loops if loop is not old])
        self._new(each, rest, each.outer, each.inner, rvar=old.reduces)
        factor = self._number(each, each.factor, 1, old.extent + MOST_PADDING, "the factor")
        if each.tail == "RoundUp":
            self._round_up(each, nest, old)
        elif each.tail != "GuardWithIf":
            why = "every other tail computes something twice, or reads and writes out of bounds"
            refuse(self.number, each, f"the tail is {each.tail!r}: {why}", 'use "GuardWithIf"')
        outer = replace(old, name=each.outer, extent=-(-old.extent // factor), part=True)
        nest.loops[place : place + 1] = [replace(old, name=each.inner, extent=factor, fixed=True, part=True), outer]

    def _round_up(self, each: step.Split, nest: Nest, old: NestLoop) -> None:
        if nest.stage.role not in _PLAIN or nest.update is not None or old.reduces:
            refuse(self.number, each, "what the user sees, or an update, would be computed beyond its end")
        if old.part or not old.fixed or old.extent % each.factor:
            cure = "RoundUp is for whole loops whose number of steps the factor divides"
            refuse(self.number, each, "what the Func reads beyond its end may be outside of memory", cure)

    @take.register
    def _(self, each: step.Fuse) -> None:
        nest = self._nest(each)
        inner = nest.loops[self._serial(each, nest, each.inner)]
        outer = nest.loops[self._serial(each, nest, each.outer)]
        if inner is outer or inner.reduces is not outer.reduces:
            refuse(self.number, each, "a Var is fused with another Var, an RVar with another RVar")
        if inner.reduces and nest.stage.role is not Role.REDUCTION:
            refuse(self.number, each, "the order of these steps decides the result")
        rest = replace(nest, loops=[loop for loop in nest.loops if loop not in (inner, outer)])
        self._new(each, rest, each.fused, rvar=inner.reduces)
        extent = inner.extent * outer.extent
        if extent >= 1 << 31:
            refuse(self.number, each, f"a loop of {extent} steps is longer than 32 bits count")
        fixed, axes = inner.fixed and outer.fixed, inner.axes | outer.axes
        fused = NestLoop(each.fused, extent, axes, fixed, part=inner.part or outer.part)
        self.nests.fused[each.func, each.fused] = axes
        nest.loops = [fused if loop is inner else loop for loop in nest.loops if loop is not outer]

    @take.register
    def _(self, each: step.Reorder) -> None:
        nest = self._nest(each)
        if len(set(each.order)) != len(each.order):
            refuse(self.number, each, "a loop is named twice")
        places = [self._place(each, nest, name) for name in each.order]
        before = [loop.name for loop in nest.loops if loop.reduces]
        chosen = [nest.loops[place] for place in places]
        for place, loop in zip(sorted(places), chosen):
            nest.loops[place] = loop
        after = [loop.name for loop in nest.loops if loop.reduces]
        if nest.stage.role in (Role.SCATTER, Role.SCAN) and before != after:
            refuse(self.number, each, "the order of these steps decides the result")

    @take.register
    def _(self, each: step.Vectorize) -> None:
        nest = self._nest(each)
        loop = self._written_out(each, nest, each.var, Kind.VECTOR)
        if loop.extent > MOST_LANES:
            refuse(self.number, each, f"a vector of {loop.extent} lanes", f"split the loop: at most {MOST_LANES}")
        if loop.reduces and each.func not in self.atomic:
            refuse(self.number, each, "steps of an update depend on one another", "RFactor it, or make it Atomic first")
        if sum(other.kind is Kind.VECTOR for other in nest.loops) > 1:
            refuse(self.number, each, "another loop of this definition is a vector", "unroll one of them")

    @take.register
    def _(self, each: step.Unroll) -> None:
        self._written_out(each, self._nest(each), each.var, Kind.UNROLLED)

    @take.register
    def _(self, each: step.Parallel) -> None:
        self._only_on(each, gpu=False)
        if self._set(each, self._nest(each), each.var, Kind.PARALLEL).reduces:
            refuse(self.number, each, "threads would write one place at the same time", "RFactor the loop first")

    @take.register
    def _(self, each: step.NeverPartition) -> None:
        self._place(each, self._nest(each), each.var)

    @take.register(step.GpuBlocks | step.GpuThreads)
    def _(self, each: step.GpuBlocks | step.GpuThreads) -> None:
        self._only_on(each, gpu=True)
        nest = self._nest(each)
        kind = Kind.BLOCKS if isinstance(each, step.GpuBlocks) else Kind.THREADS
        if any(loop.kind is kind for loop in nest.loops) or not 1 <= len(each.vars) <= 3:
            refuse(self.number, each, "one to three loops of a definition, by one step, have dimensions of a grid")
        for name in each.vars:
            loop = self._set(each, nest, name, kind)
            if loop.reduces and nest.stage.role is not Role.SCATTER:
                refuse(self.number, each, "threads would write one place at the same time")

    # -- updates -----------------------------------------------------------------------------------------------

    @take.register
    def _(self, each: step.Atomic) -> None:
        self._only_on(each, gpu=False)
        self._once(each)
        if self._nest(each).stage.operator not in _ASSOCIATIVE or each.update != 0:
            refuse(self.number, each, "the order of the steps of this update decides the result")
        self.atomic.add(each.func)

    @take.register
    def _(self, each: step.AllowRaceConditions) -> None:
        self._once(each)
        if not self.nests.on_gpu or self._nest(each).stage.role is not Role.SCATTER or each.update != 0:
            refuse(self.number, each, "threads that write one place lose what another one has written")

    @take.register
    def _(self, each: step.RFactor) -> None:
        self._only_on(each, gpu=False)
        nest, stage = self._nest(each), self.nests.stages[each.func]
        if each.update != 0 or stage.operator not in _ASSOCIATIVE:
            refuse(self.number, each, "the order of the steps of this update decides the result")
        try:
            pairs = dict(each.pairs)
        except ValueError:
            refuse(self.number, each, "there are not as many new Vars as RVars")
        if len(pairs) != len(each.pairs) or not pairs:
            refuse(self.number, each, "an RVar is named twice, or none is")
        if any(loop.reduces and loop.kind is not Kind.SERIAL for loop in nest.loops):
            refuse(self.number, each, "a loop of the reduction is not serial", "RFactor it before other steps")
        for name in pairs:
            if not nest.loops[self._place(each, nest, name)].reduces:
                refuse(self.number, each, f"{name!r} is no loop of a reduction")
        self._new(each, self.nests.nests[each.func, None], *pairs.values())
        made = [replace(loop, name=pairs.get(loop.name, loop.name), kind=Kind.SERIAL) for loop in nest.loops]
        created = tuple(_as_loop(loop) for loop in made if loop.name in pairs.values())
        partial = replace(stage, name=each.into, loops=(*stage.loops, *created), updates=stage.updates)
        self._add(each, each.into, partial)
        self.nests.nests[each.into, 0].loops = made
        nest.loops = [loop for loop in nest.loops if not loop.reduces or loop.name in pairs]
        self.nests.rename(replace(stage, calls=(each.into,)))

    # -- places ------------------------------------------------------------------------------------------------

    def _add(self, each: step.Step, name: str, stage: Stage) -> None:
        if not isinstance(name, str) or not name.isidentifier() or name in self.nests.stages:
            refuse(self.number, each, f"{name!r} cannot be the name of a new Func")
        self.nests.add(stage)

    def _compute(self, each: step.Step, consumer: str = "", var: str = "") -> None:
        self._once(each, step.ComputeAt)
        if self.nests.stages[each.func].role in (Role.OUTPUT, Role.SCATTER):
            refuse(self.number, each, "an output is computed by itself")
        self.nests.computed[each.func] = Place(self.number, each, consumer, var)

    @take.register
    def _(self, each: step.ComputeAt) -> None:
        self._stage(each, each.consumer)
        self._compute(each, each.consumer, each.var)

    @take.register
    def _(self, each: step.ComputeRoot) -> None:
        self._only_on(each, gpu=False)
        self._compute(each)

    @take.register
    def _(self, each: step.ComputeInline) -> None:
        self._once(each, step.ComputeAt)
        if self.nests.stages[each.func].role not in _PLAIN or (self.nests.on_gpu and each.func in self.nests.scheduled):
            refuse(self.number, each, "this value has to be computed once, where it is stored")

    @take.register(step.StoreAt | step.StoreRoot)
    def _(self, each: step.StoreAt | step.StoreRoot) -> None:
        self._only_on(each, gpu=False)
        self._once(each, step.StoreAt)
        if self.nests.stages[each.func].role not in (*_PLAIN, Role.REDUCTION):
            refuse(self.number, each, "this value has to be stored where it is computed")
        consumer, var = (each.consumer, each.var) if isinstance(each, step.StoreAt) else ("", "")
        self.nests.stored[each.func] = Place(self.number, each, consumer, var)

    @take.register
    def _(self, each: step.StoreIn) -> None:
        self._once(each)
        allowed = ("GPUShared",) if self.nests.on_gpu else ("Auto", "Heap", "Stack")
        if each.memory not in allowed:
            refuse(self.number, each, f"a kernel may not use this memory: {each.memory!r}", f"use {allowed}")

    @take.register
    def _(self, each: step.FoldStorage) -> None:
        self._only_on(each, gpu=False)
        self._once(each)
        self._place(each, self.nests.nests[each.func, None], each.var)
        self._number(each, each.extent, 1, 1 << 20, "the number of lines")

    def _wrap(self, each: step.In | step.CloneIn) -> None:
        self._only_on(each, gpu=False)
        stage, consumer = self.nests.stages[each.func], self._stage(each, each.consumer)
        if stage.role not in (*_PLAIN, Role.REDUCTION) or each.func in self.nests.scheduled:
            refuse(self.number, each, "only a value that anybody could compute, before other steps for it")
        if each.func not in consumer.calls:
            refuse(self.number, each, f"{each.consumer} does not read it")
        copy = isinstance(each, step.In)
        made = replace(stage, name=each.into, role=Role.INLINE, calls=(each.func,), updates=()) if copy else stage
        self._add(each, each.into, replace(made, name=each.into))
        self.nests.redirect(each.consumer, each.func, each.into)

    @take.register
    def _(self, each: step.In) -> None:
        self._wrap(each)

    @take.register
    def _(self, each: step.CloneIn) -> None:
        self._wrap(each)

    @take.register
    def _(self, each: step.Prefetch) -> None:
        self._only_on(each, gpu=False)
        nest = self._nest(each)
        for name in (each.at, each.along):
            self._serial(each, nest, name)
        self._number(each, each.offset, 1, MOST_AHEAD, "the number of steps ahead")

    @take.register
    def _(self, each: step.ComputeWith) -> None:
        self._once(each)
        parent = self._stage(each, each.parent)
        roles = {parent.role, self.nests.stages[each.func].role}
        if roles != {Role.OUTPUT} or each.parent == each.func or "status" in (each.parent, each.func):
            refuse(self.number, each, "only outputs of tensors are computed together")
        self.nests.children[each.func] = Place(self.number, each, each.parent, each.var)

    # -- storage -----------------------------------------------------------------------------------------------

    def _bounded(self, each: step.Bound | step.BoundExtent) -> Loop:
        self._only_on(each, gpu=True)
        stage = self.nests.stages[each.func]
        loop = next((loop for loop in stage.loops if loop.name == each.var), None)
        if loop is None or stage.role in (Role.OUTPUT, Role.SCATTER):
            refuse(self.number, each, f"{each.var!r} is no dimension of the Func, or it is an output")
        return loop

    @take.register
    def _(self, each: step.Bound) -> None:
        loop = self._bounded(each)
        if (each.minimum, each.extent) != (0, loop.extent) or not loop.fixed:
            refuse(self.number, each, f"the dimension is known to have the {loop.extent} points from 0 on")

    @take.register
    def _(self, each: step.BoundExtent) -> None:
        loop = self._bounded(each)
        if each.extent != 1 or loop.axis not in self.nests.row:
            refuse(self.number, each, "a thread needs one point of the axes that blocks and threads share out")

    @take.register
    def _(self, each: step.AlignStorage) -> None:
        stage = self.nests.stages[each.func]
        if each.var not in [loop.name for loop in stage.loops] or stage.role in (Role.OUTPUT, Role.SCATTER):
            refuse(self.number, each, f"{each.var!r} is no dimension of the Func, or it is an output")
        self._number(each, each.alignment, 1, 1 << 10, "the alignment")


def _as_loop(loop: NestLoop) -> Loop:
    return Loop(loop.name, loop.extent, min(loop.axes), loop.fixed)
