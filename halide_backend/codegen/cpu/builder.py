"""CpuKernelBuilder: the algorithm half of a kernel's text on a CPU."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import sympy

from halide_backend.codegen.algorithm import CPU_LIBRARY
from halide_backend.codegen.axes import Axes, inner_first
from halide_backend.codegen.call_text import call_text
from halide_backend.codegen.cpu.bfloat16_text import exact_text, stored_text
from halide_backend.codegen.cpu.checks import write_status
from halide_backend.codegen.cpu.quotient_text import division_text, product_text
from halide_backend.codegen.cpu.repeated_calls import repeats_calls
from halide_backend.codegen.cpu.scan import write_scan
from halide_backend.codegen.cpu.scatter import read_what_is_stored, write_scatter
from halide_backend.codegen.cpu.turned_tiles import turned_tiles
from halide_backend.codegen.index_text import index_text
from halide_backend.codegen.kernel_builder import KernelBuilder
from halide_backend.codegen.reductions import reduce_alone, reduce_together_alone, write_reduction, write_tuple
from halide_backend.codegen.value_text import converted, element_text, value_text
from halide_backend.kernel_library.arguments import Output, Status, known
from halide_backend.program.aliasing import replaces_operand
from halide_backend.program.bfloat16_values import bfloat16_values
from halide_backend.program.dtypes import ELEMENT, NARROW_FLOATS
from halide_backend.program.extents import is_multiple
from halide_backend.program.index import ValueSymbol, expanded
from halide_backend.program.loop_program import Apply, Buffer, Extent, Load, LoopProgram, Reduction, Scan, Store, Value
from halide_backend.program.store_layout import OutputLayout, with_rows_apart
from halide_backend.schedule.mapping.chunks import contiguous_axis
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.mapping.materialise import MOST_LANES, values_of_sums
from halide_backend.schedule.mapping.transposition import Transposition, is_turned
from halide_backend.schedule.stage import Loop, Role

#: Bits of a line of a CPU's caches.
_LINE = 512


class CpuKernelBuilder(KernelBuilder[Axes]):
    library: ClassVar[str] = CPU_LIBRARY

    def __init__(self, program: LoopProgram, mapping: Mapping) -> None:
        super().__init__(program, mapping, Axes(program))
        self.layouts = {store.buffer: with_rows_apart(store, program) for store in program.stores}
        self.transposition = mapping.transposition
        self.bfloat16 = bfloat16_values(program)

    @property
    def clamped(self) -> tuple[str, ...]:
        turned = self.transposition
        if turned is None:
            return tuple(sorted(self._columns_of_functions | self._columns_kept | self._rows_of_values))
        if turned.reduced != "rows" or is_multiple(self.axes.extents[turned.across], turned.side):
            return ()
        return (turned.across,)

    @cached_property
    def _columns_of_functions(self) -> frozenset[str]:
        """The innermost axes of values that are read at other rows, if they are of computed length: such rows are
        stored, and whole vectors of them, without a guard in the last one."""
        values = self.program.values
        applied = [(value, value.attribute) for value in values if isinstance(value.attribute, Apply)]
        moved = {axis for _, application in applied for axis, _ in application.at}
        columns = {name for value, _ in applied for name in inner_first(values[value.operands[0]].axes)[:1]}
        return frozenset(axis for axis in columns - moved if not isinstance(self.axes.extents[axis], int))

    @cached_property
    def _columns_kept(self) -> frozenset[str]:
        """The axis of vectors of values that several results of computed length share, or that are read before these
        overwrite them: whole vectors are, since Halide does not see that the results need one at a time."""
        several = len(self.program.stores) > 1 and not self.mapping.joined
        reduced = any(isinstance(value.attribute, Reduction | Scan) for value in self.program.values)
        if not several or reduced or self._columns_of_functions or not self.roles:
            return frozenset()
        along = contiguous_axis(self.program)
        return frozenset({along} if not isinstance(self.axes.extents.get(along, 0), int) else ())

    @cached_property
    def _rows_of_values(self) -> frozenset[str]:
        """The axis of rows if what is made of the result of each is stored, and their number may be no multiple of a
        vector's: those of whole vectors are reduced, without a guard in the last one."""
        rows = self.program.outer[-1:]
        axes = {axis.name for axis in self.program.outer}
        of_rows = [p for p, role in self.roles.items() if role is Role.SHARED and self.program.values[p].axes == axes]
        whole = all(is_multiple(axis.extent, MOST_LANES) for axis in rows)
        return frozenset(() if whole or not values_of_sums(self.program).intersection(of_rows) else {rows[0].name})

    # -- values ------------------------------------------------------------------------------------------------

    def write_value(self, position: int) -> None:
        value = self.program.values[position]
        role = self.roles.get(position)
        match value.attribute:
            case Load() if role is Role.STAGED_LOAD:
                memory = value.attribute.buffer
                text = element_text(self.program, value, value.attribute)
                element = self._transposed(position, memory, text, ELEMENT[self.buffers[memory].dtype][1])
                self.lines.append(f"t{position} = {converted(value, element)}")
                return
            case Reduction() if group := next((group for group in self.mapping.tuples if position in group), ()):
                self._written.update(group)
                write_tuple(self, group)
                return
            case Reduction():
                (operand,) = value.operands
                text = self._within(write_reduction(self, position, f"t{operand}", [operand]))
            case Scan():
                text = write_scan(self, position, value, value.attribute)
            case Apply():
                text = self._applied(value, value.attribute)
            case Load():
                element = element_text(self.program, value, value.attribute, by_stride=True)
                text = self._in_rows(converted(value, element))
            case _:
                exact = exact_text(self.program, value, self.bfloat16) or product_text(self.program, value)
                # A tile is stored where all of it lies, of which Halide would leave out what a condition does not need:
                # `x.tril().t()` wrote beyond its memory.
                whole = self.transposition is not None
                plain = value_text(self.program, value, sorted(value.axes), whole=whole)
                text = exact or division_text(self.program, value) or plain
        self.lines.append(f"t{position} = {text}")
        if role is Role.STAGED_LOAD:
            element = self._transposed(position, value.operation, f"t{position}", self._bits(position))
            self.lines.append(f"t{position} = {element}")
        elif role is not None:
            stem = value.attribute.buffer if isinstance(value.attribute, Load) else value.operation
            name, loops = self.unique_name(stem), self.axes.loops(value.axes)
            read = self.func(name, role, loops, f"t{position}", [position], bits=self._bits(position))
            self.calls[position] = name
            self.lines.append(f"t{position} = {self._within(read)}")

    def _bits(self, position: int) -> int:
        """Bits of the value as a Func holds it: the low precisions are computed in float32."""
        dtype = self.program.values[position].dtype
        return 32 if dtype in NARROW_FLOATS else ELEMENT[dtype][1]

    @cached_property
    def _cut_tiles_repeat_calls(self) -> bool:
        """Whether results are turned in tiles that reach beyond the ends of their lines, and name a call twice."""
        turned = self.transposition
        if turned is None or not turned.results or is_multiple(self.axes.extents[turned.across], turned.side):
            return False
        return repeats_calls(self.program, self.roles)

    def _within(self, text: str) -> str:
        """The text of a call of a Func, of which turned results need no point beyond the end of their lines.

        Halide sees the condition of a tile's last line unless what is stored has the call in two places, as a clamp and
        a rounding to 16 bits have: these become one in front of the condition (`common_subexpression_elimination` of
        its bounds inference), and for the bounds of what is called it takes a whole tile. A reduction then reads beyond
        the end of memory. Everywhere, the promise would take up to twice the time: `x - x.mean(1)` of 16 x 64 x 197.
        """
        turned = self.transposition
        if turned is None or not self._cut_tiles_repeat_calls:
            return text
        last = index_text(expanded(sympy.sympify(self.axes.extents[turned.across]) - 1))
        inside = f"hl.unsafe_promise_clamped({turned.across}, 0, {last})"
        return re.sub(rf"\b{turned.across}\b", inside, text)

    def _in_rows(self, text: str) -> str:
        """The text of a load, which reads what lies at the end of an axis where tiles or vectors reach beyond it."""
        for axis in self.clamped:
            last = index_text(expanded(sympy.sympify(self.axes.extents[axis]) - 1))
            place = axis if self.transposition or axis in self._rows_of_values else f"hl.likely({axis})"
            text = re.sub(rf"\b{axis}\b", f"hl.min({place}, {last})", text)
        return text

    def _transposed(self, position: int, stem: str, text: str, bits: int) -> str:
        """The element of a transposed operand, out of a tile that is turned in registers."""
        loops = self.axes.loops(self.program.values[position].axes)
        source = self.unique_name(stem)
        self.func(source, Role.INLINE, loops, text, [position])
        assert self.transposition is not None
        self.calls[position], text = self._turned(source, loops, bits, self.transposition)
        return text

    def _turned(self, source: str, loops: Sequence[Loop], bits: int, turned: Transposition) -> tuple[str, str]:
        """The last of the Funcs that turn tiles of Func `source`, and the text of its element."""
        extents = index_text(self.axes.extents[turned.column]), index_text(self.axes.extents[turned.across])
        reduced = (v.attribute.axes for v in self.program.values if isinstance(v.attribute, Reduction))
        computed = any(not isinstance(axis.extent, int) for axes in reduced for axis in axes)
        tiles = turned_tiles(source, loops, turned, extents, bits, beside_others=computed)
        self.lines.append(tiles.line)
        self.stages += tiles.stages
        return tiles.last, tiles.element

    def _applied(self, value: Value, application: Apply) -> str:
        """The operand's Func, called at other coordinates than its own."""
        operand = value.operands[0]
        axes = self.program.values[operand].axes
        if operand not in self.calls or isinstance(self.program.values[operand].attribute, Reduction):
            name = self.unique_name("apply_operand")
            self.func(name, Role.INLINE, self.axes.loops(axes), f"t{operand}", [operand])
            self.calls[operand] = name
        place = next(k for k, stage in enumerate(self.stages) if stage.name == self.calls[operand])
        shifted = dict.fromkeys((*self.stages[place].shifted, *(axis for axis, _ in application.at)))
        self.stages[place] = replace(self.stages[place], shifted=tuple(shifted))
        at = {axis: index_text(index) for axis, index in application.at}
        return f"hl.Expr({call_text(self.calls[operand], [at.get(axis, axis) for axis in inner_first(axes)])})"

    # -- reductions --------------------------------------------------------------------------------------------

    def rdom(self, axes: Iterable[str]) -> tuple[str, tuple[Loop, ...], dict[str, str]]:
        region, loops, places = super().rdom(axes)
        if narrow := self.mapping.narrow:
            self.lines.append(f"{region}.where({narrow} < {index_text(self.axes.extents[narrow])})")
        return region, loops, places

    def encode(self, kind: str, operand: int, loops: Sequence[Loop], text: str, roots: Sequence[int]) -> str:
        value = self.program.values[operand]
        plain = kind in ("sum", "prod") and value.dtype.startswith(("float", "bfloat"))
        # A reduction's own Func holds encoded values, order keys for example; one of tiles has other arguments.
        other = isinstance(value.attribute, Reduction) or self.roles.get(operand) is Role.STAGED_LOAD
        if plain and not other and operand in self.calls and {loop.axis for loop in loops} == value.axes:
            return self.calls[operand]
        name = self.unique_name(f"{kind}_operand")
        encoded = text if plain else f"reductions.encode({kind!r}, {text})"
        self.func(name, Role.INLINE, loops, encoded, roots, bits=self._bits(operand))
        return name

    def reduce(
        self, stem: str, kind: str, operand: str, loops: Sequence[Loop], reduction: Reduction, value: Value
    ) -> tuple[str, str]:
        return reduce_alone(self, stem, kind, operand, loops, reduction, value)

    def reduce_together(
        self, kinds: Sequence[str], operands: Sequence[str], loops: Sequence[Loop], value: Value
    ) -> tuple[list[str], str]:
        return reduce_together_alone(self, kinds, operands, loops, value)

    # -- outputs -----------------------------------------------------------------------------------------------

    def outputs(self) -> list[Output]:
        stores = self.program.stores
        plain = [store for store in stores if not self.layouts[store.buffer].scattered]
        if len(plain) < len(stores):
            outputs = {store.buffer: self.output(store) for store in plain}
            for store in plain:
                buffer = self.buffers[store.buffer]
                if not buffer.mutated:
                    read_what_is_stored(self, store, self.layouts[store.buffer], buffer.dtype)
            outputs |= {store.buffer: self.output(store) for store in stores if store not in plain}
            return [outputs[store.buffer] for store in stores]
        if not self.mapping.joined:
            return super().outputs()
        name, layout = stores[0].buffer, self.layouts[stores[0].buffer]
        elements = [self._element(store) for store in stores]
        self.func(
            name,
            Role.OUTPUT,
            [self.axes.loop(variable, variable) for variable in layout.variables],
            f"hl.Tuple([{', '.join(elements)}])",
            [store.value for store in stores],
            bits=max(ELEMENT[self.buffers[store.buffer].dtype][1] for store in stores),
            replaces=any(replaces_operand(store, self.program) for store in stores),
            values=len(stores),
        )
        for store in stores:
            self._count_store(self.layouts[store.buffer])
        return [self._target(store, name, number) for number, store in enumerate(stores)]

    def output(self, store: Store) -> Output:
        layout = self.layouts[store.buffer]
        if layout.scattered:
            dtype, bits = self.buffers[store.buffer].dtype, self._bits(store.value)
            write_scatter(self, store, layout, dtype, self._element(store), bits)
        else:
            self._plain_store(store, layout)
        return self._target(store, store.buffer)

    def _target(self, store: Store, func: str, element: int = 0) -> Output:
        """Write where the `element` of Func `func`, the result that is stored, lies; returns the kernel's argument."""
        layout = self.layouts[store.buffer]
        variables = ", ".join(layout.variables)
        shape = ", ".join(f"({index_text(e)}, {self._stride(s)})" for e, s in layout.dims)
        which = f", {element}" if element else ""
        self.lines.append(f"memory.target({func}, [{variables}], [{shape}]{which})")
        dims = tuple((known(extent), known(stride)) for extent, stride in layout.dims)
        return Output(store.buffer, self.buffers[store.buffer].dtype, dims, layout.offset)

    def _element(self, store: Store) -> str:
        """Text of what is stored."""
        dtype = self.buffers[store.buffer].dtype
        return stored_text(dtype, self.reference(store.value), exact=store.value in self.bfloat16)

    def _plain_store(self, store: Store, layout: OutputLayout) -> None:
        """The output as it is computed, or in turned tiles."""
        text, dtype = self._element(store), self.buffers[store.buffer].dtype
        loops = [self.axes.loop(name, name) for name in layout.variables]
        bits, roots, calls = ELEMENT[dtype][1], [store.value], list[str]()
        if (turned := self._turned_result(layout)) is not None:
            source = self.unique_name(f"{store.buffer}_value")
            self.func(source, Role.INLINE, loops, text, roots, bits=bits)
            *calls, text = self._turned(source, loops, bits, turned)
            roots = []
        self.func(
            store.buffer,
            Role.OUTPUT,
            loops,
            text,
            roots,
            calls=calls,
            bits=bits,
            overwrites=self.buffers[store.buffer].mutated,
            replaces=replaces_operand(store, self.program),
        )
        self._count_store(layout)

    def _turned_result(self, layout: OutputLayout) -> Transposition | None:
        """How the result that is stored with this layout is turned, None if it is not."""
        turned = self.transposition
        if turned is None or turned.column not in layout.variables:
            return None
        if turned.results:
            return turned
        if turned.reduced == "blocks" and is_turned(layout, turned.across, turned.column):
            return replace(turned, column=turned.across, across=turned.column)
        return None

    def source(self, buffer: Buffer) -> str:
        loads = (value.attribute for value in self.program.values if isinstance(value.attribute, Load))
        indices = [load.index for load in loads if load.buffer == buffer.name]
        return "table" if indices and all(map(_is_looked_up, indices)) else "source"

    def status(self) -> tuple[Status, ...]:
        return (write_status(self),) if self.program.checks else ()

    def _stride(self, stride: Extent) -> str:
        if isinstance(stride, int):
            return str(stride)
        return next(size.name for size in self.program.sizes if size.value == stride)

    def _count_store(self, layout: OutputLayout) -> None:
        """Add what the store written last touches to its stage."""
        stage = self.stages[-1]
        size = stage.points * stage.bits // 8
        contiguous, across = dict(stage.contiguous), dict(stage.across)
        for name, (_, stride) in zip(layout.variables, layout.dims):
            if stride == 1:
                contiguous[name] = contiguous.get(name, 0) + size
            else:
                across[name] = across.get(name, 0) + stage.bits // 8
        strides = {name: stride for name, (_, stride) in zip(layout.variables, layout.dims)}
        if 1 not in strides.values():
            # One of several that are interleaved: a line holds some of its elements.
            near = {name: step for name, step in strides.items() if isinstance(step, int) and step > 0}
            near = {name: step for name, step in near.items() if step * stage.bits < _LINE}
            contiguous |= {name: contiguous.get(name, 0) + size // step for name, step in near.items()}
        self.stages[-1] = replace(stage, contiguous=contiguous, across=across, traffic=stage.traffic + size)


def _is_looked_up(index: sympy.Expr) -> bool:
    """Whether an index that data hold is part of `index`, to which other parts only add."""
    return bool(index.is_nonnegative) and any(isinstance(symbol, ValueSymbol) for symbol in index.free_symbols)
