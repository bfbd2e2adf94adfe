"""Inductor's FX graph of a model as bytecode."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch

from halide_backend.build.c_interface import c_function
from halide_backend.capture.fx_wrapper import PIPELINES, launch_kernel
from halide_backend.packages.bytecode.aten_call import arguments_by_name, aten_call, unknown
from halide_backend.packages.bytecode.instructions import Instruction, Kind, Value, constant

_ARITHMETIC: dict[Any, str] = {
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.floordiv: "floordiv",
    torch.sym_max: "sym_max",
    torch.sym_min: "sym_min",
}
_SIZE = torch.ops.aten.sym_size.int
_LONGEST = (1 << 63) - 1


@dataclass(frozen=True)
class Code:
    """What is executed: the first tensors are the inputs, and `outputs` are tensors or, negative, constants."""

    inputs: tuple[str, ...]
    tensors: int
    sizes: int
    instructions: tuple[Instruction, ...]
    outputs: tuple[int, ...]


def translated(graph: torch.fx.Graph, names: Sequence[str], functions: Mapping[str, int]) -> Code:
    """The graph as bytecode.

    Args:
        graph: what Inductor's FX wrapper made.
        names: what the user calls the inputs.
        functions: the places of kernels' C functions.

    Raises:
        PackageError: bytecode has no instruction for something in it.
    """
    translation = _Translation(names, functions)
    for node in graph.nodes:
        translation.add(node)
    return translation.code()


@dataclass
class _Translation:
    names: Sequence[str]
    functions: Mapping[str, int]
    values: dict[torch.fx.Node, Value | list[Value]] = field(default_factory=dict)
    #: By name an example of each tensor that is one.
    inputs: dict[str, torch.Tensor] = field(default_factory=dict)
    placeholders: int = 0
    constants: int = 0
    tensors: int = 0
    sizes: int = 0
    #: By symbol or expression over symbols.
    known_sizes: dict[sympy.Expr, Value] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    are_checked: bool = False
    #: After which instruction a tensor is not needed any more.
    last_uses: dict[int, int] = field(default_factory=dict)
    outputs: tuple[int, ...] = ()

    def add(self, node: torch.fx.Node) -> None:
        if node.op == "placeholder":
            self._add_input(node)
        elif node.op == "get_attr":
            self._add_constant(node)
        elif node.op == "output":
            self._check_inputs()
            given = node.args[0]
            nodes = given if isinstance(given, (list, tuple)) else [given]
            self.outputs = tuple(map(self._tensor, nodes))
            self.last_uses.update(dict.fromkeys(self.outputs, len(self.instructions)))
        elif node.target == _SIZE:
            self._add_size(node)
        elif node.target in _ARITHMETIC:
            self._add_arithmetic(node)
        else:
            self._check_inputs()
            self._add_call(node)

    def code(self) -> Code:
        freed: dict[int, list[int]] = {}
        for tensor, last in self.last_uses.items():
            if tensor >= 0:
                freed.setdefault(last, []).append(tensor)
        instructions = []
        for number, instruction in enumerate(self.instructions):
            instructions.append(instruction)
            instructions += [Instruction("FREE", (tensor,)) for tensor in freed.get(number, ())]
        return Code(tuple(self.inputs), self.tensors, self.sizes, tuple(instructions), self.outputs)

    # -- values ------------------------------------------------------------------------------------------------

    def _new_tensor(self) -> Value:
        self.tensors += 1
        return Value(Kind.TENSOR, self.tensors - 1)

    def _new_size(self, node: torch.fx.Node) -> int:
        self.values[node] = Value(Kind.SIZE, self.sizes)
        self.known_sizes.setdefault(node.meta["val"].node.expr, Value(Kind.SIZE, self.sizes))
        self.sizes += 1
        return self.sizes - 1

    def _value(self, node: torch.fx.Node) -> Value:
        value = self.values.get(node)
        if not isinstance(value, Value):
            raise unknown(f"{node.name} is used as one tensor")
        if value.kind == Kind.TENSOR:
            assert isinstance(value.content, int)
            self.last_uses[value.content] = len(self.instructions)
        return value

    def _tensor(self, node: Any) -> int:
        value = self._value(node) if isinstance(node, torch.fx.Node) else None
        if value is None or value.kind != Kind.TENSOR:
            raise unknown(f"{node} is an argument or result where a tensor has to be")
        assert isinstance(value.content, int)
        return value.content

    def _number(self, given: Any) -> Value:
        if isinstance(given, torch.fx.Node):
            return self._value(given)
        return constant(int(given))

    def _numbers(self, given: Iterable[Any]) -> tuple[Value, ...]:
        return tuple(map(self._number, given))

    # -- nodes -------------------------------------------------------------------------------------------------

    def _emit(self, name: str, *operands: Any) -> None:
        self.instructions.append(Instruction(name, operands))

    def _add_input(self, node: torch.fx.Node) -> None:
        name = self.names[self.placeholders]
        self.placeholders += 1
        example = node.meta.get("val")
        if example is None:
            # torch's loader drops inputs that are None.
            return
        if not isinstance(example, torch.Tensor):
            raise unknown(f"input {name!r} is no tensor")
        if example.device.type != "cpu" or example.layout != torch.strided:
            raise unknown(f"input {name!r} is on {example.device}, with the layout {example.layout}")
        self.values[node] = self._new_tensor()
        self.inputs[name] = example

    def _add_constant(self, node: torch.fx.Node) -> None:
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            raise unknown(f"{node.target} is a graph: control flow")
        self.constants += 1
        self.values[node] = Value(Kind.TENSOR, -self.constants)

    def _add_size(self, node: torch.fx.Node) -> None:
        tensor, axis = node.args
        self._emit("SIZE", self._new_size(node), self._tensor(tensor), axis)

    def _add_arithmetic(self, node: torch.fx.Node) -> None:
        left, right = self._numbers(node.args)
        self._emit("ARITHMETIC", self._new_size(node), _ARITHMETIC[node.target], left, right)

    def _add_call(self, node: torch.fx.Node) -> None:
        target = node.target
        if target is torch.empty_strided:
            self._add_empty(node)
        elif target is torch.as_strided:
            self._add_view(node)
        elif target is launch_kernel:
            self._add_launch(node)
        elif target is operator.getitem:
            source, number = node.args
            results = self.values[source]
            assert isinstance(results, list)
            self.values[node] = results[number]
        elif isinstance(target, torch._ops.OpOverload):
            self._add_aten(node)
        else:
            raise unknown(f"there is no instruction for {target}")

    def _add_empty(self, node: torch.fx.Node) -> None:
        sizes, strides = map(self._numbers, node.args)
        dtype = _dtype(node.kwargs["dtype"])
        result = self._new_tensor()
        self.values[node] = result
        self._emit("EMPTY", result.content, dtype, sizes, strides)

    def _add_view(self, node: torch.fx.Node) -> None:
        # as_strided counts the offset from where the memory begins. Inductor means the first element of what is viewed,
        # which may be a view itself, or begin anywhere in the user's memory.
        source, sizes, strides, offset = node.args
        viewed = self._tensor(source)
        result = self._new_tensor()
        self.values[node] = result
        self._emit("VIEW", result.content, viewed, self._numbers(sizes), self._numbers(strides), self._number(offset))

    def _add_launch(self, node: torch.fx.Node) -> None:
        name, *arguments = node.args
        for pipeline in node.meta[PIPELINES]:
            tensors = tuple(self._tensor(arguments[position]) for position in pipeline.pointers)
            sizes = self._numbers(arguments[position] for position in pipeline.numbers)
            self._emit("KERNEL", name, self.functions[c_function(pipeline.entry)], tensors, sizes)

    def _add_aten(self, node: torch.fx.Node) -> None:
        instruction, results = aten_call(node, self._value, self._new_tensor)
        self.instructions.append(instruction)
        if results:
            returned = len(node.target._schema.returns)
            self.values[node] = results if returned > 1 else results[0]
            return
        # It writes into an argument, and returns that.
        given = arguments_by_name(node)
        schema = node.target._schema
        written = [given[a.name] for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        if len(written) == 1:
            self.values[node] = self.values[written[0]]

    # -- inputs ------------------------------------------------------------------------------------------------

    def _check_inputs(self) -> None:
        """What the kernels rely on, after the sizes of inputs and before the rest."""
        if self.are_checked:
            return
        self.are_checked = True
        symbols: dict[sympy.Symbol, tuple[str, Any]] = {}
        for number, (name, example) in enumerate(self.inputs.items()):
            sizes, strides = (tuple(map(self._known, each)) for each in (example.shape, example.stride()))
            self._emit("CHECK", number, name, _dtype(example.dtype), sizes, strides)
            for axis, size in enumerate(example.shape):
                if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
                    symbols.setdefault(size.node.expr, (f"size {axis} of input {name!r}", size.node.shape_env))
        for symbol, (name, environment) in symbols.items():
            limits = environment.var_to_range[symbol]
            self._emit("RANGE", self.known_sizes[symbol].content, name, *map(_limit, (limits.lower, limits.upper)))

    def _known(self, size: int | torch.SymInt) -> Value:
        return self._evaluated(size.node.expr) if isinstance(size, torch.SymInt) else constant(int(size))

    def _evaluated(self, expression: sympy.Expr) -> Value:
        """The value of an expression over sizes that are known."""
        known = self.known_sizes.get(expression)
        if known is None and isinstance(expression, sympy.Integer):
            return constant(int(expression))
        if known is not None:
            return known
        operation = {sympy.Add: "add", sympy.Mul: "mul"}.get(expression.func)
        if operation is None:
            raise unknown(f"a size of an input is {expression}")
        value, *others = map(self._evaluated, expression.args)
        for other in others:
            self._emit("ARITHMETIC", self.sizes, operation, value, other)
            value = Value(Kind.SIZE, self.sizes)
            self.sizes += 1
        return value


def _dtype(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _limit(limit: Any) -> int:
    """The bound of a size as a number: 64 bits have no infinity."""
    if limit.is_finite:
        return int(limit)
    return _LONGEST if limit > 0 else -_LONGEST
