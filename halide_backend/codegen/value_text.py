"""One value of a program as Python text."""

from __future__ import annotations

from collections.abc import Iterable

import sympy

from halide_backend.codegen.index_text import index_text
from halide_backend.program.dtypes import NARROW_FLOATS
from halide_backend.program.index import expanded, sizes_of
from halide_backend.program.loop_program import Indirect, Load, LoopProgram, Number, Value
from halide_backend.program.operation_names import LOOPS


def value_text(program: LoopProgram, value: Value, variables: Iterable[str] = (), *, library: str = "ops") -> str:
    """Python text of one operation over the names of its operands, `t` and their position.

    `variables` are the Vars that the value depends on, for operations that need a Func; `library` has the operations.
    """
    operands = [f"t{operand}" for operand in value.operands]
    attribute = value.attribute
    sources = [program.values[operand].dtype for operand in value.operands]
    if isinstance(attribute, Load):
        return converted(value, element_text(program, value, attribute))
    if isinstance(attribute, Indirect):
        size = index_text(attribute.size)
        return f"{library}.indirect({size}, {attribute.wrap_negative}, {operands[0]})"
    if isinstance(attribute, Number):
        return f"{library}.constant({value.dtype!r}, {_number(attribute)})"
    if isinstance(attribute, sympy.Expr):
        return _index(program, value, attribute, library)
    if value.operation in LOOPS:
        operands.append(f"[{', '.join(variables)}]")
    match value.operation:
        case "to_dtype" | "bitcast":
            return f"{library}.{value.operation}({sources[0]!r}, {value.dtype!r}, {operands[0]})"
        case "nextafter":
            return f"{library}.nextafter({value.dtype!r}, {', '.join(operands)})"
        case "add" | "sub" | "mul" if "float" in value.dtype:
            sign = {"add": "+", "sub": "-", "mul": "*"}[value.operation]
            return f"{operands[0]} {sign} {operands[1]}"
    return f"{library}.{value.operation}({', '.join(operands)})"


def _index(program: LoopProgram, value: Value, index: sympy.Expr, library: str) -> str:
    wide = sum(abs(int(n)) for n in index.atoms(sympy.Integer)) * max([2, *(axis.hint for axis in program.axes)])
    text = index_text(index, wide=wide >= 2**31 or bool(sizes_of(index)))
    if index.is_Integer:
        return f"{library}.constant({value.dtype!r}, {text})"
    return f"{library}.position({value.dtype!r}, {text})"


def element_text(program: LoopProgram, value: Value, load: Load) -> str:
    """The element that a load reads, as it lies in memory."""
    masked = any(program.values[o].dtype == "bool" for o in value.operands) and any(
        program.values[o].operation != "indirect" for o in value.operands
    )
    buffer = next(b for b in program.inputs if b.name == load.buffer)
    if load.coordinates:
        terms = [f"hl.clamp(hl.likely({index_text(c.index)}), 0, {c.extent - 1})*{c.stride}" for c in load.coordinates]
        text = " + ".join(terms)
    elif masked:
        last = index_text(expanded(sympy.sympify(buffer.extent) - 1))
        text = f"hl.clamp(hl.likely({index_text(load.index)}), 0, {last})"
    else:
        text = index_text(load.index)
    return f"{load.buffer}[{text}]"


def converted(value: Value, element: str) -> str:
    """The value of a load whose `element` is as it lies in memory."""
    if value.dtype == "bool" or value.dtype in NARROW_FLOATS:
        return f"ops.load({value.dtype!r}, {element})"
    return element


def _number(number: Number) -> str:
    return f'float("{number.bits}")' if number.bits in ("inf", "-inf", "nan") else number.bits
