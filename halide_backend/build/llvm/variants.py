"""A second version of a pipeline for calls with certain sizes, in the same module and behind the same function."""

from __future__ import annotations

import re
from collections.abc import Mapping

from llvmlite import binding as llvm

from halide_backend.build.llvm.ir_syntax import FUNCTION, NAME

#: A parameter in the first line of a definition: its type, attributes and name.
_PARAMETER = re.compile(rf"(ptr|i\d+)\b[^%]*({NAME})")


def variant_entry(entry: str) -> str:
    """The name of the second version's own function."""
    return f"{entry}_known"


def with_variant(ir: str, variant: str, entry: str, numbers: Mapping[int, int]) -> str:
    """`ir` of the pipeline `entry`, which calls its second version where the arguments at some positions are `numbers`.

    `variant` is the IR of that, with the function `variant_entry(entry)` and the same parameters.

    Raises:
        RuntimeError: LLVM does not link them.
    """
    general, known = f"{entry}_any", variant_entry(entry)
    head = next(line for line in ir.splitlines() if line.startswith("define ") and f" @{entry}(" in line)
    own = head.replace("define ", "define internal ", 1).replace(f" @{entry}(", f" @{general}(", 1)
    first = llvm.parse_assembly(ir.replace(head, f"{_choice(head, general, known, numbers)}\n{own}", 1))
    # What Halide offers beside the function itself is there already, for both.
    offered = re.compile(rf"^define [^@]*@{known}_(?:argv|metadata)\(")
    first.link_in(llvm.parse_assembly(FUNCTION.sub(lambda each: "" if offered.match(each[0]) else each[0], variant)))
    first.get_function(known).linkage = llvm.Linkage.internal
    return str(first)


def _choice(head: str, general: str, known: str, numbers: Mapping[int, int]) -> str:
    """The function with the first line `head` that calls one of the two, and a declaration of the second."""
    parameters = _PARAMETER.findall(head.partition("(")[2])
    given = ", ".join(f"{type_} {name}" for type_, name in parameters)
    lines, all_equal = [], "true"
    for position, number in numbers.items():
        type_, name = parameters[position]
        lines.append(f"  %equal.{position} = icmp eq {type_} {name}, {number}")
        lines.append(f"  %equal.to.{position} = and i1 {all_equal}, %equal.{position}")
        all_equal = f"%equal.to.{position}"
    return "\n".join(
        (
            f"declare i32 @{known}({', '.join(type_ for type_, _ in parameters)})",
            head,
            *lines,
            f"  br i1 {all_equal}, label %when.known, label %otherwise",
            "when.known:",
            f"  %known = tail call i32 @{known}({given})",
            "  ret i32 %known",
            "otherwise:",
            f"  %any = tail call i32 @{general}({given})",
            "  ret i32 %any",
            "}",
        )
    )
