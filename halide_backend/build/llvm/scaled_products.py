"""Products with two powers of two become one instruction of AVX-512, `vscalefps`.

`times_power_of_two` multiplies twice, since 2**k alone may be beyond the format where the product is not. With making
two powers of two of an integer's bits, it takes seven instructions, a quarter of an exponential. `vscalefps` multiplies
with 2**floor(k) of any float k and rounds once, as those do; and there is that float, from whose bits k was taken. A
vector of two registers, as long formulas have, is multiplied in halves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from halide_backend.build.llvm.ir_syntax import FUNCTION, NAME, shuffle_mask
from halide_backend.build.target import Target

#: Bytes of the vectors of AVX-512, and float32 in one.
_VECTOR_BYTES, _LANES = 64, 16

_DEFINITION = re.compile(rf"^ *(?P<result>{NAME}) = (?P<value>.*)$", re.MULTILINE)
_PRODUCT = re.compile(
    rf"^(?P<indent> *)(?P<result>{NAME}) = fmul <(?P<lanes>4|8|16|32) x float> (?P<left>{NAME}), (?P<right>{NAME})$",
    re.MULTILINE,
)

# What LLVM makes of x * 2**(k // 2) * 2**(k - k // 2), where k is in the bits of a float, k + 1.5 * 2**23; and of that
# float less 1.5 * 2**23.
_POWER = re.compile(rf"bitcast <\d+ x i32> ({NAME}) to <\d+ x float>")
_BIASED = re.compile(rf"add <\d+ x i32> ({NAME}), splat \(i32 1065353216\)")
_HALF = re.compile(rf"and <\d+ x i32> ({NAME}), splat \(i32 -8388608\)")
_REST = re.compile(rf"sub <\d+ x i32> ({NAME}), ({NAME})")
_SHIFTED = {places: re.compile(rf"shl <\d+ x i32> ({NAME}), splat \(i32 {places}\)") for places in (22, 23)}
_BITS = re.compile(rf"bitcast <\d+ x float> ({NAME}) to <\d+ x i32>")
_FIRST_PRODUCT = re.compile(rf"fmul (?:contract )?<\d+ x float> ({NAME}), ({NAME})")
_BIAS = "splat (float 0xC168000000000000)"
_WHOLE = re.compile(rf"fadd (?:contract )?<\d+ x float> ({NAME}), {re.escape(_BIAS)}")


def with_scaled_products(ir: str, target: Target) -> str:
    """LLVM IR that computes the same with fewer instructions, if `target` has AVX-512."""
    if target.vector_bytes < _VECTOR_BYTES:
        return ir
    declarations: set[str] = set()

    def in_function(function: re.Match[str]) -> str:
        if _BIAS not in function[0]:
            return function[0]
        values = dict(_DEFINITION.findall(function[0]))
        # The float k, by the name of k + 1.5 * 2**23.
        wholes = {match[1]: name for name, value in values.items() if (match := _WHOLE.fullmatch(value))}

        def scaled(product: re.Match[str]) -> str:
            found = _factor_and_bits(values, product["left"], product["right"])
            if found is None or found[1] not in wholes:
                return product[0]
            lanes = min(int(product["lanes"]), _LANES)
            declarations.add(_declaration(lanes))
            lines = _scaled(product["result"], found[0], wholes[found[1]], int(product["lanes"]))
            return "\n".join(f"{product['indent']}{line}" for line in lines)

        return _PRODUCT.sub(scaled, function[0])

    rewritten = FUNCTION.sub(in_function, ir)
    return "\n".join([rewritten, *sorted(declarations), ""]) if declarations else ir


def _instruction(lanes: int) -> tuple[str, str, bool]:
    """Its name, the type of its mask, and whether it is told how to round: only the widest form can be."""
    return f"@llvm.x86.avx512.mask.scalef.ps.{32 * lanes}", f"i{max(8, lanes)}", lanes == _LANES


def _declaration(lanes: int) -> str:
    (name, mask, rounds), vector = _instruction(lanes), f"<{lanes} x float>"
    return f"declare {vector} {name}({vector}, {vector}, {vector}, {mask}{', i32' if rounds else ''})"


def _scaled(result: str, factor: str, exponent: str, lanes: int) -> list[str]:
    """Lines that make `result`, the product of `factor` and 2**`exponent`."""
    if lanes > _LANES:
        half, lines, whole = lanes // 2, [], f"<{lanes} x float>"
        for part, first in (("lower", 0), ("upper", half)):
            names = [_name(result, f"{part}.{what}") for what in ("factor", "exponent", "product")]
            for name, source in zip(names, (factor, exponent)):
                taken = f"{whole} {source}, {whole} poison, {shuffle_mask(first, half)}"
                lines.append(f"{name} = shufflevector {taken}")
            lines += _scaled(names[2], names[0], names[1], half)
        lower, upper = (f"<{half} x float> {_name(result, f'{part}.product')}" for part in ("lower", "upper"))
        return [*lines, f"{result} = shufflevector {lower}, {upper}, {shuffle_mask(0, lanes)}"]
    (name, mask, rounds), vector = _instruction(lanes), f"<{lanes} x float>"
    arguments = f"{vector} {factor}, {vector} {exponent}, {vector} zeroinitializer, {mask} -1"
    # 4: round as the processor is set to.
    return [f"{result} = call {vector} {name}({arguments}{', i32 4' if rounds else ''})"]


def _name(value: str, part: str) -> str:
    """The name of a part of the product that is known as `value`."""
    return f'%"scaled.{part}.{value.lstrip("%").strip(chr(34))}"'


def _factor_and_bits(values: Mapping[str, str], left: str, right: str) -> tuple[str, str] | None:
    """(x, the float whose bits hold k) of a product x * 2**(k // 2) times 2**(k - k // 2); None if it is none."""

    def operands(pattern: re.Pattern[str], name: str) -> tuple[str, ...]:
        match = pattern.fullmatch(values.get(name, ""))
        return match.groups() if match else ("", "")

    first = operands(_FIRST_PRODUCT, left)
    half = operands(_HALF, operands(_BIASED, operands(_POWER, first[1])[0])[0])[0]
    rest = operands(_REST, operands(_BIASED, operands(_POWER, right)[0])[0])
    bits = operands(_SHIFTED[22], half)[0]
    if not bits or operands(_SHIFTED[23], rest[0])[0] != bits or operands(_HALF, rest[1])[0] != half:
        return None
    source = operands(_BITS, bits)[0]
    return (first[0], source) if source else None
