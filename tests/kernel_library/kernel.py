"""Small programs as callables: `LoopProgram` by hand, kernel text, compiler, loader, launcher; no Inductor."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import sympy
import torch

from halide_backend.build.compiler import compile_kernel
from halide_backend.build.loader import load_object
from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.launch.launcher import Pipeline, make_launcher, native
from halide_backend.program.loop_program import (
    Axis,
    Buffer,
    Load,
    LoopProgram,
    Nest,
    Number,
    Store,
    Value,
)
from halide_backend.schedule.device import device_of
from halide_backend.schedule.plan import Plan

_numbers = itertools.count()


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@dataclass
class Builder:
    """Writes a program over `axes` of the given extents, outermost first; tensors are contiguous over them."""

    extents: tuple[int, ...]
    values: list[Value] = field(default_factory=list)
    inputs: list[Buffer] = field(default_factory=list)
    outputs: list[Buffer] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    results: list[torch.Tensor] = field(default_factory=list)

    @property
    def axes(self) -> tuple[Axis, ...]:
        return tuple(Axis(f"x{k}", extent, extent) for k, extent in enumerate(self.extents))

    def index(self, axes: Sequence[Axis]) -> sympy.Expr:
        index, stride = sympy.Integer(0), 1
        for axis in reversed(axes):
            index += axis.symbol * stride
            stride *= int(axis.extent)
        return index

    def value(self, operation: str, dtype: torch.dtype, operands: Sequence[int] = (), attribute: object = None) -> int:
        self.values.append(Value.of(operation, name_of(dtype), tuple(operands), attribute, self.values))
        return len(self.values) - 1

    def constant(self, number: float, dtype: torch.dtype) -> int:
        return self.value("constant", dtype, (), Number.of(number))

    def load(self, dtype: torch.dtype) -> int:
        """A new input over all axes."""
        buffer = Buffer(f"in_ptr{len(self.inputs)}", name_of(dtype), self._size(self.axes), len(self.inputs))
        self.inputs.append(buffer)
        return self.value("load", dtype, (), Load(buffer.name, self.index(self.axes)))

    def store(self, value: int, dtype: torch.dtype) -> None:
        """A new output over the axes that the value has."""
        axes = tuple(axis for axis in self.axes if axis.name in self.values[value].axes)
        name = f"out_ptr{len(self.outputs)}"
        self.outputs.append(Buffer(name, name_of(dtype), self._size(axes), 1000 + len(self.outputs)))
        self.stores.append(Store(name, self.index(axes), value, Nest(axes)))
        self.results.append(torch.empty([int(axis.extent) for axis in axes], dtype=dtype))

    def _size(self, axes: Sequence[Axis]) -> int:
        size = 1
        for axis in axes:
            size *= int(axis.extent)
        return size

    def program(self) -> LoopProgram:
        shared = [axis for axis in self.axes if all(axis in store.nest.iteration for store in self.stores)]
        row = tuple(itertools.takewhile(lambda axis: axis in shared, self.axes))
        return LoopProgram(
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
            values=tuple(self.values),
            stores=tuple(self.stores),
            checks=(),
            outer=row,
            sizes=(),
        )

    def run(
        self, *arguments: torch.Tensor | int, schedule: Any = None, knobs: Any = None, level: str = ""
    ) -> list[torch.Tensor]:
        """Compile and call with inputs, and sizes after them; `schedule` maps the stages to steps (default: the rules
        for this machine), `level` is the name of a target that runs here."""
        results = [torch.empty_like(result) for result in self.results]
        launch = _launcher(self.text(schedule, knobs), level, len(arguments) + len(results))
        launch(*arguments, *results)
        return results

    def text(self, schedule: Any = None, knobs: Any = None) -> str:
        device = device_of(Target.host())
        kernel = plan_kernel(self.program(), device, knobs)
        if schedule is None:
            return kernel.text
        return plan_kernel(self.program(), device, plan=Plan(kernel.plan.mapping, schedule(kernel.stages))).text


@lru_cache(64)
def _launcher(text: str, level: str, arity: int) -> Callable[..., None]:
    """What launches the kernel of this text: many settings of a knob give the same one."""
    name = f"kernel_{next(_numbers)}"
    compiled = compile_kernel(text, Target.named(level), name)
    code = load_object(compiled.object, f"{name}_argv", native().symbols())
    manifest = compiled.manifest
    pipeline = Pipeline(
        code.address, manifest["arguments"], range(arity), manifest["checks"], manifest["release_gil"], code
    )
    return make_launcher(name, [pipeline], arity)
