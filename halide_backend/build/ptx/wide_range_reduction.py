"""The argument reduction of large float64 angles in PTX, as the branch of a thread (Payne and Hanek 1983).

As `kernel_library.mathematics.angle` has it, with products of 64-bit integers. What is left of an angle has two parts,
and a call has one result: two calls make either, which costs little where angles are rarely so large.
"""

from __future__ import annotations

import struct
from itertools import pairwise

#: floor(2/pi * 2**1216), as in `kernel_library.mathematics.angle`.
TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424d"
    "d2e006492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639"
    "835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f46"
    "3f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6bab",
    16,
)
#: Its words of 64 bits, a zero before them.
_WORDS = (0, *((TWO_OVER_PI >> (1216 - 64 - 64 * k)) & (2**64 - 1) for k in range(19)))

#: Where large angles begin; pi/2 in two parts.
_LARGE = 2.0**30
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17)


def _double(number: float) -> str:
    return "0d" + struct.pack(">d", number).hex().upper()


def _window() -> str:
    """Instructions that put four of the words, from number `place` on (at most 16), into w0 to w3."""
    lines = [".reg .pred ahead; " + " ".join(f"mov.b64 w{k}, {word};" for k, word in enumerate(_WORDS))]
    held = len(_WORDS)
    # The last place is 16: 15, and one more.
    lines.append(".reg .pred last; setp.eq.u32 last, place, 16; .reg .b32 bit;")
    for step in (8, 4, 2, 1):
        held = min(held - step, step + 4)
        lines.append(f"and.b32 bit, place, {step}; setp.ne.u32 ahead, bit, 0; or.pred ahead, ahead, last;")
        lines += [f"selp.b64 w{k}, w{k + step}, w{k}, ahead;" for k in range(held)]
    lines += [f"selp.b64 w{k}, w{k + 1}, w{k}, last;" for k in range(4)]
    return f".reg .b64 {', '.join(f'w{k}' for k in range(len(_WORDS)))}; " + " ".join(lines)


def _reduction(result: str) -> str:
    """What the instructions `result` put into `found`, made of the parts y and low of what is left, whose signs are to
    be changed by `flip`, and the quadrant q; or {1}, where the angle {0} >= 0, bits of a float64, is not large."""
    aligned = " ".join(
        f"shl.b64 w{k}, w{k}, shift; shr.u64 more, w{later}, 1; shr.u64 more, more, back; or.b64 w{k}, w{k}, more;"
        for k, later in pairwise(range(4))
    )
    return (
        ".reg .f64 x; .reg .b64 found; .reg .pred small; mov.b64 x, {0}; mov.b64 found, {1}; "
        f"setp.ltu.f64 small, x, {_double(_LARGE)}; @small bra {{label}};\n"
        "\t.reg .b64 m, t, u, v, flip, more, q; .reg .b32 place, shift, back; .reg .pred carry; "
        ".reg .f64 a, b, c, s, y, low; "
        # |x| is m 2**E: of 2/pi the 192 bits from weight 2**(1 - E) down.
        "mov.b64 m, {0}; shr.u64 t, m, 52; cvt.u32.u64 place, t; sub.u32 place, place, 1013; and.b32 shift, place, 63; "
        "shr.u32 place, place, 6; sub.u32 back, 63, shift; "
        f"and.b64 m, m, {2**52 - 1}; or.b64 m, m, {2**52}; " + _window() + aligned + " "
        # The product's 128 highest bits are u and t, those of fractions of a quarter turn then.
        "mul.lo.u64 t, w1, m; mul.hi.u64 v, w2, m; add.u64 t, t, v; setp.lt.u64 carry, t, v; "
        "mul.lo.u64 u, w0, m; mul.hi.u64 v, w1, m; add.u64 u, u, v; selp.b64 v, 1, 0, carry; add.u64 u, u, v; "
        "shr.u64 q, u, 62; shl.b64 u, u, 2; shr.u64 v, t, 62; or.b64 u, u, v; shl.b64 t, t, 2; "
        "shr.u64 v, u, 63; add.u64 q, q, v; sub.u64 v, 0, v; xor.b64 u, u, v; xor.b64 t, t, v; shl.b64 flip, v, 63; "
        # In parts of 53 bits and one of 22.
        f"and.b64 v, u, 0xFFFFFFFFFFFFF800; cvt.rn.f64.u64 a, v; mul.rn.f64 a, a, {_double(2.0**-64)}; "
        "shl.b64 u, u, 53; shr.u64 v, t, 11; or.b64 u, u, v; "
        f"and.b64 v, u, 0xFFFFFFFFFFFFF800; cvt.rn.f64.u64 b, v; mul.rn.f64 b, b, {_double(2.0**-117)}; "
        f"and.b64 u, u, {2**11 - 1}; shl.b64 u, u, 11; and.b64 t, t, {2**11 - 1}; or.b64 u, u, t; "
        f"cvt.rn.f64.u64 c, u; mul.rn.f64 c, c, {_double(2.0**-128)}; "
        "add.rn.f64 s, a, b; sub.rn.f64 a, s, a; sub.rn.f64 b, b, a; add.rn.f64 b, b, c; "
        "add.rn.f64 a, s, b; sub.rn.f64 s, a, s; sub.rn.f64 b, b, s; "
        # Times pi/2: a and b are turns, y and low are angles.
        f"mul.rn.f64 y, a, {_double(_HALF_PI[0])}; neg.f64 s, y; fma.rn.f64 low, a, {_double(_HALF_PI[0])}, s; "
        f"fma.rn.f64 low, a, {_double(_HALF_PI[1])}, low; fma.rn.f64 low, b, {_double(_HALF_PI[0])}, low; "
        "add.rn.f64 s, y, low; sub.rn.f64 y, s, y; sub.rn.f64 low, low, y; mov.f64 y, s; "
        + result
        + "\n\t{label}: mov.b64 {result}, found;"
    )


#: What a large angle {0} leaves, and the rest of that, whose two last bits are those of the quadrant.
LARGE_ANGLE = _reduction("mov.b64 found, y; xor.b64 found, found, flip;")
REST_OF_LARGE_ANGLE = _reduction(
    "mov.b64 found, low; xor.b64 found, found, flip; and.b64 found, found, -4; and.b64 q, q, 3; or.b64 found, found, q;"
)
