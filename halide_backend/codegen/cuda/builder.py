"""CudaKernelBuilder: the algorithm half of a kernel's text on a GPU.

The text is the CPU's but for three things. An axis that is cut into chunks is two Vars, `x1_e` within the chunk and
`x1_c` for the chunk's number, and `x1` is the expression over both. Loads and stores along it move words through Funcs
of their own. A reduction by a thread group is a partial result for each thread, then what the group makes of these.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from halide_backend.codegen.algorithm import CUDA_LIBRARY
from halide_backend.codegen.call_text import call_text, multiple_text, tuple_text
from halide_backend.codegen.cuda.alternate_lines import write_alternate_lines
from halide_backend.codegen.cuda.axes import WORD, TiledAxes
from halide_backend.codegen.cuda.group_reduction import reduce_by_group, reduce_together_by_group
from halide_backend.codegen.cuda.guards import Guards
from halide_backend.codegen.cuda.line_scan import write_scan
from halide_backend.codegen.cuda.moments import write_moments
from halide_backend.codegen.cuda.scan_funcs import beside_scans
from halide_backend.codegen.cuda.scatter import write_scatter
from halide_backend.codegen.index_text import index_text
from halide_backend.codegen.kernel_builder import KernelBuilder
from halide_backend.codegen.reductions import reduce_alone, reduce_together_alone, write_reduction, write_tuple
from halide_backend.codegen.value_text import converted, value_text
from halide_backend.kernel_library.arguments import Output, known
from halide_backend.program.aliasing import old_values
from halide_backend.program.checks import Sink, sinks_of_checks
from halide_backend.program.dtypes import ELEMENT, NUMBERED
from halide_backend.program.index import expanded, values_of
from halide_backend.program.loop_program import Buffer, Load, LoopProgram, Number, Reduction, Scan, Store, Value
from halide_backend.program.moments import MOMENTS
from halide_backend.program.precision import constants, rounded_indices
from halide_backend.program.store_layout import OutputLayout
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.mapping.vector_access import VectorAccess
from halide_backend.schedule.stage import Loop, LoopKind, Role
from halide_backend.schedule.tiling import TilingKind

#: Elements of one tensor that a point reads, from which on they are a window.
_WINDOW = 3


class CudaKernelBuilder(KernelBuilder[TiledAxes]):
    library: ClassVar[str] = CUDA_LIBRARY

    def __init__(self, program: LoopProgram, mapping: Mapping) -> None:
        assert mapping.tiling is not None
        super().__init__(program, mapping, TiledAxes(program, mapping.tiling))
        self.tiling = mapping.tiling
        self.divisions = dict(mapping.divisions)
        self.guards = Guards(self.axes)
        self.words = VectorAccess(program, self.tiling)
        self.pairs = self.words.pairs
        self.constants = constants(program)
        self.indices = rounded_indices(program)
        self.checks = sinks_of_checks(program)
        self.old, _ = old_values(program)
        for position, value in enumerate(program.values):
            own = isinstance(value.attribute, Reduction) and self.tiling.shares_lines
            if own or self.reduced_by_group.intersection(value.operands):
                self.reduced_by_group.add(position)

    def source(self, buffer: Buffer) -> str:
        if buffer.name not in self.words.buffers:
            return "source"
        self.aligned.append(buffer.name)
        if buffer.name in self.pairs:
            return "pairs"
        return "source" if ELEMENT[buffer.dtype][1] == 32 else "words"

    def reads_once(self, operand: int) -> bool:
        """Where threads walk along what none of them holds, and a key and a place are no more than 64 bits: the places
        of 500 points of 64 x 699 columns took a second walk, which found a part of them in no cache."""
        return self.tiling.kind is not TilingKind.REGISTERS and self.program.values[operand].dtype in NUMBERED

    # -- values ------------------------------------------------------------------------------------------------

    def write_value(self, position: int) -> None:
        value = self.program.values[position]
        if isinstance(value.attribute, Reduction) and value.attribute.kind in MOMENTS:
            text = write_moments(self, position)
        elif group := next((group for group in self.mapping.tuples if position in group), ()):
            self._written.update(group)
            write_tuple(self, group)
            return
        elif isinstance(value.attribute, Reduction):
            operand = value.operands[0]
            text = write_reduction(self, position, *self.checked(position, f"t{operand}", [operand]))
        elif isinstance(value.attribute, Scan):
            text = write_scan(self, position, value)
        elif position in self.words.loads:
            text = self._words(position, value)
        else:
            text = self._operation(position, value)
        self.lines.append(f"t{position} = {text}")
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
        number = value.operation == "pow" and value.dtype == "float32" and position not in self.constants
        if number and (base := _number(self.program, value.operands[0])):
            return f"ops.power_of_number({base!r}, t{value.operands[1]})"
        loops = self.axes.loops(value.axes, group=position in self.reduced_by_group)
        if value.operation == "where" and self.tiling.computed:
            return self._chosen(value)
        # A constant is computed once, on the host.
        library = "ops.portable" if position in self.constants else "ops"
        variables, cases = [loop.name for loop in loops], not self.tiling.exchanges
        # Of a tile that Halide would compute in part, where a condition leaves some of it out, threads have no number.
        whole = Role.SHARED_TILE in self.roles.values()
        apart = isinstance(value.attribute, Load) and self._is_part(value.attribute, value.operands)
        return value_text(self.program, value, variables, library=library, cases=cases, whole=whole, apart=apart)

    def _is_part(self, load: Load, operands: Sequence[int]) -> bool:
        """Whether an element may be one of a tensor that another one follows, of which threads would else read some
        twice; known sizes they read in words. The elements of a window share their clamps (maxima of 3 x 3 floats,
        sizes dynamic, have 314 instructions with clamps, 378 without)."""
        beside = [v for v in self.program.values if isinstance(v.attribute, Load) and v.attribute.buffer == load.buffer]
        return bool(self.program.sizes) and len(beside) < _WINDOW and not any(map(self._waits, operands))

    def _waits(self, position: int) -> bool:
        """Whether a value is computed from memory or together with other threads, so that who needs it waits."""
        value = self.program.values[position]
        own = not isinstance(value.attribute, Load | Reduction | Scan) and position not in self.roles
        return not own or any(map(self._waits, value.operands))

    def _chosen(self, value: Value) -> str:
        """A choice, of which Halide does not know that it leaves out what threads reduce together: where it chooses
        twice by one condition, it takes the negation of something that is no truth value."""
        condition, *choices = value.operands
        texts = [f"ops.opaque(t{each})" if each in self.reduced_by_group else f"t{each}" for each in choices]
        return f"ops.where(t{condition}, {', '.join(texts)})"

    def _tile(self, position: int, value: Value) -> None:
        """Keep a transposed operand in shared memory, as it lies in memory, and convert it when it is read."""
        load = value.attribute
        assert isinstance(load, Load)
        dtype = self.buffers[load.buffer].dtype
        stored = f"{load.buffer}[{index_text(load.index)}]"
        self._keep(position, load.buffer, Role.SHARED_TILE, stored, bits=ELEMENT[dtype][1])
        self.lines.append(f"t{position} = {converted(value, f't{position}')}")

    def _keep(self, position: int, stem: str, role: Role, text: str = "", bits: int = 32) -> None:
        """Make a Func of a value that is written already, or of the `text` that it is made from."""
        loops = self.axes.loops(self.program.values[position].axes, group=position in self.reduced_by_group)
        name = self.unique_name(stem)
        read = self.func(name, role, loops, text or f"t{position}", [position], bits=bits)
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
        self.known[read] = name = self.unique_name(load.buffer)
        # In units, because Halide looks for a factor to prove that an access is aligned.
        unit = load.unit
        at = index_text(expanded(load.first / unit))
        word = WORD
        if load.last is not None:
            # Where no element is inside all threads read one place, not what others will need.
            inside = self._any_inside(value, load.along)
            if load.window:
                at, word = (
                    (f"({at} + {WORD})", "0") if unit == 1 else (f"({at} + {WORD} // {unit})", f"{WORD} % {unit}")
                )
            at = at if self.tiling.exchanges else f"hl.likely({at})"
            at = f"hl.select({inside}, hl.clamp({at}, 0, {load.last // unit}), 0)"
        words = _words(load.words)
        self.declare(WORD)
        gathers = any(self.program.values[operand].operation == "indirect" for operand in value.operands)
        if load.buffer in self.pairs:
            text = f"memory.half({load.buffer}[{at}], {WORD})"
        else:
            text = f"{load.buffer}[{at if unit == 1 else f'{at}*{unit}'} + {word}]"
        loops = [words, *rest]
        old = position in self.old
        self.func(name, Role.STAGED_LOAD, loops, text, value.operands, gathers=gathers, old=old)
        self.loads[position] = name
        return f"memory.element({dtype!r}, {name}, {number}, {tuple_text([loop.name for loop in rest])})"

    def _any_inside(self, value: Value, along: str) -> str:
        """The condition under which some element of a chunk along axis `along` of a masked load is inside."""
        mask = value.operands[0]
        name = self.unique_name("inside")
        loops = self.axes.loops(self.program.values[mask].axes)
        self.func(name, Role.INLINE, loops, f"t{mask}", [mask])
        element = f"{along}_e"
        chosen = range(self.tiling.cuts[along]) if any(loop.name == element for loop in loops) else range(1)
        return " | ".join(
            f"hl.Expr({call_text(name, [str(k) if loop.name == element else loop.name for loop in loops])})"
            for k in chosen
        )

    # -- reductions --------------------------------------------------------------------------------------------

    def encode(self, kind: str, operand: int, loops: Sequence[Loop], text: str, roots: Sequence[int]) -> str:
        name = self.unique_name(f"{kind}_operand")
        self.func(name, Role.INLINE, loops, f"reductions.encode({kind!r}, {text})", roots)
        return name

    def reduce(
        self, stem: str, kind: str, operand: str, loops: Sequence[Loop], reduction: Reduction, value: Value
    ) -> tuple[str, str]:
        if self.tiling.kind is TilingKind.THREAD:
            return reduce_alone(self, stem, kind, operand, loops, reduction, value)
        return reduce_by_group(self, stem, kind, operand, loops, value)

    def reduce_together(
        self, kinds: Sequence[str], operands: Sequence[str], loops: Sequence[Loop], value: Value
    ) -> tuple[list[str], str]:
        if self.tiling.kind is TilingKind.THREAD:
            return reduce_together_alone(self, kinds, operands, loops, value)
        return reduce_together_by_group(self, kinds, operands, loops, value)

    # -- outputs -----------------------------------------------------------------------------------------------

    def output(self, store: Store) -> Output:
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
        calls: list[str] = []
        width = 32
        if words:
            # Half of a stride that is an argument would be none.
            if words == 2 and not self.tiling.short and all(isinstance(stride, int) for _, stride in dims):
                words, width = 1, 64
            text, calls = self._packed(store, text, roots, layout, words, width)
            roots = []
            variables = [_words(words), *variables]
            shape = [(words, 1), *((extent, stride * bits // width) for extent, stride in dims)]
            dims = [(self.tiling.elements, 1), *dims]
            self.aligned.append(store.buffer)
        else:
            stored = "portable.stored" if self.constants.issuperset(roots) else "stored"
            text = self.guards.stored(f"ops.{stored}({buffer.dtype!r}, {text})", layout, bits)
        bits = width if words else bits
        self.func(store.buffer, Role.OUTPUT, variables, text, roots, calls=calls, bits=bits, reads=self._reads())
        names = ", ".join(loop.name for loop in variables)
        self.lines.append(f"memory.target({store.buffer}, [{names}], {self.axes.dims_text(shape)})")
        known_dims = tuple((known(extent), known(stride)) for extent, stride in dims)
        reach = known(1 + sum((extent - 1) * stride for extent, stride in layout.dims))
        return Output(
            store.buffer, buffer.dtype, known_dims, layout.offset, reach if self.guards.partial(layout) else 0
        )

    def _reads(self) -> int:
        """Elements that one step of a thread loads one by one."""
        values = enumerate(self.program.values)
        loads = [v for p, v in values if isinstance(v.attribute, Load) and p not in self.words.loads]
        return sum(self.tiling.elements if self.tiling.chunk in value.axes else 1 for value in loads)

    def _packed(
        self, store: Store, text: str, roots: Sequence[int], layout: OutputLayout, count: int, width: int
    ) -> tuple[str, list[str]]:
        """Gather the values of a chunk into words; the text of one of the `count` numbers of `width` bits that are
        stored, which is a word or two, and what it calls."""
        dtype = self.buffers[store.buffer].dtype
        self.declare(WORD)
        value, packed = f"{store.buffer}_value", f"{store.buffer}_words"
        axes = {self.tiling.chunk, *self.guards.beyond}.union(*(self.program.values[root].axes for root in roots))
        loops = self.axes.loops(axes, group=not self.reduced_by_group.isdisjoint(roots))
        rest = [loop for loop in loops if loop.name != f"{self.tiling.chunk}_e"]
        conditions: Sequence[int] = ()
        if self._copied(store, text, roots[0]):
            value, conditions = self.loads[roots[0]], roots[1:]
            words = f"hl.Expr({call_text(value, [WORD, *(loop.name for loop in rest)])})"
            body = text.replace(f"t{roots[0]}", words, 1)
        else:
            self.func(value, Role.INLINE, loops, text, roots)
            body = f"memory.word({dtype!r}, {value}, {WORD}, {tuple_text([loop.name for loop in rest])})"
        loops, bits = [_words(count * width // 32), *rest], ELEMENT[dtype][1]
        if width == 32:
            body = self.guards.stored(body, layout, bits)
            if self.tiling.alternate:
                return write_alternate_lines(self, self.tiling.inner[0], packed, loops, body, value), [packed]
            return self.func(packed, Role.PACKED, loops, body, conditions, calls=[value]), [packed]
        self.func(packed, Role.PACKED, loops, body, conditions, calls=[value])
        own = [loop.name for loop in rest]
        low, high = (f"hl.Expr({call_text(packed, [str(k), *own])})" for k in range(2))
        return self.guards.stored(f"memory.pair({low}, {high})", layout, bits), [packed]

    def _copied(self, store: Store, text: str, root: int) -> bool:
        """Whether what is stored are the words of a load as they are, whose elements need not be taken apart."""
        load, itself = self.words.loads.get(root), text.partition(",")[0].removeprefix("memory.checked(") == f"t{root}"
        if load is None or not itself or self.tiling.alternate:
            return False
        same = self.buffers[load.buffer].dtype == self.buffers[store.buffer].dtype
        return same and load.along == self.tiling.chunk and load.last is None and (load.step, load.skip) == (1, 0)

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


def _number(program: LoopProgram, position: int) -> float:
    """The number that a value is, as float32 has it, if it is finite, above 0 and not 1; else 0."""
    number = program.values[position].attribute
    if not isinstance(number, Number) or isinstance(number.value, bool):
        return 0.0
    found = ctypes.c_float(number.value).value
    return found if 0 < found < math.inf and found != 1 else 0.0


def _words(count: int) -> Loop:
    """The loop over the words of a chunk."""
    return Loop(WORD, count, WORD, kind=LoopKind.WORD)
