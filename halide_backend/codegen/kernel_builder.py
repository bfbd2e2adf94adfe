"""KernelBuilder: LoopProgram and mapping to the algorithm half of a kernel's text, on any device.

How a program is walked, its arguments, Funcs and reductions are the same everywhere. A subclass knows what its device
does its own way: `codegen/cpu/builder.py` and `codegen/cuda/builder.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from halide_backend.codegen.algorithm import Algorithm
from halide_backend.codegen.axes import Axes, inner_first, var
from halide_backend.codegen.call_text import call_text
from halide_backend.codegen.index_text import index_text
from halide_backend.codegen.value_text import named_operands
from halide_backend.kernel_library.arguments import Input, Integer, Output, Size, Status, known
from halide_backend.program.func_cost import define
from halide_backend.program.loop_program import Buffer, LoopProgram, Reduction, Store, Value
from halide_backend.program.store_layout import output_layout
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.stage import Loop, Role, Stage, StageGraph, rvar

DeviceAxes = TypeVar("DeviceAxes", bound=Axes)


class KernelBuilder(ABC, Generic[DeviceAxes]):
    """Collects the `lines` and `stages` of the kernel of `program`, a prepared one, whose values have Funcs as
    `mapping` says, over the Vars of `axes`.

    `calls` has the Func that holds a value, `loads` the one of the words of a vector load, `known` Funcs by what they
    are made of, for values that share one. `aligned` are the buffers that are accessed in vectors, `reduced_by_group`
    the values of which each thread of a group has a copy.
    """

    library: ClassVar[str]

    def __init__(self, program: LoopProgram, mapping: Mapping, axes: DeviceAxes) -> None:
        self.program = program
        self.mapping = mapping
        self.axes = axes
        self.roles = mapping.roles
        self.buffers = {buffer.name: buffer for buffer in (*program.inputs, *program.outputs)}
        self.layouts = {store.buffer: output_layout(store, program) for store in program.stores}
        self.lines: list[str] = []
        self.stages: list[Stage] = []
        self.aligned: list[str] = []
        self.calls: dict[int, str] = {}
        self.loads: dict[int, str] = {}
        self.known: dict[object, str] = {}
        self.reduced_by_group: set[int] = set()
        self._written: set[int] = set()
        self._numbers: dict[str, int] = {}

    def write(self) -> Algorithm:
        """The whole algorithm.

        Raises:
            Unsupported: something in the program has no Halide form on this device.
        """
        program = self.program
        inputs = [Input(buffer.name, buffer.dtype, known(buffer.extent)) for buffer in program.inputs]
        sizes = [Integer(size.name) if size.data else Size(size.name) for size in program.sizes]
        self.lines += [f"{size.name} = memory.size(ARGUMENTS[{k}])" for k, size in enumerate(sizes, len(inputs))]
        self.lines += self.axes.definitions()
        self.lines += [f"{b.name} = memory.{self.source(b)}(ARGUMENTS[{k}])" for k, b in enumerate(program.inputs)]
        outputs = self.outputs()
        return Algorithm(
            outputs=(*outputs, *self.status()),
            inputs=(*inputs, *sizes),
            lines=tuple(self.lines),
            stages=StageGraph(
                tuple(self.stages), tuple(axis.name for axis in program.outer), self.clamped, self.mapping.narrow
            ),
            aligned=tuple(self.aligned),
            loads=self.mapping.loads,
            registers=self.mapping.registers,
            library=self.library,
        )

    # -- what a device does its own way ------------------------------------------------------------------------

    @property
    def clamped(self) -> tuple[str, ...]:
        """The axes beyond whose end loads read what lies at their end."""
        return ()

    def source(self, buffer: Buffer) -> str:
        """The function of `memory` that defines an input."""
        return "source"

    @abstractmethod
    def write_value(self, position: int) -> None:
        """Write the statements that define `t<position>`, whose operands are written."""

    @abstractmethod
    def encode(self, kind: str, operand: int, loops: Sequence[Loop], text: str, roots: Sequence[int]) -> str:
        """Name of a Func over `loops` that holds what a reduction of value `operand` combines: `text`, made of the
        values `roots`, encoded."""

    def reads_once(self, operand: int) -> bool:
        """Whether an arg-reduction of value `operand` is one reduction, of keys and places at once."""
        return False

    @abstractmethod
    def reduce(
        self, stem: str, kind: str, operand: str, loops: Sequence[Loop], reduction: Reduction, value: Value
    ) -> tuple[str, str]:
        """Write the reduction of Func `operand`, which has `loops`, to `value`; returns the text of its result, and the
        Func that has it."""

    @abstractmethod
    def reduce_together(
        self, kinds: Sequence[str], operands: Sequence[str], loops: Sequence[Loop], value: Value
    ) -> tuple[list[str], str]:
        """The same of several Funcs `operands`, which have `loops`, to values with the axes of `value`."""

    def outputs(self) -> list[Output]:
        """Write the Funcs of all stores; returns the kernel's arguments."""
        return [self.output(store) for store in self.program.stores]

    @abstractmethod
    def output(self, store: Store) -> Output:
        """Write the Func of a store; returns the kernel's argument."""

    def status(self) -> tuple[Status, ...]:
        """Write what reports failed checks, if outputs do not."""
        return ()

    # -- values ------------------------------------------------------------------------------------------------

    def reference(self, position: int) -> str:
        """Text of the value, after writing everything it needs."""
        stack = [(position, False)]
        while stack:
            current, expanded = stack.pop()
            if current in self._written:
                continue
            if expanded:
                self._written.add(current)
                self.write_value(current)
            else:
                stack.append((current, True))
                operands = named_operands(self.program, self.program.values[current])
                stack += [(operand, False) for operand in operands]
        return f"t{position}"

    # -- names, Vars and Funcs ---------------------------------------------------------------------------------

    def numbers(self, stem: str, count: int = 1) -> int:
        """The first of `count` numbers that nothing else called `stem` has."""
        first = self._numbers.get(stem, 0)
        self._numbers[stem] = first + count
        return first

    def unique_name(self, stem: str) -> str:
        """A name that no other Func has."""
        return f"{stem}_{self.numbers(stem)}"

    def declare(self, name: str) -> None:
        """Define the Var `name`, once."""
        line = var(name)
        if line not in self.lines:
            self.lines.append(line)

    def rdom(self, axes: Iterable[str]) -> tuple[str, tuple[Loop, ...], dict[str, str]]:
        """Write an RDom over `axes`; returns its name, its loops, and the text that stands for each axis inside."""
        names = inner_first(axes)
        region = self.unique_name("r")
        extents = ", ".join(f"(0, {index_text(self.axes.extents[name])})" for name in names)
        self.lines.append(f'{region} = hl.RDom([{extents}], "{region}")')
        loops = tuple(self.axes.loop(rvar(region, k), name) for k, name in enumerate(names))
        return region, loops, {name: f"{region}[{k}]" for k, name in enumerate(names)}

    def func(
        self,
        name: str,
        role: Role,
        loops: Sequence[Loop],
        text: str,
        roots: Iterable[int] = (),
        *,
        calls: Iterable[str] = (),
        **facts: Any,
    ) -> str:
        """Define Func `name` over `loops` as `text`, which is made of the values `roots` and also calls the Funcs
        `calls`; `facts` go into its stage. Returns the text of a call at its own Vars."""
        call = call_text(name, [loop.name for loop in loops])
        self.lines += [f'{name} = hl.Func("{name}")', f"{call} = {text}"]
        definition = define(self.program, roots, self.calls, self.loads)
        self.stages.append(
            Stage(
                name,
                role,
                tuple(loops),
                calls=(*definition.calls, *calls),
                work=definition.work,
                contiguous=definition.contiguous,
                traffic=definition.traffic,
                cases=definition.cases,
                branches=definition.branches,
                runs=definition.runs,
                across=definition.across,
                gathered=tuple(definition.gathered),
                looked_up=definition.looked_up,
                strided=tuple(definition.strided),
                overlaps=definition.overlaps,
                lines=definition.lines,
                **facts,
            )
        )
        return f"hl.Expr({call})"

    def updated_func(self, name: str, variables: Sequence[str], dtype: str, element: str, value: str) -> None:
        """Define Func `name` over `variables` as what lies in memory, elements of `dtype`, and the update that stores
        `value` in `element`."""
        self.lines += [
            f'{name} = hl.Func("{name}")',
            f"{call_text(name, variables)} = hl.undef(memory.STORAGE[{dtype!r}])",
            f"{element} = {value}",
        ]

    def stage(self, name: str) -> Stage:
        """The stage of Func `name`."""
        return next(stage for stage in self.stages if stage.name == name)
