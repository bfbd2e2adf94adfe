"""What lgamma of a positive number is taken from to be that of a negative one, in PTX, as the branch of a thread.

Halide has no branch inside an expression: with `select` positive numbers would take these 25 instructions of float64,
too, which is half as many again as without.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

# sin(pi f) / (pi f) in f**2 <= 1/4, relative error 2**-35.4 (SIN_PI_35 of kernel_library.cuda.gamma, over pi).
SINE = (
    -0.0022351804528039903,
    0.026116180715127467,
    -0.19074761790957262,
    0.8117421704115746,
    -1.6449340611308072,
    0.9999999999788184,
)
# log((1 + s) / (1 - s)) / s in s**2, relative error 2**-37.8 (LOG_SERIES_38 of kernel_library.cuda.wide_arithmetic).
LOGARITHM = (
    0.23619726213107017,
    0.28534863928166854,
    0.4000038789629563,
    0.6666666522996821,
    2.0000000000085114,
)


def _double(number: float) -> str:
    return "0d" + struct.pack(">d", number).hex().upper()


def _polynomial(result: str, x: str, coefficients: Sequence[float]) -> str:
    steps = [f"fma.rn.f64 {result}, {result}, {x}, {_double(number)};" for number in coefficients[1:]]
    return " ".join([f"mov.f64 {result}, {_double(coefficients[0])};", *steps])


#: -log(sin(pi a) / pi), less log(a) from a = 1/2 on, for {0} = -a, bits of a float32; infinite where a is whole, 0 if
#: {0} is no negative number. {label} is a name that no other call has.
#:
#: What is left of the nearest whole number is exact in float32. The logarithm is as in `wide_arithmetic.log`.
REFLECTION = (
    ".reg .f32 x, a, f; .reg .f64 y; .reg .pred above; mov.b32 x, {0}; mov.f64 y, 0d0000000000000000; "
    "setp.geu.f32 above, x, 0f00000000; @above bra {label};\n"
    "\t.reg .f64 wide, z, s, m, n, d, r; .reg .b32 low, high, e, k; .reg .pred half, whole; "
    # 2**23, from which on all are whole.
    "neg.f32 a, x; min.f32 x, a, 0f4B000000; add.rn.f32 f, x, 0f4B000000; sub.rn.f32 f, f, 0f4B000000; "
    "sub.rn.f32 f, x, f; abs.f32 f, f; setp.eq.f32 whole, f, 0f00000000; "
    f"cvt.f64.f32 s, f; mul.rn.f64 z, s, s; {_polynomial('m', 'z', SINE)} mul.rn.f64 s, s, m; "
    "cvt.f64.f32 wide, a; setp.lt.f32 half, a, 0f3F000000; @!half mul.rn.f64 s, s, wide; "
    "mov.b64 {{low, high}}, s; sub.u32 e, high, 0x3FE6A09E; shr.s32 e, e, 20; shl.b32 k, e, 20; sub.u32 high, high, k; "
    f"mov.b64 m, {{{{low, high}}}}; add.rn.f64 n, m, {_double(-1)}; add.rn.f64 d, m, {_double(1)}; "
    "rcp.approx.ftz.f64 r, d; mul.rn.f64 s, n, r; neg.f64 d, d; fma.rn.f64 n, s, d, n; fma.rn.f64 s, n, r, s; "
    f"mul.rn.f64 z, s, s; {_polynomial('m', 'z', LOGARITHM)} neg.f64 s, s; mul.rn.f64 m, m, s; "
    f"cvt.rn.f64.s32 n, e; fma.rn.f64 y, n, {_double(-math.log(2))}, m; @whole mov.f64 y, {_double(math.inf)};\n"
    "\t{label}: mov.b64 {result}, y;"
)
