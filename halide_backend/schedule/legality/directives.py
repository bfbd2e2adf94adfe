"""What one step may do: the loops and Funcs that it names exist, and its arguments are within limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import singledispatchmethod

from halide_backend.schedule import steps as step
from halide_backend.schedule.legality.nests import Kind, Nest, NestLoop, Place
from halide_backend.schedule.legality.reader import Reader
from halide_backend.schedule.legality.refusal import refuse
from halide_backend.schedule.stage import Loop, Role, Stage
from halide_backend.schedule.tiling import TilingKind

#: A loop is no longer after a split than before but for so many steps, which a guard leaves out.
MOST_PADDING = 1 << 16

#: Operators for which Halide knows that neither order nor grouping matters.
_ASSOCIATIVE = frozenset({"sum", "prod", "min", "max"})

#: The widest vector, in lanes: sixteen registers of AVX-512 full of float32.
MOST_LANES = 256

#: Steps that something may be fetched before it is needed.
MOST_AHEAD = 1 << 10

#: Funcs that hold what anybody could compute again.
_PLAIN = (Role.INLINE, Role.SHARED, Role.STAGED_LOAD)


class Directives(Reader):
    """Takes the steps of a kernel one after another, and refuses the first that names what is not there."""

    def follow(self, steps: Sequence[step.Step]) -> None:
        """Apply all steps.

        Raises:
            IllegalPlan: one names what does not exist, contradicts an earlier one, or has an argument out of range.
        """
        take = self.take  # functools makes a function whenever it is asked for it
        for number, each in enumerate(steps):
            self.begin(number, each)
            take(each)
            self.nests.scheduled.add(each.func)

    def _set(self, each: step.Step, nest: Nest, name: str, kind: Kind) -> NestLoop:
        place = self.serial(each, nest, name)
        nest.loops[place] = nest.loops[place]._replace(kind=kind)
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
        refuse(
            self.number,
            each,
            "nothing is known of what this step may do",
            "use those of docs/reference/schedule-steps.md",
        )

    @take.register
    def _(self, each: step.Split) -> None:
        nest = self.nest(each)
        place = self.serial(each, nest, each.old)
        old = nest.loops[place]
        rest = Nest(nest.stage, nest.update, [loop for loop in nest.loops if loop is not old])
        self.new(each, rest, each.outer, each.inner, rvar=old.reduces)
        factor = self.integer(each, each.factor, 1, old.extent + MOST_PADDING, "the factor")
        if each.tail == "RoundUp":
            self._round_up(each, nest, old)
        elif each.tail == "ShiftInwards":
            self._shift_inwards(each, nest, old)
        elif each.tail != "GuardWithIf":
            refuse(self.number, each, f"the tail {each.tail!r} reads and writes out of bounds", 'use "GuardWithIf"')
        outer = old._replace(name=each.outer, extent=-(-old.extent // factor), part=True)
        nest.loops[place : place + 1] = [old._replace(name=each.inner, extent=factor, fixed=True, part=True), outer]

    def _round_up(self, each: step.Split, nest: Nest, old: NestLoop) -> None:
        if nest.stage.role not in _PLAIN or nest.update is not None or old.reduces:
            refuse(self.number, each, "what the user sees, or an update, would be computed beyond its end")
        if old.axes <= set(self.nests.clamped) and not old.part:
            return
        if old.part or not old.fixed or old.extent % each.factor or self.nests.has_more(each.func):
            cure = "RoundUp is for whole loops whose number of steps the factor divides"
            refuse(self.number, each, "what the Func reads beyond its end may be outside of memory", cure)

    def _shift_inwards(self, each: step.Split, nest: Nest, old: NestLoop) -> None:
        self.only_on(each, gpu=False)
        if nest.stage.role is not Role.OUTPUT or nest.stage.name == "status" or nest.update is not None:
            refuse(self.number, each, "something is computed twice: that is for outputs", 'use "GuardWithIf"')
        if nest.stage.overwrites:
            refuse(self.number, each, "what is computed twice has been overwritten by then", 'use "GuardWithIf"')
        whole = {(loop.name, frozenset([loop.axis])) for loop in nest.stage.loops}
        if (old.name, old.axes) not in whole or any(loop.part for loop in nest.loops):
            refuse(self.number, each, "only a whole loop can begin earlier", "split one, before other loops")
        if each.func in self.nests.specialized:
            refuse(self.number, each, "its loops are written twice already", 'use "GuardWithIf"')
        self.nests.shifted[each.func] = old.axes

    @take.register
    def _(self, each: step.Fuse) -> None:
        nest = self.nest(each)
        inner = nest.loops[self.serial(each, nest, each.inner)]
        outer = nest.loops[self.serial(each, nest, each.outer)]
        if inner is outer or inner.reduces is not outer.reduces:
            refuse(self.number, each, "a Var is fused with another Var, an RVar with another RVar")
        if inner.reduces and nest.stage.role is not Role.REDUCTION:
            refuse(self.number, each, "the order of these steps decides the result")
        rest = Nest(nest.stage, nest.update, [loop for loop in nest.loops if loop not in (inner, outer)])
        self.new(each, rest, each.fused, rvar=inner.reduces)
        extent, fixed, axes = inner.extent * outer.extent, inner.fixed and outer.fixed, inner.axes | outer.axes
        # The launcher counts what is computed when the kernel is called.
        if fixed and extent >= 1 << 31:
            refuse(self.number, each, f"a loop of {extent} steps is longer than 32 bits count")
        fused = NestLoop(each.fused, extent, axes, fixed, part=inner.part or outer.part)
        steps: dict[str, int] = {}
        for loop in (inner, outer):
            whole = dict.fromkeys(loop.axes, loop.extent)
            for axis, count in self.nests.fused.get((each.func, loop.name), whole).items():
                steps[axis] = steps.get(axis, 1) * count
        self.nests.fused[each.func, each.fused] = steps
        nest.loops = [fused if loop is inner else loop for loop in nest.loops if loop is not outer]

    @take.register
    def _(self, each: step.Reorder) -> None:
        nest = self.nest(each)
        if len(set(each.order)) != len(each.order):
            refuse(self.number, each, "a loop is named twice")
        places = [self.place(each, nest, name) for name in each.order]
        before = [loop.name for loop in nest.loops if loop.reduces]
        chosen = [nest.loops[place] for place in places]
        for place, loop in zip(sorted(places), chosen):
            nest.loops[place] = loop
        after = [loop.name for loop in nest.loops if loop.reduces]
        if nest.stage.role in (Role.SCATTER, Role.SCAN) and before != after:
            refuse(self.number, each, "the order of these steps decides the result")

    @take.register
    def _(self, each: step.Vectorize) -> None:
        nest = self.nest(each)
        loop = self._written_out(each, nest, each.var, Kind.VECTOR)
        if loop.extent > MOST_LANES or loop.extent & (loop.extent - 1):
            # LLVM ends the process over 17 lanes of int64.
            cure = f"split the loop: a power of two, at most {MOST_LANES}"
            refuse(self.number, each, f"a vector of {loop.extent} lanes", cure)
        # Each step that copies into a tile has a place of its own.
        races = (step.AllowRaceConditions, each.func) in self.seen and loop.axes <= {*nest.stage.distinct}
        apart = races or nest.stage.role is Role.STAGED_LOAD
        if loop.reduces and not apart and each.func not in self.atomic:
            refuse(self.number, each, "steps of an update depend on one another", "RFactor it, or make it Atomic first")
        if sum(other.kind is Kind.VECTOR for other in nest.loops) > 1:
            refuse(self.number, each, "another loop of this definition is a vector", "unroll one of them")

    @take.register
    def _(self, each: step.Unroll) -> None:
        self._written_out(each, self.nest(each), each.var, Kind.UNROLLED)

    @take.register
    def _(self, each: step.Parallel) -> None:
        self.only_on(each, gpu=False)
        if self._set(each, self.nest(each), each.var, Kind.PARALLEL).reduces:
            refuse(self.number, each, "threads would write one place at the same time", "RFactor the loop first")

    @take.register
    def _(self, each: step.Specialize) -> None:
        self.only_on(each, gpu=False)
        nest = self.nest(each)
        if nest.stage.role is not Role.OUTPUT or nest.stage.name == "status":
            refuse(self.number, each, "only the loops of an output are written twice")
        if each.func in self.nests.specialized or any(loop.part for loop in nest.loops):
            refuse(self.number, each, "its loops have been changed, or specialized, before", "specialize it first")
        self.integer(each, each.least, 1, MOST_PADDING, "the size")
        self.nests.specialized.add(each.func)

    @take.register
    def _(self, each: step.NeverPartition) -> None:
        self.place(each, self.nest(each), each.var)

    @take.register(step.GpuBlocks)
    @take.register(step.GpuThreads)
    def _(self, each: step.GpuBlocks | step.GpuThreads) -> None:
        self.only_on(each, gpu=True)
        nest = self.nest(each)
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
        self.only_on(each, gpu=False)
        self.once(each)
        if self.nest(each).stage.operator not in _ASSOCIATIVE or each.update != 0:
            refuse(self.number, each, "the order of the steps of this update decides the result")
        self.atomic.add(each.func)

    @take.register
    def _(self, each: step.AllowRaceConditions) -> None:
        self.once(each)
        stage = self.nest(each).stage
        if stage.role is not Role.SCATTER or each.update != 0 or not (self.nests.on_gpu or stage.distinct):
            refuse(self.number, each, "threads that write one place lose what another one has written")

    @take.register
    def _(self, each: step.RFactor) -> None:
        self.only_on(each, gpu=False)
        nest, stage = self.nest(each), self.nests.stages[each.func]
        if each.update != 0 or not stage.operators or not _ASSOCIATIVE.issuperset(stage.operators):
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
            if not nest.loops[self.place(each, nest, name)].reduces:
                refuse(self.number, each, f"{name!r} is no loop of a reduction")
        self.new(each, self.nests.nests[each.func, None], *pairs.values())
        made = [loop._replace(name=pairs.get(loop.name, loop.name), kind=Kind.SERIAL) for loop in nest.loops]
        # Halide puts the new Vars outside of all other loops.
        made.sort(key=lambda loop: loop.name in pairs.values())
        created = tuple(_as_loop(loop) for loop in made if loop.name in pairs.values())
        partial = replace(stage, name=each.into, loops=(*stage.loops, *created), updates=stage.updates)
        self._add(each, each.into, partial)
        self.nests.nests[each.into, 0].loops = made
        nest.loops = [loop for loop in nest.loops if not loop.reduces or loop.name in pairs]
        self.nests.rename(replace(stage, calls=(each.into,)))

    # -- places ------------------------------------------------------------------------------------------------

    def _add(self, each: step.Step, name: str, stage: Stage) -> None:
        if not name.isidentifier() or name in self.nests.stages:
            refuse(self.number, each, f"{name!r} cannot be the name of a new Func")
        self.nests.add(stage)

    def _compute(self, each: step.Step, consumer: str = "", var: str = "") -> None:
        self.once(each, step.ComputeAt)
        if self.nests.stages[each.func].role in (Role.OUTPUT, Role.SCATTER):
            refuse(self.number, each, "an output is computed by itself")
        self.nests.computed[each.func] = Place(self.number, each, consumer, var)

    @take.register
    def _(self, each: step.ComputeAt) -> None:
        self.stage(each, each.consumer)
        self._compute(each, each.consumer, each.var)

    @take.register
    def _(self, each: step.ComputeRoot) -> None:
        self.only_on(each, gpu=False)
        self._compute(each)

    @take.register
    def _(self, each: step.ComputeInline) -> None:
        self.once(each, step.ComputeAt)
        if self.nests.stages[each.func].role not in _PLAIN or (self.nests.on_gpu and each.func in self.nests.scheduled):
            refuse(self.number, each, "this value has to be computed once, where it is stored")

    @take.register(step.StoreAt)
    @take.register(step.StoreRoot)
    def _(self, each: step.StoreAt | step.StoreRoot) -> None:
        self.only_on(each, gpu=False)
        self.once(each, step.StoreAt)
        if self.nests.stages[each.func].role not in (*_PLAIN, Role.REDUCTION):
            refuse(self.number, each, "this value has to be stored where it is computed")
        consumer, var = (each.consumer, each.var) if isinstance(each, step.StoreAt) else ("", "")
        self.nests.stored[each.func] = Place(self.number, each, consumer, var)

    @take.register
    def _(self, each: step.StoreIn) -> None:
        self.once(each)
        allowed = ("GPUShared",) if self.nests.on_gpu else ("Auto", "Heap", "Stack")
        if each.memory not in allowed:
            refuse(self.number, each, f"a kernel may not use this memory: {each.memory!r}", f"use {allowed}")

    @take.register
    def _(self, each: step.FoldStorage) -> None:
        self.only_on(each, gpu=False)
        self.once(each)
        self.place(each, self.nests.nests[each.func, None], each.var)
        self.integer(each, each.extent, 1, 1 << 20, "the number of lines")

    def _wrap(self, each: step.In | step.CloneIn) -> None:
        self.only_on(each, gpu=False)
        stage, consumer = self.nests.stages[each.func], self.stage(each, each.consumer)
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
        self.only_on(each, gpu=False)
        nest = self.nest(each)
        source = self.nests.stages.get(each.source)
        if source is not None and each.source not in self.nests.computed:
            refuse(self.number, each, f"{each.source} is not stored", "fetch an input, or a Func after its ComputeAt")
        for name in (each.at, each.along):
            self.serial(each, nest, name)
        self.integer(each, each.offset, 1, MOST_AHEAD, "the number of steps ahead")

    @take.register
    def _(self, each: step.ComputeWith) -> None:
        self.once(each)
        parent = self.stage(each, each.parent)
        func = self.nests.stages[each.func]
        known = parent.role is Role.OUTPUT and func.role in (Role.OUTPUT, *_PLAIN) and each.parent != each.func
        if not known or "status" in (each.parent, each.func):
            refuse(self.number, each, "only outputs of tensors are computed together, and checks with one")
        self.nests.children[each.func] = Place(self.number, each, each.parent, each.var)

    # -- storage -----------------------------------------------------------------------------------------------

    def _dimension(self, each: step.Bound | step.BoundExtent | step.BoundStorage | step.AlignStorage) -> Loop:
        stage = self.nests.stages[each.func]
        loop = next((loop for loop in stage.loops if loop.name == each.var), None)
        if loop is None or stage.role in (Role.OUTPUT, Role.SCATTER):
            refuse(self.number, each, f"{each.var!r} is no dimension of the Func, or it is an output")
        return loop

    @take.register
    def _(self, each: step.Bound) -> None:
        loop = self._dimension(each)
        if (each.minimum, each.extent) != (0, loop.extent) or not loop.fixed or self.nests.has_more(each.func):
            refuse(self.number, each, f"the dimension is known to have the {loop.extent} points from 0 on")

    @take.register
    def _(self, each: step.BoundExtent) -> None:
        loop = self._dimension(each)
        narrow = loop.axis == self.nests.narrow and self.nests.stages[each.func].role is Role.REDUCTION
        known = narrow or loop.axis in self.nests.clamped or each.extent in (1, self._shared(each.func, loop))
        if not known or (self.nests.on_gpu and loop.axis not in self.nests.outer):
            refuse(self.number, each, "a thread needs one point of the axes that blocks and threads share out")
        for nest in self.nests.of_func(each.func):
            whole = [
                old._replace(extent=each.extent, fixed=True) if old.name == each.var else old for old in nest.loops
            ]
            nest.loops = whole

    def _shared(self, func: str, loop: Loop) -> int:
        """Points along `loop` of what the threads of a block share: columns, or a side of a tile."""
        tiling, role = self.nests.tiling, self.nests.stages[func].role
        if tiling is None:
            return 1
        if role is Role.SHARED_TILE and loop.axis in tiling.inner:
            return tiling.lines if loop.axis == tiling.inner[0] else tiling.side
        return tiling.side if role is Role.GROUP_REDUCTION and tiling.kind is TilingKind.COLUMNS else 1

    @take.register
    def _(self, each: step.BoundStorage) -> None:
        self.only_on(each, gpu=False)
        self._dimension(each)
        self.integer(each, each.extent, 1, 1 << 10, "the extent")

    @take.register
    def _(self, each: step.AlignStorage) -> None:
        self._dimension(each)
        self.integer(each, each.alignment, 1, 1 << 10, "the alignment")

    @take.register
    def _(self, each: step.ReorderStorage) -> None:
        self.only_on(each, gpu=False)
        self.once(each)
        stage = self.nests.stages[each.func]
        whole = sorted(each.order) == sorted(loop.name for loop in stage.loops)
        if not whole or stage.role in (Role.OUTPUT, Role.SCATTER):
            refuse(self.number, each, "these are not all dimensions of the Func, each once, or it is an output")


def _as_loop(loop: NestLoop) -> Loop:
    return Loop(loop.name, loop.extent, min(loop.axes), loop.fixed)
