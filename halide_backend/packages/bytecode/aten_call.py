"""A call of ATen as an instruction: one of torch's C functions, with arguments as its header declares them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from halide_backend.errors import PackageError
from halide_backend.packages.bytecode.instructions import Argument, Instruction, Kind, Value, constant
from halide_backend.packages.bytecode.library import declared

#: Gives nodes of the graph that stand for tensors and for sizes their values.
Values = Callable[[torch.fx.Node], Value]

_LENGTH, _INDEX = "_len_", "_index_"


def aten_call(node: torch.fx.Node, value_of: Values, result: Callable[[], Value]) -> tuple[Instruction, list[Value]]:
    """The instruction of a call, and the tensors that it makes: each has been asked of `result`.

    Raises:
        PackageError: torch has no C function for it, or the function wants an argument that bytecode has not.
    """
    name = function_of(node.target)
    given = arguments_by_name(node)
    arguments, results = [], []
    for kind, parameter in declared()[name]:
        kind = kind.removeprefix("const ") if parameter in given else kind
        if parameter in given:
            arguments.append(_argument(kind, given[parameter], value_of, f"{node.target}, argument {parameter!r}"))
        elif parameter.endswith(_LENGTH):
            arguments.append(_direct(constant(len(given[parameter.removesuffix(_LENGTH)] or ()))))
        elif parameter.endswith(_INDEX):
            arguments.append(_direct(constant(0)))
        elif kind == "AtenTensorHandle*":
            results.append(result())
            arguments.append(_direct(Value(Kind.RESULT, results[-1].content)))
        else:
            raise unknown(f"{node.target} returns {kind}")
    return Instruction("SHIM", (name, tuple(arguments))), results


def function_of(target: Any) -> str:
    """torch's C function for an operator.

    Raises:
        PackageError: there is none.
    """
    _, _, name = target._schema.name.partition("::")
    overload = target._schema.overload_name
    full = f"{name}_{overload}" if overload else name
    for function in (f"aoti_torch_cpu_{full}", f"aoti_torch_aten_{full}"):
        if target.namespace == "aten" and function in declared():
            return function
    raise unknown(f"torch has no C function for the operator {target}")


def arguments_by_name(node: torch.fx.Node) -> Mapping[str, Any]:
    """All arguments of a call, with the defaults of those that were not given."""
    schema = node.target._schema
    positional = dict(zip((argument.name for argument in schema.arguments), node.args))
    defaults = {argument.name: argument.default_value for argument in schema.arguments}
    return {**defaults, **positional, **node.kwargs}


def unknown(what: str) -> PackageError:
    """The error about a model that bytecode cannot express."""
    return PackageError(
        what,
        where="package without a compiler",
        cure="Make the package with g++ (docs/how-to/ship-a-model.md); docs/design/bytecode.md says what bytecode has.",
    )


def _argument(kind: str, given: Any, value_of: Values, where: str) -> Argument:
    """What a parameter of the C type `kind` gets for the value `given` in the graph."""
    element = kind.removesuffix("*")
    if given is None and kind != element:
        return _direct(constant(0))
    if element.endswith("*"):
        raise unknown(f"{where} is of type {kind}")
    if isinstance(given, (list, tuple)):
        # Values are 8 bytes wide.
        if kind not in ("int64_t*", "double*", "AtenTensorHandle*"):
            raise unknown(f"{where} is a list of type {kind}")
        return Argument(tuple(_value(element, each, value_of, where) for each in given), is_pointer=True)
    if kind == "char*":
        return _direct(Value(Kind.TEXT, given))
    return Argument((_value(element, given, value_of, where),), is_pointer=kind != element)


def _value(kind: str, given: Any, value_of: Values, where: str) -> Value:
    if isinstance(given, torch.fx.Node):
        value = value_of(given)
        if (value.kind, kind) in ((Kind.TENSOR, "AtenTensorHandle"), (Kind.SIZE, "int64_t")):
            return value
    elif kind == "double" and isinstance(given, (int, float)):
        return constant(float(given))
    elif kind in ("int64_t", "int32_t"):
        if isinstance(given, int):
            return constant(int(given))
        if isinstance(given, torch.dtype):
            return Value(Kind.DTYPE, str(given).removeprefix("torch."))
        # c10::DeviceType::CPU and c10::Layout::Strided are 0.
        if given == torch.strided or str(given) == "cpu":
            return constant(0)
    raise unknown(f"{where} is {given!r}, for type {kind}")


def _direct(value: Value) -> Argument:
    return Argument((value,))
