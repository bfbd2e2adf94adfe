"""float32 to bfloat16 by the instruction of AVX-512 BF16, `vcvtneps2bf16`, where no element is denormal.

The instruction rounds to nearest even and makes NaNs quiet, as the integer operations of kernel_library/conversions.py
do, but takes denormal numbers for zeros. So both are there, and a select between them, of which
build/llvm/rare_ranges.py makes a branch: denormal numbers are rare. A vector of two registers, as long formulas have,
is converted in halves, behind one branch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from halide_backend.build.llvm.ir_syntax import FUNCTION, NAME, shuffle_mask
from halide_backend.build.target import Target

#: Halide's feature that stands for AVX-512 BF16 (`_REQUIRES` in build/target.py).
_FEATURE = "avx512_zen4"

#: Lanes of a register -> what the names of its instructions end in.
_BITS = {8: 256, 16: 512}

#: Lanes of the largest register.
_LANES = max(_BITS)

#: Conversions of one function, each of which becomes a basic block of its own: finding them takes time by the square of
#: their number, 0.03 s for 32 alone.
_MOST = 32

_DEFINITION = re.compile(rf"^(?P<indent> *)(?P<result>{NAME}) = (?P<value>.*)$", re.MULTILINE)
# What is made of a rounded float32, whose upper half is the lower one of a word: an element, or a float32 again.
_ELEMENT = re.compile(rf"trunc (?:nuw )?<(?:8|16|32) x i32> ({NAME}) to <(?:8|16|32) x i16>")
_AGAIN = re.compile(rf"shl (?:nuw )?<(?:8|16|32) x i32> ({NAME}), splat \(i32 16\)")
_CHOICE = re.compile(rf"select <(?P<lanes>8|16|32) x i1> ({NAME}), <\d+ x i32> ({NAME}), <\d+ x i32> ({NAME})")
_IS_NUMBER = re.compile(rf"fcmp ord <\d+ x float> ({NAME}), zeroinitializer")
_UPPER = re.compile(rf"lshr <\d+ x i32> ({NAME}), splat \(i32 16\)")
_QUIET = re.compile(rf"or (?:disjoint )?<\d+ x i32> ({NAME}), splat \(i32 64\)")
_SUM = re.compile(rf"add (?:nuw |nsw )*<\d+ x i32> ({NAME}), ({NAME})")
_LAST = re.compile(rf"and <\d+ x i32> ({NAME}), splat \(i32 1\)")
_BELOW_HALF = re.compile(rf"add (?:nuw |nsw )*<\d+ x i32> ({NAME}), splat \(i32 32767\)")
_WORDS = re.compile(rf"bitcast <\d+ x float> ({NAME}) to <\d+ x i32>")

# What `_converted` writes, and what build/llvm/rare_ranges.py makes of it.
_TESTS = re.compile(r'^ *%"bfloat16\.denormal\.[^"]*" = ', re.MULTILINE)
_BRANCHES = re.compile(r'= bitcast <\d+ x i1> %"bfloat16\.denormal\.[^"]*" to i\d+$', re.MULTILINE)
_TESTED = '%"bfloat16.denormal.'
_CLASS = "@llvm.x86.avx512.fpclass.ps.{}"
_CONVERSION = "@llvm.x86.avx512bf16.cvtneps2bf16.{}"

#: What `vfpclassps` calls denormal numbers.
_DENORMAL = 32


def with_bfloat16_instructions(ir: str, target: Target) -> str:
    """LLVM IR that computes the same with fewer instructions, if `target` has AVX-512 BF16."""
    if _FEATURE not in target.halide.split("-"):
        return ir
    declarations: set[str] = set()

    def in_function(function: re.Match[str]) -> str:
        if "splat (i32 32767)" not in function[0]:
            return function[0]
        values = {match["result"]: match["value"] for match in _DEFINITION.finditer(function[0])}
        found = {name: source for name in values if (source := _source(values, name)) is not None}
        if len(found) > _MOST:
            return function[0]

        def rewritten(match: re.Match[str]) -> str:
            indent, result, value = match["indent"], match["result"], match["value"]
            if result in found:
                source, lanes = found[result]
                declarations.update(_declarations(lanes))
                return "\n".join([match[0], *(indent + line for line in _converted(result, source, lanes))])
            consumed = _ELEMENT.fullmatch(value) or _AGAIN.fullmatch(value)
            if consumed is None or consumed[1] not in found:
                return match[0]
            halves, words = (f"<{found[consumed[1]][1]} x i{bits}>" for bits in (16, 32))
            half = _name(consumed[1], "chosen")
            if consumed.re is _ELEMENT:
                return f"{indent}{result} = bitcast {halves} {half} to {halves}"
            word = _name(result, "word")
            return (
                f"{indent}{word} = zext {halves} {half} to {words}\n"
                f"{indent}{result} = shl nuw {words} {word}, splat (i32 16)"
            )

        return _DEFINITION.sub(rewritten, function[0])

    rewritten = FUNCTION.sub(in_function, ir)
    return "\n".join([rewritten, *sorted(declarations), ""]) if declarations else ir


def integer_operations_are_rare(ir: str) -> bool:
    """Whether each conversion got a branch. Otherwise both ways run for some: rows of 100 minus their mean, seven
    vectors without a loop, took 1.6 times as long."""
    return _TESTED not in ir or len(_TESTS.findall(ir)) == len(_BRANCHES.findall(ir))


def _name(value: str, part: str) -> str:
    """The name of a part of the conversion that is known as `value`."""
    return f'%"bfloat16.{part}.{value.lstrip("%").strip(chr(34))}"'


def _converted(rounded: str, source: str, lanes: int) -> list[str]:
    """Lines that choose the instruction's result, or what is in the words `rounded` where `source` is denormal."""
    integer, denormal, short, half, chosen = (
        _name(rounded, part) for part in ("integer", "denormal", "short", "half", "chosen")
    )
    words, halves = (f"<{lanes} x {kind}>" for kind in ("i32", "i16"))
    return [
        f"{integer} = trunc {words} {rounded} to {halves}",
        *(_in_one if lanes <= _LANES else _in_halves)(rounded, source, lanes),
        f"{half} = bitcast <{lanes} x bfloat> {short} to {halves}",
        f"{chosen} = select <{lanes} x i1> {denormal}, {halves} {integer}, {halves} {half}",
    ]


def _in_one(rounded: str, source: str, lanes: int, part: str = "") -> list[str]:
    """Lines that tell which elements of `source`, a register, are denormal, and convert them."""
    floats = f"<{lanes} x float>"
    denormal, short = (_name(rounded, f"{part}{name}") for name in ("denormal", "short"))
    return [
        f"{denormal} = call <{lanes} x i1> {_CLASS.format(_BITS[lanes])}({floats} {source}, i32 {_DENORMAL})",
        f"{short} = call <{lanes} x bfloat> {_CONVERSION.format(_BITS[lanes])}({floats} {source})",
    ]


def _in_halves(rounded: str, source: str, lanes: int) -> list[str]:
    """The same of `source` in two registers."""
    half, lines = lanes // 2, []
    for part, first in (("lower.", 0), ("upper.", half)):
        name = _name(rounded, f"{part}source")
        of = f"<{lanes} x float> {source}, <{lanes} x float> poison"
        lines.append(f"{name} = shufflevector {of}, {shuffle_mask(first, half)}")
        lines += _in_one(rounded, name, half, part)
    for what, kind in (("denormal", "i1"), ("short", "bfloat")):
        lower, upper = (f"<{half} x {kind}> {_name(rounded, f'{part}.{what}')}" for part in ("lower", "upper"))
        lines.append(f"{_name(rounded, what)} = shufflevector {lower}, {upper}, {shuffle_mask(0, lanes)}")
    return lines


def _declarations(lanes: int) -> list[str]:
    register = min(lanes, _LANES)
    floats = f"<{register} x float>"
    return [
        f"declare <{register} x i1> {_CLASS.format(_BITS[register])}({floats}, i32 immarg)",
        f"declare <{register} x bfloat> {_CONVERSION.format(_BITS[register])}({floats})",
    ]


def _source(values: Mapping[str, str], rounded: str) -> tuple[str, int] | None:
    """The float32 vector that the lower halves of the words `rounded` are the rounding of, and its lanes; None if they
    are of none."""

    def operands(pattern: re.Pattern[str], name: str) -> tuple[str, ...]:
        match = pattern.fullmatch(values.get(name, ""))
        return match.groups() if match else ("", "", "", "")

    lanes, mask, finite, quiet = operands(_CHOICE, rounded)
    upper = operands(_QUIET, quiet)[0]
    words = operands(_UPPER, upper)[0]
    source = operands(_WORDS, words)[0]
    first, second = operands(_SUM, operands(_UPPER, finite)[0])[:2]
    for biased, last in ((first, second), (second, first)):
        same = operands(_BELOW_HALF, biased)[0] == words and operands(_LAST, last)[0] == upper
        if source and same and _is_same(values, operands(_IS_NUMBER, mask)[0], source):
            return source, int(lanes)
    return None


def _is_same(values: Mapping[str, str], first: str, second: str) -> bool:
    """Whether two names are of one value: where halves are put together LLVM leaves the same shuffle twice."""
    value = values.get(first, "")
    return first == second or (value.startswith("shufflevector ") and value == values.get(second))
