"""LoopProgram to the algorithm half of a CUDA kernel's text, with the stages that a schedule may place.

The text is the CPU's but for three things. An axis that is cut into chunks is two Vars, `x1_e` within the chunk and
`x1_c` for the chunk's number, and `x1` is the expression over both. Loads and stores along it move words through Funcs
of their own. A reduction by a thread group is a partial result for each thread, then what the group makes of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sympy

from halide_backend.codegen.algorithm import CUDA_LIBRARY, Algorithm
from halide_backend.codegen.cuda.axes import WORD
from halide_backend.codegen.cuda.guards import Guards
from halide_backend.codegen.cuda.kernel_builder import KernelBuilder
from halide_backend.codegen.cuda.reduce import write_reduction
from halide_backend.codegen.cuda.scan_stages import beside_scans, write_scan
from halide_backend.codegen.cuda.scatter import write_scatter
from halide_backend.codegen.cuda.text import call_text, multiple_text, tuple_text
from halide_backend.codegen.index_text import index_text
from halide_backend.codegen.value_text import converted, value_text
from halide_backend.kernel_library.arguments import Input, Integer, Output, Size, known
from halide_backend.program.checks import Sink, sinks_of_checks
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.index import values_of
from halide_backend.program.loop_program import Load, LoopProgram, Reduction, Scan, Store, Value
from halide_backend.program.precision import constants, rounded_indices
from halide_backend.program.store_layout import OutputLayout, output_layout
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.mapping.vector_access import VectorAccess
from halide_backend.schedule.stage import Loop, LoopKind, Role, StageGraph
from halide_backend.schedule.tiling import Tiling


def write_algorithm(program: LoopProgram, mapping: Mapping) -> Algorithm:
    """Halide statements for `program`, a prepared one, laid on a GPU as `mapping` says.

    Raises:
        Unsupported: something has no form on CUDA yet.
    """
    assert mapping.tiling is not None
    return _Writer(program, mapping, mapping.tiling).write()


class _Writer(KernelBuilder):
    def __init__(self, program: LoopProgram, mapping: Mapping, tiling: Tiling) -> None:
        super().__init__(program, tiling)
        self.mapping = mapping
        self.roles = mapping.roles
        self.divisions = dict(mapping.divisions)
        self.guards = Guards(self.axes)
        self.written: set[int] = set()
        self.layouts = {store.buffer: output_layout(store, program) for store in program.stores}
        self.buffers = {b.name: b for b in (*program.inputs, *program.outputs)}
        self.words = VectorAccess(program, tiling)
        self.constants = constants(program)
        self.indices = rounded_indices(program)
        self.checks = sinks_of_checks(program)

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
        graph = StageGraph(tuple(self.stages), tuple(axis.name for axis in program.outer))
        return Algorithm(
            tuple(self.lines),
            (*arguments, *sizes),
            outputs,
            graph,
            tuple(self.aligned),
            self.mapping.loads,
            self.mapping.registers,
            CUDA_LIBRARY,
        )

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
            operand = value.operands[0]
            checked, roots = self.checked(position, f"t{operand}", [operand])
            text = write_reduction(self, position, value, checked, roots)
        elif isinstance(value.attribute, Scan):
            text = write_scan(self, position, value)
        elif position in self.words.loads:
            text = self._words(position, value)
        else:
            text = self._operation(position, value)
        self.lines.append(f"t{position} = {text}")
        self.written.add(position)
        role = self.roles.get(position)
        if role is Role.SHARED_TILE:
            self._tile(position, value)
        elif role is not None:
            stem = value.attribute.buffer if isinstance(value.attribute, Load) else value.operation
            self._keep(position, stem, role)

    def _operation(self, position: int, value: Value) -> str:
        if position in self.divisions:
            return f"ops.{self.divisions[position]}({', '.join(f't{operand}' for operand in value.operands)})"
        if position in self.indices:
            # An index is cut to the size of its dimension: 32 bits give the same one, ten times faster.
            value = replace(value, dtype="int32")
        loops = self.axes.loops(value.axes, group=position in self.reduced_by_group)
        # A constant is computed once, on the host.
        library = "ops.portable" if position in self.constants else "ops"
        return value_text(self.program, value, [loop.name for loop in loops], library=library)

    def _tile(self, position: int, value: Value) -> None:
        """Keep a transposed operand in shared memory, as it lies in memory, and convert it when it is read."""
        load = value.attribute
        assert isinstance(load, Load)
        dtype = self.buffers[load.buffer].dtype
        stored = f"{load.buffer}[{index_text(load.index)}]"
        self._keep(position, load.buffer, Role.SHARED_TILE, stored, bits=ELEMENT[dtype][1])
        self.lines.append(f"t{position} = {converted(value, f't{position}')}")

    def _keep(self, position: int, stem: str, role: Role, text: str = "", **facts: object) -> None:
        """Make a Func of a value that is written already, or of the `text` that it is made from."""
        loops = self.axes.loops(self.program.values[position].axes, group=position in self.reduced_by_group)
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
        at, words = at if unit == 1 else f"{at}*{unit}", _words(load.words)
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
            text, roots = self.stored_value(store)
            for operand in values_of(store.index):
                self.reference(operand)
            return write_scatter(self, store, layout, text, roots)
        words = self.words.of_output(layout, buffer)
        variables, dims = self.axes.output(layout, without=self.tiling.chunk if words else "")
        for loop in variables:
            self.declare(loop.name)
        text, roots = self.stored_value(store)
        bits, shape = ELEMENT[buffer.dtype][1], dims
        calls = self.calls_of(roots)
        if words:
            text, calls = self._packed(store, text, roots, layout, words)
            variables = [_words(words), *variables]
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
        loops = self.axes.loops(axes, group=not self.reduced_by_group.isdisjoint(roots))
        self.func(value, Role.INLINE, loops, text, self.calls_of(roots))
        rest = [loop for loop in loops if loop.name != f"{self.tiling.chunk}_e"]
        body = f"memory.word({dtype!r}, {value}, {WORD}, {tuple_text([loop.name for loop in rest])})"
        body = self.guards.stored(body, layout, ELEMENT[dtype][1])
        return self.func(packed, Role.PACKED, [_words(words), *rest], body, [value]), [packed]

    def stored_value(self, store: Store) -> tuple[str, list[int]]:
        """Text of the stored value and the values in it; it ends the kernel where a check fails."""
        root = store.value
        value, dtype = self.program.values[root], self.buffers[store.buffer].dtype
        if value.operation == "to_dtype" and value.dtype == dtype and dtype in ("bfloat16", "float16"):
            # Storing rounds; the value need not be rounded before.
            source = value.operands[0]
            root = source if self.program.values[source].dtype in ("float32", dtype) else root
        self.reference(root)
        return self.checked(store.buffer, beside_scans(self.program, root), [root])

    def checked(self, sink: Sink, text: str, roots: list[int]) -> tuple[str, list[int]]:
        conditions = self.checks.get(sink, [])
        if not conditions:
            return text, roots
        bad = " | ".join(self.reference(condition) for condition in conditions)
        return f"memory.checked({text}, {bad})", [*roots, *conditions]


def _words(count: int) -> Loop:
    """The loop over the words of a chunk."""
    return Loop(WORD, count, WORD, kind=LoopKind.WORD)
