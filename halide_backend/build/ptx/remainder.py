"""The remainder of a division of float32 in PTX, exact, as the branch of a thread: short where the quotient is small.

Halide has no branch inside an expression: with `select` every division would take the long way, too, with its products
of 64-bit integers.
"""

from __future__ import annotations

#: Quotients up to which one multiple of the divisor is taken away, 2**18; and the factor 1 + 2**-20, by which one that
#: is wrong by 2 ulp is never too small, and too large by less than one. Infinity, and NaN.
_SMALL, _UPWARDS, _INFINITE, _NAN = "0f48800000", "0f3F800008", "0f7F800000", "0f7FC00000"

#: What is left of |{0}| when {1} is taken away as often as it goes, with the sign of {0}, bits of float32 all of them.
#: {label} is a name that no other call has.
#:
#: A multiple that is one too many leaves -|y| or more, a multiple of the last place of y, which a float32 holds. Far
#: away, y times a power of two is taken away first: its multiples are multiples of y, and what they leave has 24 bits
#: again. A quotient of such numbers below 2**26 that is not whole is 2**-24 away from one, in float64 off by 2**-27.
REMAINDER = (
    ".reg .f32 x, a, b, q, r; .reg .pred small, near, wrong; mov.b32 x, {0}; mov.b32 b, {1}; "
    "abs.f32 a, x; abs.f32 b, b; div.full.f32 q, a, b; "
    f"setp.lt.f32 near, q, {_SMALL}; mul.rn.f32 q, q, {_UPWARDS}; cvt.rzi.f32.f32 q, q; neg.f32 q, q; "
    "fma.rn.f32 r, q, b, a; setp.lt.f32 wrong, r, 0f00000000; @wrong add.rn.f32 r, r, b; "
    "setp.lt.f32 small, a, b; @small mov.f32 r, a; @near bra {label};\n"
    "\t.reg .f64 rest, y, t, n; .reg .b32 low, high, k, e; .reg .pred number, more; "
    f"mov.f32 r, {_NAN}; setp.lt.f32 number, a, {_INFINITE}; setp.gt.and.f32 number, b, 0f00000000, number; "
    "@!number bra {label};\n"
    "\tcvt.f64.f32 rest, a; cvt.f64.f32 y, b;\n"
    # t is y times the power of two, if not 1, that brings its exponent within 24 of that of the rest.
    "\t{label}_again: mov.b64 {{low, k}}, rest; mov.b64 {{low, high}}, y; shr.u32 k, k, 20; sub.s32 k, k, 24; "
    "shr.u32 e, high, 20; sub.s32 k, k, e; max.s32 k, k, 0; shl.b32 k, k, 20; add.u32 high, high, k; "
    "mov.b64 t, {{low, high}}; div.rn.f64 n, rest, t; cvt.rzi.f64.f64 n, n; neg.f64 n, n; "
    "fma.rn.f64 rest, n, t, rest; setp.ge.f64 more, rest, y; @more bra {label}_again;\n"
    "\tcvt.rn.f32.f64 r, rest;\n"
    "\t{label}: copysign.f32 r, x, r; mov.b32 {result}, r;"
)
