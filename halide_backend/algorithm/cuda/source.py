"""LoopProgram to the algorithm half of a CUDA kernel's text, with the stages that a schedule may place.

The text is the CPU's but for three things. An axis that is cut into chunks is two Vars, `x1_e` within the chunk and
`x1_c` for the chunk's number, and `x1` is the expression over both. Loads and stores along it move words through Funcs
of their own. A reduction by a team is a partial result for each thread, then what the team makes of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from halide_backend.algorithm.arguments import ELEMENT, Input, Output
from halide_backend.algorithm.cuda.access import first_word, words_of
from halide_backend.algorithm.cuda.tiling import tile
from halide_backend.algorithm.index_text import index_text, with_indirect
from halide_backend.algorithm.loop_program import Buffer, Load, LoopProgram, Reduction, Store, Value
from halide_backend.algorithm.operation_names import MATHEMATICS
from halide_backend.algorithm.placement import OutputLayout, output_layout
from halide_backend.algorithm.sharing import preserved_loads
from halide_backend.algorithm.source import Algorithm
from halide_backend.algorithm.value_text import value_text
from halide_backend.errors import Unsupported
from halide_backend.schedule.stage import Loop, Role, Stage, StageGraph
from halide_backend.schedule.tiling import WARP, Team, Tiling

#: The Var of a thread's number in its team, and of a step of a warp.
_THREAD, _STEP = "t", "u"

#: Element types with an addition in memory that is one instruction.
_ATOMIC = frozenset({"float32", "float64", "int32", "int64"})

#: The Var of a word of an output, and the axis that stands for the row of a kernel without one.
_WORD, _SINGLE = "k", "z"


def write_algorithm(program: LoopProgram) -> tuple[Algorithm, Tiling]:
    """Halide statements for `program`, and the tiling they are written for.

    Raises:
        Unsupported: something has no form on CUDA yet.
    """
    if preserved_loads(program):
        raise Unsupported("an old value of overwritten memory goes to several places in one CUDA kernel")
    writer = _Writer(program, tile(program))
    return writer.write(), writer.tiling


class _Writer:
    def __init__(self, program: LoopProgram, tiling: Tiling) -> None:
        self.program = program
        self.tiling = tiling
        self.axes = {axis.name: axis for axis in program.axes}
        self.lines: list[str] = []
        self.aligned: list[str] = []  # buffers that are accessed in vectors
        self.stages: list[Stage] = []
        self.calls: dict[int, str] = {}  # value -> the Func that holds it
        self.loads: dict[int, str] = {}  # vector load -> the Func of its words
        self.written: set[int] = set()
        self.counters: dict[str, int] = {}
        self.layouts = {store.buffer: output_layout(store, program) for store in program.stores}
        self.buffers = {b.name: b for b in (*program.inputs, *program.outputs)}
        self.vectors = self._vector_loads()
        self.repeated = {
            operand for value in program.values if value.operation in MATHEMATICS for operand in value.operands
        }
        self.team_made = self._team_made()
        self.checks = self._sinks_of_checks()

    # -- facts -------------------------------------------------------------------------------------------------

    def _vector_loads(self) -> set[int]:
        """Loads that go through words: those of buffers that nothing else reads, unless they consist of words."""
        found: set[int] = set()
        excluded: set[str] = set()
        for position, value in enumerate(self.program.values):
            load = value.attribute
            if isinstance(load, Load):
                if self._first_word(load, value) is not None:
                    found.add(position)
                elif ELEMENT[self.buffers[load.buffer].dtype][1] != 32:
                    excluded.add(load.buffer)
        return {k for k in found if self._load(k).buffer not in excluded}

    def _load(self, position: int) -> Load:
        load = self.program.values[position].attribute
        assert isinstance(load, Load)
        return load

    def _first_word(self, load: Load, value: Value) -> object:
        buffer = self.buffers[load.buffer]
        if not self.tiling.chunk or not buffer.aligned or (self._masked(value) and self._last_word(buffer) is None):
            return None
        return first_word(load.index, self.tiling.chunk, buffer.dtype, self.tiling.elements)

    def _masked(self, value: Value) -> bool:
        """Whether the load may run out of its buffer where what it loads is not used."""
        return any(self.program.values[operand].operation != "indirect" for operand in value.operands)

    def _last_word(self, buffer: Buffer) -> int | None:
        """The last word at which a chunk can begin; None if the buffer is not made of whole chunks.

        If it is, a chunk with any element inside lies inside as a whole, and clamping its first word changes no other.
        """
        assert isinstance(buffer.extent, int)
        if buffer.extent % self.tiling.elements:
            return None
        return words_of(buffer.dtype, buffer.extent) - words_of(buffer.dtype, self.tiling.elements)

    def _team_made(self) -> set[int]:
        """Values that depend on what a team reduced."""
        found: set[int] = set()
        for position, value in enumerate(self.program.values):
            own = isinstance(value.attribute, Reduction) and self.tiling.team is not Team.THREAD
            if own or found.intersection(value.operands):
                found.add(position)
        return found

    # -- the whole ---------------------------------------------------------------------------------------------

    def write(self) -> Algorithm:
        program = self.program
        self._write_axes()
        inputs = []
        for number, buffer in enumerate(program.inputs):
            assert isinstance(buffer.extent, int)
            loads = {k for k in self.vectors if self._load(k).buffer == buffer.name}
            inputs.append(Input(buffer.name, buffer.dtype, buffer.extent))
            if loads:
                self.aligned.append(buffer.name)
            kind = "words" if loads and ELEMENT[buffer.dtype][1] != 32 else "source"
            self.lines.append(f"{buffer.name} = memory.{kind}(ARGUMENTS[{number}])")
        outputs = tuple(self._output(store) for store in program.stores)
        graph = StageGraph(tuple(self.stages), tuple(axis.name for axis in program.row))
        return Algorithm(tuple(self.lines), tuple(inputs), outputs, graph, tuple(self.aligned))

    def _write_axes(self) -> None:
        tiling = self.tiling
        if tiling.team is not Team.THREAD:
            self._var(_THREAD)
        for name in sorted(self.axes, key=_axis_order):
            if name != tiling.chunk:
                self._var(name)
                continue
            self._var(f"{name}_e")
            if tiling.team is Team.WARP:
                self._var(_STEP)
                self.lines.append(f"{name}_c = {_STEP}*{WARP} + {_THREAD}")
            else:
                self._var(f"{name}_c")
            self.lines.append(f"{name} = {name}_c*{tiling.elements} + {name}_e")

    def _var(self, name: str) -> None:
        line = f'{name} = hl.Var("{name}")'
        if line not in self.lines:
            self.lines.append(line)

    # -- names and loops ---------------------------------------------------------------------------------------

    def _name(self, stem: str) -> str:
        number = self.counters.get(stem, 0)
        self.counters[stem] = number + 1
        return f"{stem}_{number}"

    def _loops(self, axes: Iterable[str], *, elements: bool = True, team: bool = False) -> list[Loop]:
        """The Vars of a Func over program axes, innermost first; `elements=False` leaves out that of the chunk.

        With `team` the value also depends on which lane of a warp looks at it.
        """
        tiling = self.tiling
        loops: list[Loop] = []
        lanes = [Loop(_THREAD, tiling.threads, _THREAD)]
        names = set(axes)
        for name in sorted(names, key=_axis_order, reverse=True):
            if name != tiling.chunk:
                loops.append(Loop(name, self.axes[name].hint, name))
                continue
            if elements:
                loops.append(Loop(f"{name}_e", tiling.elements, name))
            if tiling.team is Team.WARP:
                loops += [*lanes, Loop(_STEP, tiling.steps, _STEP)]
            else:
                loops.append(Loop(f"{name}_c", self.axes[name].hint // tiling.elements, name))
        if team and tiling.team is Team.WARP and tiling.chunk not in names:
            loops = lanes + loops
        return loops

    def _func(
        self, name: str, role: Role, loops: Sequence[Loop], text: str, calls: Iterable[str], **facts: object
    ) -> str:
        """Define Func `name` and its stage; returns the text of a call at its own Vars."""
        call = _call(name, [loop.name for loop in loops])
        self.lines += [f'{name} = hl.Func("{name}")', f"{call} = {text}"]
        self.stages.append(Stage(name, role, tuple(loops), calls=tuple(calls), **facts))  # type: ignore[arg-type]
        return f"hl.Expr({call})"

    def _calls(self, roots: Iterable[int]) -> list[str]:
        """The Funcs that an expression of the values `roots` calls."""
        found: dict[str, None] = {}
        stack, seen = list(roots), set()
        while stack:
            position = stack.pop()
            if position in seen:
                continue
            seen.add(position)
            if position in self.calls:
                found[self.calls[position]] = None
            else:
                if position in self.loads:
                    found[self.loads[position]] = None
                stack += self.program.values[position].operands
        return list(found)

    # -- values ------------------------------------------------------------------------------------------------

    def _reference(self, position: int) -> str:
        """Text of the value, after writing everything it needs."""
        stack = [(position, False)]
        while stack:
            current, expanded = stack.pop()
            if current in self.written:
                continue
            if expanded:
                self._write_value(current)
            else:
                stack.append((current, True))
                stack += [(operand, False) for operand in self.program.values[current].operands]
        return f"t{position}"

    def _write_value(self, position: int) -> None:
        value = self.program.values[position]
        if isinstance(value.attribute, Reduction):
            text = self._reduction(position, value, value.attribute)
        elif position in self.vectors:
            text = self._words(position, value)
        else:
            text = value_text(self.program, value)
            if text == " / ".join(f"t{operand}" for operand in value.operands):
                text = f"ops.truediv({', '.join(f't{operand}' for operand in value.operands)})"
        self.lines.append(f"t{position} = {text}")
        self.written.add(position)
        used_often = position in self.repeated and value.operation not in ("constant", "index", "load")
        if used_often and not isinstance(value.attribute, Reduction):
            loops = self._loops(value.axes, team=position in self.team_made)
            name = self._name(value.operation)
            calls = self._calls([position])
            read = self._func(name, Role.INLINE, loops, f"t{position}", calls)
            self.calls[position] = name
            self.lines.append(f"t{position} = {read}")

    def _words(self, position: int, value: Value) -> str:
        """The words of a load as a Func, and the element among them as the value."""
        load = self._load(position)
        dtype = self.buffers[load.buffer].dtype
        chunk, elements = self.tiling.chunk, self.tiling.elements
        start = first_word(load.index, chunk, dtype, elements)
        assert start is not None
        name = self._name(load.buffer)
        rest = self._loops(value.axes, elements=False)
        at = with_indirect(index_text(start), value.operands)
        if self._masked(value):
            at = f"hl.clamp(hl.likely({at}), 0, {self._last_word(self.buffers[load.buffer])})"
        words = Loop(_WORD, words_of(dtype, elements), _WORD)
        self._var(_WORD)
        self._func(
            name, Role.STAGED_LOAD, [words, *rest], f"{load.buffer}[{at} + {_WORD}]", self._calls(value.operands)
        )
        self.loads[position] = name
        return f"memory.element({dtype!r}, {name}, {chunk}_e, {_tuple([loop.name for loop in rest])})"

    # -- reductions --------------------------------------------------------------------------------------------

    def _reduction(self, position: int, value: Value, reduction: Reduction) -> str:
        kind = reduction.kind
        (operand,) = value.operands
        text, roots = self._checked(position, self._reference(operand), [operand])
        axes = {axis.name for axis in reduction.axes}.union(*(self.program.values[root].axes for root in roots))
        loops = self._loops(axes, team=not self.team_made.isdisjoint(roots))
        encoded = self._name(f"{kind}_operand")
        self._func(encoded, Role.INLINE, loops, f"reductions.encode({kind!r}, {text})", self._calls(roots))
        total, best = self._reduce(kind, kind, encoded, loops, reduction, value)
        self.calls[position] = best
        if kind not in ("argmax", "argmin"):
            return f"reductions.decode({kind!r}, t{operand}.type(), {total})"
        assert reduction.position is not None
        at = f"hl.cast(hl.Int(32), {index_text(reduction.position)})"
        candidate = self._name(f"{kind}_position")
        key = f"hl.Expr({_call(encoded, [loop.name for loop in loops])})"
        text = f"reductions.candidate({kind!r}, {key}, {total}, {at})"
        # The best key is a value of the team: in a warp every lane has its own copy.
        loops = self._loops(axes, team=True)
        self._func(candidate, Role.INLINE, loops, text, [encoded, best])
        first, self.calls[position] = self._reduce(f"{kind}_first", "min", candidate, loops, reduction, value)
        return f"ops.to_dtype('int32', {value.dtype!r}, {first})"

    def _reduce(
        self, stem: str, kind: str, operand: str, loops: Sequence[Loop], reduction: Reduction, value: Value
    ) -> tuple[str, str]:
        """Write the reduction of Func `operand`; returns the text of its result, and the Func that has it."""
        if self.tiling.team is Team.THREAD:
            return self._reduce_alone(stem, kind, operand, loops, reduction, value)
        tiling = self.tiling
        region = self._name("r")
        self.lines.append(f'{region} = hl.RDom([(0, {tiling.elements}), (0, {tiling.steps})], "{region}")')
        updates = (Loop(f"{region}$x", tiling.elements, "e"), Loop(f"{region}$y", tiling.steps, _STEP))
        places = self._places(region)
        kept = [Loop(_THREAD, tiling.threads, _THREAD), *self._loops(value.axes)]
        partial, names = self._name(stem), [loop.name for loop in kept]
        own = _call(partial, names)
        element = f"hl.Expr({_call(operand, [places.get(loop.name, loop.name) for loop in loops])})"
        start = f"reductions.initial({kind!r}, {element})"
        if tiling.ragged:
            element = f"hl.select({region}_c < {tiling.chunks}, {element}, {start})"
        self.lines += [
            f'{partial} = hl.Func("{partial}")',
            f"{own} = {start}",
            f"{own} = reductions.combine({kind!r}, hl.Expr({own}), {element})",
        ]
        self.stages.append(
            Stage(partial, Role.REDUCTION, tuple(kept), calls=(operand,), updates=updates, operator=kind)
        )
        warp = f"{partial}_warp"
        read = self._func(warp, Role.WARP, kept, f"reductions.across_warp({kind!r}, hl.Expr({own}))", [partial])
        if tiling.team is Team.BLOCK:
            read = f"reductions.across_block({kind!r}, {warp}, {tiling.threads}, {_tuple(names[1:])})"
        return read, warp

    def _places(self, region: str) -> dict[str, str]:
        """Where a step of a thread's share lies: the text for every Var of the row's chunks."""
        tiling = self.tiling
        if tiling.team is Team.WARP:
            return {f"{tiling.chunk}_e": f"{region}[0]", _STEP: f"{region}[1]"}
        number = f"{region}_c"
        self.lines.append(f"{number} = {region}[1]*{tiling.threads} + {_THREAD}")
        if tiling.ragged:
            self.lines.append(f"{region}_i = hl.min({number}, {tiling.chunks - 1})")
            number = f"{region}_i"
        digits = []
        for name in tiling.inner:
            cut = name == tiling.chunk
            digits.append((f"{name}_c" if cut else name, self.axes[name].hint // (tiling.elements if cut else 1)))
        return {f"{tiling.chunk}_e": f"{region}[0]", **_digits(number, digits)}

    def _reduce_alone(
        self, stem: str, kind: str, operand: str, loops: Sequence[Loop], reduction: Reduction, value: Value
    ) -> tuple[str, str]:
        names = sorted((axis.name for axis in reduction.axes), key=_axis_order, reverse=True)
        if len(names) > 4:
            raise Unsupported(f"a reduction over {len(names)} separate loops")
        region = self._name("r")
        extents = ", ".join(f"(0, {self.axes[name].hint})" for name in names)
        self.lines.append(f'{region} = hl.RDom([{extents}], "{region}")')
        places = {name: f"{region}[{k}]" for k, name in enumerate(names)}
        updates = tuple(Loop(f"{region}${'xyzw'[k]}", self.axes[name].hint, name) for k, name in enumerate(names))
        kept = self._loops(value.axes)
        func = self._name(stem)
        own = _call(func, [loop.name for loop in kept])
        element = f"hl.Expr({_call(operand, [places.get(loop.name, loop.name) for loop in loops])})"
        self.lines += [
            f'{func} = hl.Func("{func}")',
            f"{own} = reductions.initial({kind!r}, {element})",
            f"{own} = reductions.combine({kind!r}, hl.Expr({own}), {element})",
        ]
        self.stages.append(Stage(func, Role.REDUCTION, tuple(kept), calls=(operand,), updates=updates, operator=kind))
        return f"hl.Expr({own})", func

    # -- outputs -----------------------------------------------------------------------------------------------

    def _output(self, store: Store) -> Output:
        layout = self.layouts[store.buffer]
        buffer = self.buffers[store.buffer]
        if layout.scattered:
            return self._scatter(store, layout, buffer.dtype)
        words = self._output_words(layout, buffer.dtype) if buffer.aligned else 0
        variables, dims = self._output_loops(layout, elements=not words)
        text, roots = self._stored_value(store)
        bits, shape = ELEMENT[buffer.dtype][1], dims
        calls = self._calls(roots)
        if words:
            text, calls = self._packed(store, text, roots, words)
            variables = [Loop(_WORD, words, _WORD), *variables]
            shape = [(words, 1), *((extent, stride * bits // 32) for extent, stride in dims)]
            dims = [(self.tiling.elements, 1), *dims]
            self.aligned.append(store.buffer)
        else:
            text = f"ops.stored({buffer.dtype!r}, {text})"
        self._func(store.buffer, Role.OUTPUT, variables, text, calls, bits=32 if words else bits)
        names = ", ".join(loop.name for loop in variables)
        self.lines.append(f"memory.target({store.buffer}, [{names}], {shape})")
        return Output(store.buffer, buffer.dtype, tuple(dims), layout.offset)

    def _output_loops(self, layout: OutputLayout, *, elements: bool) -> tuple[list[Loop], list[tuple[int, int]]]:
        """The Vars of an output and, one for each, its (extent, stride) in elements."""
        tiling = self.tiling
        loops: list[Loop] = []
        dims: list[tuple[int, int]] = []
        for name, (_, stride) in zip(layout.variables, layout.dims):
            assert isinstance(stride, int)
            for loop in self._loops([name], elements=elements):
                loops.append(loop)
                dims.append((loop.extent, stride * self._step(loop)))
        if tiling.team is not Team.THREAD and not set(tiling.inner) & set(layout.variables):
            # All threads of the team write the one value.
            loops.insert(0, Loop(_THREAD, tiling.threads, _THREAD))
            dims.insert(0, (tiling.threads, 0))
        if not any(loop.axis in tiling.row for loop in loops):
            self._var(_SINGLE)
            loops.append(Loop(_SINGLE, 1, _SINGLE))
            dims.append((1, 1))
        return loops, dims

    def _step(self, loop: Loop) -> int:
        """Elements between two points of a loop along the chunked axis."""
        if loop.name == f"{self.tiling.chunk}_c":
            return self.tiling.elements
        if self.tiling.team is Team.WARP and loop.name in (_THREAD, _STEP):
            return self.tiling.elements * (WARP if loop.name == _STEP else 1)
        return 1

    def _output_words(self, layout: OutputLayout, dtype: str) -> int:
        """Words of one chunk of the output, 0 if it is not stored in words."""
        tiling = self.tiling
        words = words_of(dtype, tiling.elements) if tiling.chunk in layout.variables else 0
        bits = ELEMENT[dtype][1]
        step = min(words * 32, 128)
        for name, (_, stride) in zip(layout.variables, layout.dims):
            assert isinstance(stride, int)
            if name == tiling.chunk:
                if stride != 1:
                    return 0
            elif words and stride * bits % step:
                return 0
        return words if words and layout.offset * bits % step == 0 else 0

    def _packed(self, store: Store, text: str, roots: Sequence[int], words: int) -> tuple[str, list[str]]:
        """Gather the values of a chunk into the words that are stored; the text of a word, and what it calls."""
        dtype = self.buffers[store.buffer].dtype
        self._var(_WORD)
        value, packed = f"{store.buffer}_value", f"{store.buffer}_words"
        axes = {self.tiling.chunk}.union(*(self.program.values[root].axes for root in roots))
        loops = self._loops(axes, team=not self.team_made.isdisjoint(roots))
        self._func(value, Role.INLINE, loops, text, self._calls(roots))
        rest = [loop for loop in loops if loop.name != f"{self.tiling.chunk}_e"]
        body = f"memory.word({dtype!r}, {value}, {_WORD}, {_tuple([loop.name for loop in rest])})"
        return self._func(packed, Role.PACKED, [Loop(_WORD, words, _WORD), *rest], body, [value]), [packed]

    def _scatter(self, store: Store, layout: OutputLayout, dtype: str) -> Output:
        """An update at computed positions, one step of a single loop for each point; its steps run in any order."""
        if store.mode == "atomic_add" and dtype not in _ATOMIC:
            raise Unsupported(f"an atomic addition of {dtype} on CUDA")
        text, roots = self._stored_value(store)
        position = layout.position
        assert position is not None
        operands = [int(symbol.name[1:]) for symbol in position.free_symbols if symbol.name.startswith("j")]
        for operand in operands:
            self._reference(operand)
        names = [axis.name for axis in store.nest.axes]
        loops = self._loops(names)
        what, where = self._name("scatter_value"), self._name("scatter_position")
        self._func(what, Role.INLINE, loops, text, self._calls(roots))
        at = with_indirect(index_text(position), operands)
        self._func(where, Role.INLINE, loops, f"ops.position('int32', {at})", self._calls(operands))
        region = self._name("r")
        points = math.prod(self.axes[name].hint for name in names)
        self.lines.append(f'{region} = hl.RDom([(0, {points})], "{region}")')
        places = _digits(f"{region}[0]", [(name, self.axes[name].hint) for name in names])
        arguments = [places[loop.name] for loop in loops]
        for name in layout.variables:
            self._var(name)
        target = [places.get(name, f"hl.Expr({_call(where, arguments)})") for name in layout.variables]
        element, new = _call(store.buffer, target), f"hl.Expr({_call(what, arguments)})"
        stored = f"ops.stored({dtype!r}, {new})"
        if store.mode == "atomic_add":
            stored = f"hl.Expr({element}) + {new}"
        self.lines += [
            f'{store.buffer} = hl.Func("{store.buffer}")',
            f"{_call(store.buffer, layout.variables)} = hl.undef(memory.STORAGE[{dtype!r}])",
            f"{element} = {stored}",
            f"memory.target({store.buffer}, [{', '.join(layout.variables)}], {list(layout.dims)})",
        ]
        updates = (Loop(f"{region}$x", points, region),)
        pure = tuple(Loop(name, int(extent), name) for name, (extent, _) in zip(layout.variables, layout.dims))
        operator = "sum" if store.mode == "atomic_add" else ""
        self.stages.append(
            Stage(store.buffer, Role.SCATTER, pure, calls=(what, where), updates=updates, operator=operator)
        )
        known = tuple((int(extent), int(stride)) for extent, stride in layout.dims)
        return Output(store.buffer, dtype, known, layout.offset)

    def _stored_value(self, store: Store) -> tuple[str, list[int]]:
        """Text of the stored value and the values in it; it ends the kernel where a check fails."""
        text = self._reference(store.value)
        return self._checked(store.buffer, text, [store.value])

    def _checked(self, sink: str | int, text: str, roots: list[int]) -> tuple[str, list[int]]:
        conditions = self.checks.get(sink, [])
        if not conditions:
            return text, roots
        bad = " | ".join(self._reference(condition) for condition in conditions)
        return f"memory.checked({text}, {bad})", [*roots, *conditions]

    def _sinks_of_checks(self) -> dict[str | int, list[int]]:
        """Store (by its buffer) or reduction (by its value) -> conditions that hold over its loops.

        Raises:
            Unsupported: a condition over other loops than all of these.
        """
        found: dict[str | int, list[int]] = {}
        for check in self.program.checks:
            axes = self.program.values[check.condition].axes
            sinks: list[str | int] = [s.buffer for s in self.program.stores if axes <= {a.name for a in s.nest.axes}]
            for position, value in enumerate(self.program.values):
                if isinstance(value.attribute, Reduction):
                    over = value.axes | {axis.name for axis in value.attribute.axes}
                    sinks += [position] if axes <= over and check.condition < position else []
            if not sinks:
                raise Unsupported("a check over loops that nothing else runs over on CUDA")
            found.setdefault(sinks[0], []).append(check.condition)
        return found


def _digits(number: str, digits: Sequence[tuple[str, int]]) -> dict[str, str]:
    """Texts of the coordinates behind a flat number; `digits` are (name, extent) pairs, outermost first."""
    places: dict[str, str] = {}
    divisor = 1
    for name, extent in reversed(digits):
        quotient = number if divisor == 1 else f"({number} // {divisor})"
        places[name] = quotient if name == digits[0][0] else f"{quotient} % {extent}"
        divisor *= extent
    return places


def _call(func: str, arguments: Sequence[str]) -> str:
    return f"{func}[{', '.join(arguments)}]" if arguments else f"{func}[()]"


def _tuple(items: Sequence[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _axis_order(name: str) -> int:
    return int(name[1:])
