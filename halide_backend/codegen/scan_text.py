"""Text of what scans combine, on any device."""

from __future__ import annotations

from collections.abc import Sequence

from halide_backend.codegen.call_text import call_text, tuple_text
from halide_backend.codegen.value_text import value_text
from halide_backend.program.loop_program import Combination, Scan, Value
from halide_backend.schedule.stage import Loop


def combination_lines(name: str, combination: Combination) -> list[str]:
    """The Python function `name` of an earlier and a later element that a scan combines with."""
    program = combination.program
    lines = [f"def {name}(earlier, later):"]
    for position, value in enumerate(program.values):
        operand = value.operation in ("earlier", "later")
        text = f"{value.operation}[{value.attribute}]" if operand else value_text(program, value)
        lines.append(f"    t{position} = {text}")
    return [*lines, f"    return {tuple_text([f't{position}' for position in combination.results])}"]


def component_text(func: str, loops: Sequence[Loop], value: Value, scan: Scan) -> str:
    """The component of `scan` that `value` is, at the point of `loops`, in Func `func`."""
    call = call_text(func, [loop.name for loop in loops])
    return f"hl.Expr({call})" if len(value.operands) == 1 else f"hl.Expr({call}[{scan.result}])"
