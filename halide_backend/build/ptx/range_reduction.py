"""The argument reduction of sine and cosine in PTX: short where the angle is small, as the branch of a thread.

Halide has no branch inside an expression: with `select` every angle would take the long way, which needs float64. Below
105,615 three terms of pi/2 are enough (Cody and Waite, as in NVIDIA's libdevice); beyond, as `algorithm.mathematics`
does it, with those bits of 2/pi that matter to the size of the angle (Payne and Hanek).
"""

from __future__ import annotations

import struct

#: Power of two from which a row is right, and 2/pi without the bits that add whole turns, in 29, 29 and 53 bits.
SEGMENTS = (
    (0, "0x1.45f306d000000p-1", "0x1.9391054000000p-30", "0x1.4fe13abe8fa9ap-59"),
    (28, "0x1.7cc1b70000000p-7", "0x1.391054a000000p-34", "0x1.fc2757d1f534cp-64"),
    (53, "0x1.c9c882a000000p-29", "0x1.4fe13aa000000p-59", "0x1.e8fa9a6ee06dbp-87"),
    (78, "0x1.4a7f09d000000p-54", "0x1.7d1f534000000p-84", "0x1.bb81b6c52b326p-113"),
    (103, "0x1.abe8fa9000000p-79", "0x1.4ddc0db000000p-108", "0x1.8a5664f10e410p-138"),
)

#: 2/pi, pi/2 with its sign changed in three terms, the end of the small angles; pi/2 in float64.
_TURNS, _TERMS, _SMALL = "0f3F22F983", ("0fBFC90FDA", "0fB3A22168", "0fA7C234C5"), "0f47CE4780"
_HALF_PI = "0d3FF921FB54442D18"

#: The same in float64: 2/pi, pi/2 with its sign changed in two terms, and 1.5 2**52.
_TURNS_64, _TERMS_64, _WHOLE = (
    "0x1.45f306dc9c883p-1",
    ("-0x1.921fb54442d18p+0", "-0x1.1a62633145c07p-54"),
    "0x1.8p52",
)


def _double(hexadecimal: str) -> str:
    return "0d" + struct.pack(">d", float.fromhex(hexadecimal)).hex().upper()


def _segments() -> str:
    """Instructions that choose the row for the angle `wide`."""
    lines = []
    for power, *row in SEGMENTS:
        bound = _double(f"0x1p{power}")
        lines.append(f"setp.ge.f64 above, wide, {bound};" if power else "")
        choose = "@above mov.f64" if power else "mov.f64"
        lines += [f"{choose} {name}, {_double(value)};" for name, value in zip("uvw", row)]
    return " ".join(filter(None, lines))


#: The rest of `wide`, in turns of pi/2, in `product`; how many whole ones there are in the word `q`.
_LONG_WAY = (
    ".reg .f64 u, v, w, product, whole; .reg .pred above; .reg .b64 turns, more; "
    + _segments()
    + " mul.rn.f64 product, wide, u; cvt.rni.f64.f64 whole, product; cvt.rni.s64.f64 turns, product; "
    "sub.rn.f64 product, product, whole; fma.rn.f64 product, wide, v, product; "
    "cvt.rni.f64.f64 whole, product; cvt.rni.s64.f64 more, product; "
    "sub.rn.f64 product, product, whole; fma.rn.f64 product, wide, w, product; "
    "add.s64 turns, turns, more; cvt.u32.u64 q, turns; "
)

#: The angle {0} >= 0, bits of a float32, as a quadrant in the high word of {result} and the rest in the low one, a
#: float32 of at most pi/4. {label} is a name that no other call has.
REDUCTION = (
    ".reg .f32 x, k, r; .reg .b32 q; .reg .pred small; mov.b32 x, {0}; "
    f"mul.rn.f32 k, x, {_TURNS}; cvt.rni.s32.f32 q, k; cvt.rn.f32.s32 k, q; mov.f32 r, x; "
    + " ".join(f"fma.rn.f32 r, k, {term}, r;" for term in _TERMS)
    + f" setp.lt.f32 small, x, {_SMALL}; @small bra {{label}};\n"
    "\t.reg .f64 wide; cvt.f64.f32 wide, x; "
    + _LONG_WAY
    + f"mul.rn.f64 product, product, {_HALF_PI}; cvt.rn.f32.f64 r, product;\n"
    "\t{label}: mov.b64 {result}, {{r, q}};"
)

#: The same with the rest as the float64 {result}, of whose last two bits the quadrant takes the place. A product with
#: 2/pi and a number of 53 bits, next to which only whole ones are, is rounded to a whole one.
WIDE_REDUCTION = (
    ".reg .f32 x; .reg .f64 wide, k, r; .reg .b32 q, low, high; .reg .pred small; mov.b32 x, {0}; "
    f"cvt.f64.f32 wide, x; fma.rn.f64 k, wide, {_double(_TURNS_64)}, {_double(_WHOLE)}; "
    f"mov.b64 {{{{q, high}}}}, k; sub.rn.f64 k, k, {_double(_WHOLE)}; "
    f"fma.rn.f64 r, k, {_double(_TERMS_64[0])}, wide; fma.rn.f64 r, k, {_double(_TERMS_64[1])}, r; "
    f"setp.lt.f32 small, x, {_SMALL}; @small bra {{label}};\n\t" + _LONG_WAY + f"mul.rn.f64 r, product, {_HALF_PI};\n"
    "\t{label}: mov.b64 {{low, high}}, r; and.b32 low, low, -4; and.b32 q, q, 3; or.b32 low, low, q; "
    "mov.b64 {result}, {{low, high}};"
)
