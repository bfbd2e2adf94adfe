"""LoopProgram to the algorithm half of a CUDA kernel's text, with the stages that a schedule may place.

The text is the CPU's but for three things. An axis that is cut into chunks is two Vars, `x1_e` within the chunk and
`x1_c` for the chunk's number, and `x1` is the expression over both. Loads and stores along it move words through Funcs
of their own. A reduction by a team is a partial result for each thread, then what the team makes of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import sympy

from halide_backend.codegen.cuda.axes import WORD, TiledAxes, var
from halide_backend.codegen.cuda.guards import Guards
from halide_backend.codegen.cuda.reduce import write_reduction
from halide_backend.codegen.cuda.scan_stages import beside_scans, write_scan
from halide_backend.codegen.cuda.scatter import write_scatter
from halide_backend.codegen.cuda.text import call_text, multiple_text, tuple_text
from halide_backend.codegen.index_text import index_text
from halide_backend.codegen.source import Algorithm
from halide_backend.codegen.value_text import value_text
from halide_backend.errors import Unsupported
from halide_backend.kernel_library.arguments import Input, Integer, Output, Size, known
from halide_backend.program.aliasing import old_values
from halide_backend.program.applications import without_applications
from halide_backend.program.checks import Sink, sinks_of_checks
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.flattening import flattened
from halide_backend.program.loop_program import Load, LoopProgram, Reduction, Scan, Store, Value
from halide_backend.program.operation_names import MATHEMATICS
from halide_backend.program.precision import constants, exact_values, rounded_indices
from halide_backend.program.store_layout import OutputLayout, output_layout
from halide_backend.program.strided_loads import strided_loads
from halide_backend.program.uses import sinks_of
from halide_backend.schedule.mapping.cache_hints import priority_of_loads
from halide_backend.schedule.mapping.cuda import tile
from halide_backend.schedule.mapping.division import Divisions
from halide_backend.schedule.mapping.registers import register_limit
from halide_backend.schedule.mapping.vector_access import WordAccess
from halide_backend.schedule.stage import Loop, Role, Stage, StageGraph
from halide_backend.schedule.tiling import Team, Tiling


def write_algorithm(program: LoopProgram) -> tuple[Algorithm, Tiling]:
    """Halide statements for `program`, and the tiling they are written for.

    Raises:
        Unsupported: something has no form on CUDA yet.
    """
    if any(old_values(program)):
        raise Unsupported("an old value of overwritten memory goes to several places in one CUDA kernel")
    program = flattened(without_applications(program))
    writer = Writer(program, tile(program))
    return writer.write(), writer.tiling


class Writer:
    def __init__(self, program: LoopProgram, tiling: Tiling) -> None:
        self.program = program
        self.tiling = tiling
        self.axes = TiledAxes(program, tiling)
        self.guards = Guards(self.axes)
        self.lines: list[str] = []
        self.aligned: list[str] = []  # buffers that are accessed in vectors
        self.stages: list[Stage] = []
        self.calls: dict[int, str] = {}  # value -> the Func that holds it
        self.loads: dict[int, str] = {}  # vector load -> the Func of its words
        self.known: dict[object, str] = {}  # what a Func of words reads, or a scan is made of -> the Func
        self.written: set[int] = set()
        self.counters: dict[str, int] = {}
        self.layouts = {store.buffer: output_layout(store, program) for store in program.stores}
        self.buffers = {b.name: b for b in (*program.inputs, *program.outputs)}
        self.words = WordAccess(program, tiling)
        self.constants = constants(program)
        self.indices = rounded_indices(program)
        self.divisions = Divisions(program, tiling, self.constants, exact_values(program))
        self.repeated = {
            operand for value in program.values if value.operation in MATHEMATICS for operand in value.operands
        }
        self.tiles = strided_loads(program, self.layouts) if tiling.team is Team.TILE else frozenset()
        self.team_made = self._team_made()
        self.checks = sinks_of_checks(program)
        self.sinks = sinks_of(program)

    # -- facts -------------------------------------------------------------------------------------------------

    def _team_made(self) -> set[int]:
        """Values that depend on what a team reduced."""
        found: set[int] = set()
        for position, value in enumerate(self.program.values):
            own = isinstance(value.attribute, Reduction) and self.tiling.team in (Team.REGISTERS, Team.BLOCK)
            if own or found.intersection(value.operands):
                found.add(position)
        return found

    # -- the whole ---------------------------------------------------------------------------------------------

    def write(self) -> Algorithm:
        program = self.program
        arguments = [Input(buffer.name, buffer.dtype, known(buffer.extent)) for buffer in program.inputs]
        sizes = [Integer(size.name) if size.data else Size(size.name) for size in program.sizes]
        self.lines += [f"{s.name} = memory.size(ARGUMENTS[{k}])" for k, s in enumerate(sizes, len(arguments))]
        self.lines += self.axes.definitions()
        for number, buffer in enumerate(program.inputs):
            loads = buffer.name in self.words.buffers
            if loads:
                self.aligned.append(buffer.name)
            kind = "words" if loads and ELEMENT[buffer.dtype][1] != 32 else "source"
            self.lines.append(f"{buffer.name} = memory.{kind}(ARGUMENTS[{number}])")
        outputs = tuple(self._output(store) for store in program.stores)
        graph = StageGraph(tuple(self.stages), tuple(axis.name for axis in program.row))
        priority, registers = priority_of_loads(program, self.tiling), register_limit(self.tiling)
        return Algorithm(
            tuple(self.lines), (*arguments, *sizes), outputs, graph, tuple(self.aligned), priority, registers
        )

    def declare(self, name: str) -> None:
        line = var(name)
        if line not in self.lines:
            self.lines.append(line)

    # -- names and loops ---------------------------------------------------------------------------------------

    def fresh(self, stem: str) -> str:
        number = self.counters.get(stem, 0)
        self.counters[stem] = number + 1
        return f"{stem}_{number}"

    def func(
        self, name: str, role: Role, loops: Sequence[Loop], text: str, calls: Iterable[str], **facts: object
    ) -> str:
        """Define Func `name` and its stage; returns the text of a call at its own Vars."""
        call = call_text(name, [loop.name for loop in loops])
        self.lines += [f'{name} = hl.Func("{name}")', f"{call} = {text}"]
        self.stages.append(Stage(name, role, tuple(loops), calls=tuple(calls), **facts))  # type: ignore[arg-type]
        return f"hl.Expr({call})"

    def calls_of(self, roots: Iterable[int]) -> list[str]:
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

    def reference(self, position: int) -> str:
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
            text = write_reduction(self, position, value, value.attribute)
        elif isinstance(value.attribute, Scan):
            text = write_scan(self, position, value, value.attribute)
        elif position in self.words.loads:
            text = self._words(position, value)
        else:
            loops = self.axes.loops(value.axes, team=position in self.team_made)
            text = value_text(self.program, value, [loop.name for loop in loops])
            if position in self.indices:
                # An index is cut to the size of its dimension: 32 bits give the same one, ten times faster.
                text = text.replace("'int64'", "'int32'")
            if position in self.constants:
                # Once, on the host.
                text = text.replace("ops.", "ops.portable.")
            text = self.divisions.text(position, text)
        self.lines.append(f"t{position} = {text}")
        self.written.add(position)
        if position in self.tiles:
            assert isinstance(value.attribute, Load)
            # In shared memory numbers lie as they do in memory, and are converted when they are read.
            raw = f"{value.attribute.buffer}[{index_text(value.attribute.index)}]"
            assert raw in text, text
            bits = ELEMENT[self.buffers[value.attribute.buffer].dtype][1]
            self._keep(position, value.attribute.buffer, Role.TILE, raw, bits=bits)
            self.lines.append(f"t{position} = {text.replace(raw, f't{position}')}")
            return
        if isinstance(value.attribute, Load) and self._is_held(position, value):
            self._keep(position, value.attribute.buffer, Role.STAGED_LOAD)
            return
        used_often = position in self.repeated and value.operation not in ("constant", "index", "load")
        if used_often and not isinstance(value.attribute, Reduction | Scan):
            self._keep(position, value.operation, Role.INLINE)

    def _is_held(self, position: int, value: Value) -> bool:
        """Whether a load by elements is worth registers: the row is read once, however often it is used."""
        along = self.tiling.team is Team.REGISTERS and not value.axes.isdisjoint(self.tiling.inner)
        return along and position not in self.words.loads and len(self.sinks[position]) > 1

    def _keep(self, position: int, stem: str, role: Role, text: str = "", **facts: object) -> None:
        """Make a Func of a value that is written already, or of the `text` that it is made from."""
        loops = self.axes.loops(self.program.values[position].axes, team=position in self.team_made)
        name = self.fresh(stem)
        read = self.func(name, role, loops, text or f"t{position}", self.calls_of([position]), **facts)
        self.calls[position] = name
        self.lines.append(f"t{position} = {read}")

    def _words(self, position: int, value: Value) -> str:
        """The words of a load as a Func, and the element among them as the value."""
        load = self.words.loads[position]
        dtype, rest = self.buffers[load.buffer].dtype, self.axes.loops(value.axes, without=load.along)
        number = multiple_text(f"{load.along}_e", load.step, load.skip)
        read = replace(load, step=1, skip=0), value.operands
        if read in self.known:
            self.loads[position] = name = self.known[read]
            return f"memory.element({dtype!r}, {name}, {number}, {tuple_text([loop.name for loop in rest])})"
        self.known[read] = name = self.fresh(load.buffer)
        # In units, because Halide looks for a factor to prove that an access is aligned.
        unit = load.unit
        at = index_text(sympy.expand(load.first / unit))
        if load.last is not None:
            # Where no element is inside all threads read one place, not what others will need.
            inside = self._any_inside(value, load.along)
            at = f"hl.select({inside}, hl.clamp(hl.likely({at}), 0, {load.last // unit}), 0)"
        at, words = at if unit == 1 else f"{at}*{unit}", Loop(WORD, load.words, WORD)
        self.declare(WORD)
        calls = self.calls_of(value.operands)
        gathers = any(self.program.values[operand].operation == "indirect" for operand in value.operands)
        self.func(name, Role.STAGED_LOAD, [words, *rest], f"{load.buffer}[{at} + {WORD}]", calls, gathers=gathers)
        self.loads[position] = name
        return f"memory.element({dtype!r}, {name}, {number}, {tuple_text([loop.name for loop in rest])})"

    def _any_inside(self, value: Value, along: str) -> str:
        """The condition under which some element of a piece of axis `along` of a masked load is inside."""
        mask = value.operands[0]
        name = self.fresh("inside")
        loops = self.axes.loops(self.program.values[mask].axes)
        self.func(name, Role.INLINE, loops, f"t{mask}", self.calls_of([mask]))
        element = f"{along}_e"
        chosen = range(self.tiling.cuts[along]) if any(loop.name == element for loop in loops) else range(1)
        return " | ".join(
            f"hl.Expr({call_text(name, [str(k) if loop.name == element else loop.name for loop in loops])})"
            for k in chosen
        )

    # -- outputs -----------------------------------------------------------------------------------------------

    def _output(self, store: Store) -> Output:
        layout = self.layouts[store.buffer]
        buffer = self.buffers[store.buffer]
        if layout.scattered:
            return write_scatter(self, store, layout, buffer.dtype)
        words = self.words.of_output(layout, buffer)
        variables, dims = self.axes.output(layout, without=self.tiling.chunk if words else "")
        for loop in variables:
            self.declare(loop.name)
        text, roots = self.stored_value(store)
        bits, shape = ELEMENT[buffer.dtype][1], dims
        calls = self.calls_of(roots)
        if words:
            text, calls = self._packed(store, text, roots, layout, words)
            variables = [Loop(WORD, words, WORD), *variables]
            shape = [(words, 1), *((extent, stride * bits // 32) for extent, stride in dims)]
            dims = [(self.tiling.elements, 1), *dims]
            self.aligned.append(store.buffer)
        else:
            stored = "portable.stored" if self.constants.issuperset(roots) else "stored"
            text = self.guards.stored(f"ops.{stored}({buffer.dtype!r}, {text})", layout, bits)
        bits = 32 if words else bits
        self.func(store.buffer, Role.OUTPUT, variables, text, calls, bits=bits, reads=self._reads())
        names = ", ".join(loop.name for loop in variables)
        self.lines.append(f"memory.target({store.buffer}, [{names}], {self.axes.dims_text(shape)})")
        told = tuple((known(extent), known(stride)) for extent, stride in dims)
        reach = known(1 + sum((extent - 1) * stride for extent, stride in layout.dims))
        return Output(store.buffer, buffer.dtype, told, layout.offset, reach if self.guards.partial(layout) else 0)

    def _reads(self) -> int:
        """Elements that one step of a thread loads one by one."""
        values = enumerate(self.program.values)
        loads = [v for p, v in values if isinstance(v.attribute, Load) and p not in self.words.loads]
        return sum(self.tiling.elements if self.tiling.chunk in value.axes else 1 for value in loads)

    def _packed(
        self, store: Store, text: str, roots: Sequence[int], layout: OutputLayout, words: int
    ) -> tuple[str, list[str]]:
        """Gather the values of a chunk into the words that are stored; the text of a word, and what it calls."""
        dtype = self.buffers[store.buffer].dtype
        self.declare(WORD)
        value, packed = f"{store.buffer}_value", f"{store.buffer}_words"
        axes = {self.tiling.chunk}.union(*(self.program.values[root].axes for root in roots))
        loops = self.axes.loops(axes, team=not self.team_made.isdisjoint(roots))
        self.func(value, Role.INLINE, loops, text, self.calls_of(roots))
        rest = [loop for loop in loops if loop.name != f"{self.tiling.chunk}_e"]
        body = f"memory.word({dtype!r}, {value}, {WORD}, {tuple_text([loop.name for loop in rest])})"
        body = self.guards.stored(body, layout, ELEMENT[dtype][1])
        return self.func(packed, Role.PACKED, [Loop(WORD, words, WORD), *rest], body, [value]), [packed]

    def stored_value(self, store: Store) -> tuple[str, list[int]]:
        """Text of the stored value and the values in it; it ends the kernel where a check fails."""
        root = store.value
        value, dtype = self.program.values[root], self.buffers[store.buffer].dtype
        if value.operation == "to_dtype" and value.dtype == dtype and dtype in ("bfloat16", "float16"):
            # Storing rounds; the value need not be rounded before.
            source = value.operands[0]
            root = source if self.program.values[source].dtype in ("float32", dtype) else root
        return self.checked(store.buffer, beside_scans(self, root), [root])

    def checked(self, sink: Sink, text: str, roots: list[int]) -> tuple[str, list[int]]:
        conditions = self.checks.get(sink, [])
        if not conditions:
            return text, roots
        bad = " | ".join(self.reference(condition) for condition in conditions)
        return f"memory.checked({text}, {bad})", [*roots, *conditions]
