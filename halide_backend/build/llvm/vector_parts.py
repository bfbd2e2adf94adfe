"""Parts of vectors that were forwarded as wide integers become shuffles again.

Where part of a stored vector is loaded, and the memory is not promoted because another access to it is masked, LLVM's
GVN forwards the part as an integer of 128 bits or more. Such parts hide a transposition from `transposed_tiles`.
"""

from __future__ import annotations

import re

from halide_backend.build.llvm.ir_syntax import FUNCTION, NAME

_AS_INTEGERS = re.compile(rf"^ *({NAME}) = bitcast (<(\d+) x (\w+)>) ({NAME}) to <(\d+) x i(128|256)>$", re.MULTILINE)
_EXTRACTED = re.compile(rf"^ *({NAME}) = extractelement <\d+ x i(?:128|256)> ({NAME}), i\d+ (\d+)$", re.MULTILINE)
_AS_VECTOR = re.compile(
    rf"^(?P<indent> *)(?P<result>{NAME}) = bitcast i(?:128|256) (?P<integer>{NAME}) "
    r"to <(?P<lanes>\d+) x (?P<type>\w+)>$",
    re.MULTILINE,
)


def with_parts_as_shuffles(ir: str) -> str:
    """LLVM IR that computes the same, for little-endian targets, in which vectors that are parts of vectors of the same
    elements are shuffles of these.

    The instructions that were there stay, without a use: unnamed values of LLVM IR are numbered in order.
    """

    def in_function(function: re.Match[str]) -> str:
        text = function[0]
        whole = {name: (vector, type_, of) for name, vector, _, type_, of, _, _ in _AS_INTEGERS.findall(text)}
        parts = {name: (of, int(place)) for name, of, place in _EXTRACTED.findall(text) if of in whole}

        def shuffle(match: re.Match[str]) -> str:
            if match["integer"] not in parts:
                return match[0]
            source, place = parts[match["integer"]]
            vector, type_, name = whole[source]
            if type_ != match["type"]:
                return match[0]
            lanes = int(match["lanes"])
            mask = ", ".join(f"i32 {place * lanes + lane}" for lane in range(lanes))
            operands = f"{vector} {name}, {vector} poison, <{lanes} x i32> <{mask}>"
            return f"{match['indent']}{match['result']} = shufflevector {operands}"

        return _AS_VECTOR.sub(shuffle, text)

    return FUNCTION.sub(in_function, ir) if " x i128>" in ir or " x i256>" in ir else ir
