"""LoopProgram to the algorithm half of a kernel text, with the stages that a schedule may place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from halide_backend.codegen.algorithm import Algorithm
from halide_backend.codegen.bfloat16_text import exact_text, stored_text
from halide_backend.codegen.index_text import index_text
from halide_backend.codegen.turned_tiles import turned_tiles
from halide_backend.codegen.value_text import converted, element_text, value_text
from halide_backend.errors import Unsupported
from halide_backend.kernel_library.arguments import Input, Integer, Output, Size, Status, known
from halide_backend.program.bfloat16_values import bfloat16_values
from halide_backend.program.dtypes import ELEMENT, NARROW_FLOATS
from halide_backend.program.func_cost import define
from halide_backend.program.index import axes_of, values_of
from halide_backend.program.loop_program import (
    Apply,
    Axis,
    Extent,
    Load,
    LoopProgram,
    Reduction,
    Scan,
    Store,
    Value,
)
from halide_backend.program.store_layout import OutputLayout, output_layout
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.stage import Loop, Role, Stage, StageGraph, rvar


def write_algorithm(program: LoopProgram, mapping: Mapping) -> Algorithm:
    """Halide statements for `program`, with the Funcs of `mapping`.

    Raises:
        Unsupported: an index that has no Halide form yet, or a scan, for which Inductor asks no CPU backend.
    """
    if any(isinstance(value.attribute, Scan) for value in program.values):
        raise Unsupported("scan-on-cpu", "a scan on a CPU")
    return _Writer(program, mapping).write()


class _Writer:
    def __init__(self, program: LoopProgram, mapping: Mapping) -> None:
        self.program = program
        self.roles = mapping.roles
        self.transposition = mapping.transposition
        self.axes = {axis.name: axis for axis in program.axes}
        self.lines: list[str] = []
        self.stages: list[Stage] = []
        self.calls: dict[int, str] = {}  # value -> the Func that holds it, or its reduction's result
        self.written: set[int] = set()
        self.counters: dict[str, int] = {}
        self.bfloat16 = bfloat16_values(program)
        self.layouts = {store.buffer: output_layout(store, program) for store in program.stores}

    # -- the whole ---------------------------------------------------------------------------------------------

    def write(self) -> Algorithm:
        program = self.program
        inputs: list[Input | Size] = [Input(b.name, b.dtype, known(b.extent)) for b in program.inputs]
        self.lines += [f"{name} = hl.Var({name!r})" for name in sorted(self.axes, key=_axis_order)]
        self.lines += [f"{i.name} = memory.source(ARGUMENTS[{k}])" for k, i in enumerate(inputs)]
        for size in program.sizes:
            self.lines.append(f"{size.name} = memory.size(ARGUMENTS[{len(inputs)}])")
            inputs.append(Integer(size.name) if size.data else Size(size.name))
        outputs: list[Output | Status] = [self._output(store) for store in program.stores]
        if program.checks:
            outputs.append(self._status())
        return Algorithm(
            tuple(self.lines),
            tuple(inputs),
            tuple(outputs),
            StageGraph(tuple(self.stages), tuple(axis.name for axis in program.row)),
        )

    # -- names and loops ---------------------------------------------------------------------------------------

    def _name(self, stem: str) -> str:
        number = self.counters.get(stem, 0)
        self.counters[stem] = number + 1
        return f"{stem}_{number}"

    def _inner_first(self, axes: Iterable[str]) -> list[str]:
        return sorted(axes, key=_axis_order, reverse=True)

    def _loops(self, axes: Iterable[str]) -> tuple[Loop, ...]:
        return tuple(_loop(name, self.axes[name]) for name in axes)

    def _rdom(self, axes: Sequence[Axis]) -> tuple[str, tuple[Loop, ...], dict[str, str]]:
        """Write an RDom over `axes`; returns its name, its loops and the text that replaces each axis."""
        name = self._name("r")
        inner_first = sorted(axes, key=lambda axis: _axis_order(axis.name), reverse=True)
        region = ", ".join(f"(0, {index_text(axis.extent)})" for axis in inner_first)
        self.lines.append(f'{name} = hl.RDom([{region}], "{name}")')
        loops = tuple(_loop(rvar(name, k), axis) for k, axis in enumerate(inner_first))
        places = {axis.name: f"{name}[{k}]" for k, axis in enumerate(inner_first)}
        return name, loops, places

    def _call(self, func: str, axes: Iterable[str], places: dict[str, str] | None = None) -> str:
        arguments = ", ".join((places or {}).get(name, name) for name in axes)
        return f"{func}[{arguments}]" if arguments else f"{func}[()]"

    def _read(self, func: str, axes: Iterable[str], places: dict[str, str] | None = None) -> str:
        return f"hl.Expr({self._call(func, axes, places)})"

    def _func(
        self,
        stem: str,
        role: Role,
        axes: Sequence[str],
        text: str,
        roots: Iterable[int],
        **facts: object,
    ) -> str:
        name = self._name(stem)
        self.lines.append(f'{name} = hl.Func("{name}")')
        self.lines.append(f"{self._call(name, axes)} = {text}")
        self._stage(name, role, axes, roots, **facts)
        return name

    def _stage(self, name: str, role: Role, axes: Sequence[str], roots: Iterable[int], **facts: object) -> None:
        definition = define(self.program, roots, self.calls)
        self.stages.append(
            Stage(
                name,
                role,
                self._loops(axes),
                calls=tuple(definition.calls),
                work=definition.work,
                contiguous=definition.contiguous,
                traffic=definition.traffic,
                **facts,  # type: ignore[arg-type]
            )
        )

    # -- values ------------------------------------------------------------------------------------------------

    def _reference(self, position: int) -> str:
        """Text of the value, after writing everything it needs."""
        for needed in self._order(position):
            self._write_value(needed)
        return f"t{position}"

    def _order(self, position: int) -> list[int]:
        found: dict[int, None] = {}
        stack = [(position, False)]
        while stack:
            current, expanded = stack.pop()
            if current in found or current in self.written:
                continue
            if expanded:
                found[current] = None
                continue
            stack.append((current, True))
            stack += [(operand, False) for operand in self.program.values[current].operands]
        return list(found)

    def _write_value(self, position: int) -> None:
        value = self.program.values[position]
        role = self.roles.get(position)
        self.written.add(position)
        if role is Role.STAGED_LOAD and isinstance(value.attribute, Load):
            self.lines.append(f"t{position} = {converted(value, self._transposed(position, value, value.attribute))}")
            return
        if isinstance(value.attribute, Reduction):
            self.lines.append(f"t{position} = {self._reduction(position, value, value.attribute)}")
        elif isinstance(value.attribute, Apply):
            self.lines.append(f"t{position} = {self._applied(value, value.attribute)}")
        else:
            text = exact_text(self.program, value, self.bfloat16) or value_text(self.program, value, sorted(value.axes))
            self.lines.append(f"t{position} = {text}")
        if role is not None:
            axes = self._inner_first(value.axes)
            stem = value.attribute.buffer if isinstance(value.attribute, Load) else value.operation
            func = self._func(stem, role, axes, f"t{position}", [position], bits=self._bits(position))
            self.calls[position] = func
            self.lines.append(f"t{position} = {self._read(func, axes)}")

    def _transposed(self, position: int, value: Value, load: Load) -> str:
        """The element of a transposed operand, out of a tile that is turned in registers."""
        axes = self._inner_first(value.axes)
        bits = next(ELEMENT[buffer.dtype][1] for buffer in self.program.inputs if buffer.name == load.buffer)
        source = self._func(load.buffer, Role.INLINE, axes, element_text(self.program, value, load), [position])
        self.calls[position], text = self._turned(source, axes, bits)
        return text

    def _turned(self, source: str, axes: list[str], bits: int) -> tuple[str, str]:
        """The last of the Funcs that turn tiles of Func `source`, and the text of its element."""
        assert self.transposition is not None
        column, across = (
            index_text(self.axes[a].extent) for a in (self.transposition.column, self.transposition.across)
        )
        tiles = turned_tiles(source, self._loops(axes), self.transposition, (column, across), bits)
        self.lines.append(tiles.line)
        self.stages += tiles.stages
        return tiles.last, tiles.element

    def _applied(self, value: Value, application: Apply) -> str:
        """The operand's Func, called at other coordinates than its own."""
        (operand,) = value.operands
        axes = self._inner_first(self.program.values[operand].axes)
        if operand not in self.calls or isinstance(self.program.values[operand].attribute, Reduction):
            self.calls[operand] = self._func("apply_operand", Role.INLINE, axes, f"t{operand}", [operand])
        place = next(k for k, stage in enumerate(self.stages) if stage.name == self.calls[operand])
        self.stages[place] = replace(self.stages[place], shifted=True)
        return self._read(self.calls[operand], axes, {axis: index_text(index) for axis, index in application.at})

    def _bits(self, position: int) -> int:
        """Bits of the value as a Func holds it: the low precisions are computed in float32."""
        dtype = self.program.values[position].dtype
        return 32 if dtype in NARROW_FLOATS else ELEMENT[dtype][1]

    # -- reductions --------------------------------------------------------------------------------------------

    def _reduction(self, position: int, value: Value, reduction: Reduction) -> str:
        kind = reduction.kind
        (operand,) = value.operands
        encoded = self._encoded(kind, operand, reduction)
        total = self._reduce(kind, kind, encoded, reduction, value)
        self.calls[position] = self.stages[-1].name
        if kind not in ("argmax", "argmin"):
            return f"reductions.decode({kind!r}, t{operand}.type(), {total})"
        assert reduction.position is not None
        axes = self._inner_first(self.program.values[operand].axes | {axis.name for axis in reduction.axes})
        key = self._read(encoded, self._stage_axes(encoded))
        text = f"reductions.candidate({kind!r}, {key}, {total}, {index_text(reduction.position)})"
        func = self._func(f"{kind}_position", Role.INLINE, axes, text, [])
        self.stages[-1] = replace(self.stages[-1], calls=(encoded, self.calls[position]))
        first = self._reduce(f"{kind}_first", "min", func, reduction, value)
        self.calls[position] = self.stages[-1].name
        return f"ops.to_dtype('int32', {value.dtype!r}, {first})"

    def _encoded(self, kind: str, operand: int, reduction: Reduction) -> str:
        """The Func whose points are reduced; it has every reduced axis, even one its value does not depend on."""
        value = self.program.values[operand]
        text = self._reference(operand)
        axes = value.axes | {axis.name for axis in reduction.axes}
        plain = kind in ("sum", "prod") and value.dtype.startswith(("float", "bfloat"))
        # A reduction's own Func holds encoded values, order keys for example.
        reduced = isinstance(value.attribute, Reduction)
        if plain and not reduced and operand in self.calls and axes == value.axes:
            return self.calls[operand]
        if not plain:
            text = f"reductions.encode({kind!r}, {text})"
        return self._func(
            f"{kind}_operand", Role.INLINE, self._inner_first(axes), text, [operand], bits=self._bits(operand)
        )

    def _stage_axes(self, func: str) -> list[str]:
        return [loop.name for loop in next(s for s in self.stages if s.name == func).loops]

    def _reduce(self, stem: str, kind: str, func: str, reduction: Reduction, value: Value) -> str:
        _, loops, places = self._rdom(reduction.axes)
        axes = self._stage_axes(func)
        kept = self._inner_first(value.axes)
        name = self._name(stem)
        element = self._read(func, axes, places)
        own = self._call(name, kept)
        total = self._read(name, kept)
        self.lines.append(f'{name} = hl.Func("{name}")')
        self.lines.append(f"{own} = reductions.initial({kind!r}, {element})")
        self.lines.append(f"{own} = reductions.combine({kind!r}, {total}, ops.opaque({element}))")
        self.stages.append(
            Stage(
                name,
                Role.REDUCTION,
                self._loops(kept),
                calls=(func,),
                updates=loops,
                operator="min" if kind in ("argmin", "all") else "max" if kind in ("argmax", "any") else kind,
                bits=next(s for s in self.stages if s.name == func).bits,
            )
        )
        return total

    # -- outputs -----------------------------------------------------------------------------------------------

    def _output(self, store: Store) -> Output:
        layout = self.layouts[store.buffer]
        dtype = next(b.dtype for b in self.program.outputs if b.name == store.buffer)
        dims = tuple((known(extent), known(stride)) for extent, stride in layout.dims)
        result = Output(store.buffer, dtype, dims, layout.offset)
        if layout.scattered:
            self._scatter(store, layout, dtype)
        else:
            text = stored_text(dtype, self._reference(store.value), exact=store.value in self.bfloat16)
            self._plain_store(store, layout, text, ELEMENT[dtype][1])
        variables = ", ".join(layout.variables)
        shape = ", ".join(f"({index_text(e)}, {self._stride(s)})" for e, s in layout.dims)
        self.lines.append(f"memory.target({store.buffer}, [{variables}], [{shape}])")
        return result

    def _plain_store(self, store: Store, layout: OutputLayout, text: str, bits: int) -> None:
        """The output whose elements of `bits` bits are `text`, as they are computed or in turned tiles."""
        calls: list[str] = []
        if self.transposition is not None and self.transposition.results:
            axes = list(layout.variables)
            source = self._func(f"{store.buffer}_value", Role.INLINE, axes, text, [store.value], bits=bits)
            *calls, text = self._turned(source, axes, bits)
        self.lines.append(f'{store.buffer} = hl.Func("{store.buffer}")')
        self.lines.append(f"{self._call(store.buffer, layout.variables)} = {text}")
        self._stage(store.buffer, Role.OUTPUT, layout.variables, [] if calls else [store.value], bits=bits)
        self.stages[-1] = replace(self.stages[-1], calls=tuple(calls) or self.stages[-1].calls)
        self._count_store(store, layout, bits)

    def _stride(self, stride: Extent) -> str:
        if isinstance(stride, int):
            return str(stride)
        return next(size.name for size in self.program.sizes if size.value == stride)

    def _count_store(self, store: Store, layout: OutputLayout, bits: int) -> None:
        stage = self.stages[-1]
        size = stage.points * bits // 8
        contiguous = dict(stage.contiguous)
        for name, (_, stride) in zip(layout.variables, layout.dims):
            if stride == 1:
                contiguous[name] = contiguous.get(name, 0) + size
        self.stages[-1] = replace(stage, contiguous=contiguous, traffic=stage.traffic + size)

    def _scatter(self, store: Store, layout: OutputLayout, dtype: str) -> None:
        """An update at computed positions: serial over its RDom, pure over the columns that allow it."""
        buffer = store.buffer
        value = self._reference(store.value)
        position = layout.position
        assert position is not None
        operands = values_of(position)
        for operand in operands:
            self._reference(operand)
        over = [axis for axis in store.nest.axes if axis.name not in layout.variables]
        axes = self._inner_first(axis.name for axis in store.nest.axes)
        what = self._func("scatter_value", Role.INLINE, axes, value, [store.value])
        where_text = f"ops.position('int32', {index_text(position)})"
        moving = axes_of(position)
        where_axes = self._inner_first(moving.union(*(self.program.values[operand].axes for operand in operands)))
        where = self._func("scatter_position", Role.INLINE, where_axes, where_text, operands)
        # One place for every column needs no RDom; an update it is all the same.
        _, loops, places = self._rdom(over) if over else ("", (), {})
        columns = [name for name in layout.variables if name in self.axes]
        self.lines += [f'{name} = hl.Var("{name}")' for name in layout.variables if name not in self.axes]
        element = self._call(buffer, [*columns, self._read(where, where_axes, places)])
        new = self._read(what, axes, places)
        if store.mode == "atomic_add":
            new = f"ops.add(ops.load({dtype!r}, hl.Expr({element})), ops.opaque({new}))"
        self.lines.append(f'{buffer} = hl.Func("{buffer}")')
        self.lines.append(f"{self._call(buffer, layout.variables)} = hl.undef(memory.STORAGE[{dtype!r}])")
        self.lines.append(f"{element} = ops.stored({dtype!r}, {new})")
        self.stages.append(
            Stage(
                buffer,
                Role.SCATTER,
                tuple(
                    _loop(name, self.axes[name]) if name in self.axes else Loop(name, 1, name)
                    for name in layout.variables
                ),
                calls=(what, where),
                updates=loops,
                bits=ELEMENT[dtype][1],
            )
        )

    def _status(self) -> Status:
        """One int32 per check: the largest value of its condition anywhere."""
        totals = []
        calls = []
        for check in self.program.checks:
            value = self.program.values[check.condition]
            text = f"hl.cast(hl.Int(32), {self._reference(check.condition)})"
            axes = self._inner_first(value.axes)
            if axes:
                func = self._func("check", Role.INLINE, axes, text, [check.condition])
                over = Reduction("max", tuple(self.axes[name] for name in axes))
                totals.append(self._reduce("failed", "max", func, over, Value("", "int32")))
                calls.append(self.stages[-1].name)
            else:
                totals.append(text)
                calls += define(self.program, [check.condition], self.calls).calls
        result = totals[0]
        for number, total in enumerate(totals[1:], start=1):
            result = f"hl.select(k == {number}, {total}, {result})"
        self.lines += [
            'k = hl.Var("k")',
            'status = hl.Func("status")',
            f"status[k] = {result}",
            f"status.bound(k, 0, {len(totals)})",
            f"status.output_buffer().dim(0).set_bounds(0, {len(totals)})",
        ]
        self.stages.append(Stage("status", Role.OUTPUT, (Loop("k", len(totals), "k"),), calls=tuple(calls)))
        return Status(tuple((check.error, check.message) for check in self.program.checks))


def _loop(name: str, axis: Axis) -> Loop:
    return Loop(name, axis.hint, axis.name, fixed=known(axis.extent) > 0)


def _axis_order(name: str) -> int:
    return int(name[1:])
