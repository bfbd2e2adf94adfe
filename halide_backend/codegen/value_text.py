"""One value of a program as Python text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import sympy

from halide_backend.codegen.index_text import index_text, is_narrow, text_by_stride
from halide_backend.program.dtypes import NARROW_FLOATS
from halide_backend.program.index import AxisSymbol, FloorDiv, Mod, axes_of, expanded, sizes_of
from halide_backend.program.index_range import fits_int32
from halide_backend.program.loop_program import Coordinate, Indirect, Load, LoopProgram, Number, Steps, Value
from halide_backend.program.operation_names import COMPARISONS, LOOPS


def value_text(
    program: LoopProgram,
    value: Value,
    variables: Iterable[str] = (),
    *,
    library: str = "ops",
    cases: bool = True,
    whole: bool = False,
    apart: bool = False,
) -> str:
    """Python text of one operation over the names of its operands, `t` and their position.

    `variables` are the Vars that the value depends on, for operations that need a Func; `library` has the operations;
    `cases` says whether Halide may make a loop, or on a GPU a branch, of the steps at which an index needs no clamp,
    `whole` that operands are computed also where conditions of coordinates leave them out, `apart` that an element
    whose condition does not hold is read at place 0 instead of somewhere in the tensor.
    """
    operands = [f"t{operand}" for operand in value.operands]
    attribute = value.attribute
    sources = [program.values[operand].dtype for operand in value.operands]
    if isinstance(attribute, Load):
        return converted(value, element_text(program, value, attribute, cases=cases, apart=apart))
    if isinstance(attribute, Indirect):
        size = index_text(attribute.size)
        return f"{library}.indirect({size}, {attribute.wrap_negative}, {operands[0]})"
    if isinstance(attribute, Number | sympy.Expr):
        wide = isinstance(attribute, sympy.Expr) and _is_wide(program, attribute)
        return _index(value, library, wide=wide, opaque=whole)
    if narrow := _narrow_operands(program, value):
        operands = [_index(replace(each, dtype="int32"), library, wide=False, opaque=whole) for each in narrow]
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


def named_operands(program: LoopProgram, value: Value) -> tuple[int, ...]:
    """The operands that the text of `value` names."""
    return () if _narrow_operands(program, value) else value.operands


def _narrow_operands(program: LoopProgram, value: Value) -> list[Value]:
    """The operands of a comparison of coordinates that int32 holds, which take half the instructions of int64."""
    operands = [program.values[operand] for operand in value.operands]
    narrow = value.operation in COMPARISONS and all(_is_narrow(program, operand) for operand in operands)
    return operands if narrow else []


def _is_narrow(program: LoopProgram, value: Value) -> bool:
    """Whether `value` is a coordinate, a number, or an extent, which Halide counts in int32."""
    index = value.attribute
    if isinstance(index, Number):
        return value.dtype == "int64" and abs(int(index.value)) < 2**31
    if value.dtype != "int64" or not isinstance(index, sympy.Expr) or value.operands:
        return False
    return index in [size.value for size in program.sizes if not size.data] or not _is_wide(program, index)


def _is_wide(program: LoopProgram, index: sympy.Expr) -> bool:
    """Whether `index` may be more than int32 holds."""
    if is_narrow(index) or _divides_an_axis(program, index):
        return False
    return bool(sizes_of(index)) or not fits_int32(index, program)


def _divides_an_axis(program: LoopProgram, index: sympy.Basic) -> bool:
    """Whether `index` is a quotient or remainder of a coordinate by what divides the extent of its axis, and is no
    more than that: of the rows of `torch.cat((x, y), 1)`, by a sum of sizes."""
    if not isinstance(index, FloorDiv | Mod):
        return isinstance(index, AxisSymbol)
    whole, part = index.args
    divided = [axis.extent for axis in program.axes if axis.name in axes_of(whole)]
    return _divides_an_axis(program, whole) and all(
        sympy.fraction(sympy.cancel(sympy.sympify(extent) / part))[1] == 1 for extent in divided
    )


def _index(value: Value, library: str, *, wide: bool, opaque: bool = False) -> str:
    index = value.attribute
    if isinstance(index, Number):
        return f"{library}.constant({value.dtype!r}, {_number(index)})"
    assert isinstance(index, sympy.Expr)
    text = index_text(index, wide=wide)
    if index.is_Integer:
        return f"{library}.constant({value.dtype!r}, {text})"
    position = f"{library}.position({value.dtype!r}, {text})"
    return f"{library}.opaque({position})" if opaque and value.axes else position


def element_text(
    program: LoopProgram,
    value: Value,
    load: Load,
    *,
    by_stride: bool = False,
    cases: bool = True,
    apart: bool = False,
) -> str:
    """The element that a load reads, as it lies in memory; the terms of a plain index may stand in order of stride."""
    masked = any(program.values[o].dtype == "bool" for o in value.operands) and any(
        program.values[o].operation != "indirect" for o in value.operands
    )
    buffer = next(b for b in program.inputs if b.name == load.buffer)
    # Of the index in the middle Halide sees that it needs no clamp; what is not is the rest of its loop.
    likely = "hl.likely({})" if cases and not load.main else "{}"
    if load.coordinates:
        text = " + ".join(_clamped(coordinate, likely) for coordinate in load.coordinates)
    elif masked:
        text, last = likely.format(index_text(load.index)), index_text(expanded(sympy.sympify(buffer.extent) - 1))
        if apart:
            conditions = (f"t{operand}" for operand in value.operands if program.values[operand].dtype == "bool")
            text = f"hl.select({' & '.join(conditions)}, {text}, 0)"
        else:
            text = f"hl.clamp({text}, 0, {last})"
    elif load.main and sizes_of(load.index):
        # What both have is outside of the select: elements of several rows are then as far from each other, as LLVM
        # can see; where all sizes are known, it can anyway.
        alike, piece, index = _apart(load.main.index, load.index)
        text = f"{index_text(alike)} + {_in_pieces(load.main.steps, index_text(piece), index_text(index))}"
        return f"{load.buffer}[{text}]"
    else:
        text = text_by_stride(load.index) if by_stride else index_text(load.index)
    if load.main:
        text = _in_pieces(load.main.steps, index_text(load.main.index), text)
    return f"{load.buffer}[{text}]"


def _in_pieces(steps: Steps, piece: str, index: str) -> str:
    return f"hl.select({_within(steps)}, hl.likely({piece}), {index})"


def _apart(one: sympy.Expr, other: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr, sympy.Expr]:
    """The terms that both sums have, and what else each of them has."""
    terms, others = (set(sympy.Add.make_args(each)) for each in (one, other))
    alike = terms & others
    return sympy.Add(*alike), sympy.Add(*terms - alike), sympy.Add(*others - alike)


def _clamped(coordinate: Coordinate, likely: str) -> str:
    text = index_text(coordinate.index)
    if coordinate.extent != 0:
        last = index_text(expanded(sympy.sympify(coordinate.extent) - 1))
        text = f"hl.clamp({likely.format(text)}, 0, {last})"
    return f"{text}*{index_text(coordinate.stride)}"


def _within(steps: Steps) -> str:
    first, end = index_text(sympy.sympify(steps.first)), index_text(sympy.sympify(steps.end))
    return f"({steps.axis} >= {first}) & ({steps.axis} < {end})"


def converted(value: Value, element: str) -> str:
    """The value of a load whose `element` is as it lies in memory."""
    if value.dtype == "bool" or value.dtype in NARROW_FLOATS:
        return f"ops.load({value.dtype!r}, {element})"
    return element


def _number(number: Number) -> str:
    return f'float("{number.bits}")' if number.bits in ("inf", "-inf", "nan") else number.bits
