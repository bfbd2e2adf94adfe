"""Modified Bessel functions of float32: rounded from float64, or, for 16 bits, within 2**-16 of what is right.

Polynomials in x**2, and of 1/|x| beyond, with an exponential and a reciprocal root for both (DLMF 10.25.2, 10.40.1).
Coefficients by tests/kernel_library/mathematics/cuda_fits.py.
"""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library import operations as portable
from halide_backend.kernel_library.cuda import intrinsics
from halide_backend.kernel_library.cuda.polynomial import fused_polynomial
from halide_backend.kernel_library.cuda.wide_arithmetic import exp2, reciprocal_root
from halide_backend.kernel_library.mathematics.polynomial import polynomial

__all__ = ["i0", "i0e", "i1", "i1e", "rough_i0", "rough_i0e", "rough_i1", "rough_i1e"]

_SINGLE, _DOUBLE = hl.Float(32), hl.Float(64)
_Series = tuple[float, ...]

# i0(x) in x**2 up to 64, and up to 25 for 16 bits, relative errors 2**-37.0 and 2**-21.2; the same of i1(x) / x,
# 2**-39.3 and 2**-18.2.
I0_NEAR = (
    2.680399574188004e-22,
    5.3515354015823524e-20,
    3.059873971144088e-17,
    9.300162971458187e-15,
    2.405696405114862e-12,
    4.708875249295767e-10,
    6.781770463055726e-08,
    6.781676806979543e-06,
    0.0004340278115124062,
    0.015624999923796878,
    0.25000000006202683,
    0.9999999999924871,
)
ROUGH_I0_NEAR = (
    6.973922913339503e-10,
    6.066283443718506e-08,
    6.8868168658721495e-06,
    0.00043327892649045667,
    0.015627370051877438,
    0.24999743996181845,
    1.0000003970804239,
)
I1_NEAR = (
    1.0855349193467286e-23,
    2.532510572567785e-21,
    1.5162748265794177e-18,
    5.177191517557648e-16,
    1.5030713670338277e-13,
    3.363627551328915e-11,
    5.651448051611895e-09,
    6.781679974585985e-07,
    5.425347431393236e-05,
    0.002604166661327079,
    0.06250000000506306,
    0.4999999999992559,
)
ROUGH_I1_NEAR = (
    8.451723588022509e-09,
    6.037903573666405e-07,
    5.5107762573396084e-05,
    0.002599981458669327,
    0.06250697542956485,
    0.4999982953217131,
)
# sqrt(x) i0e(x) in 1/x from there on, relative errors 2**-33.4 and 2**-20.5; the same of i1e, 2**-33.2 and 2**-20.1.
I0_FAR = (
    -0.11759606498362925,
    8.609552687087572,
    -1.929582766254927,
    0.3407779809577346,
    0.029862620254585314,
    0.02968231567047336,
    0.02804369662103169,
    0.049867824199328524,
    0.39894228036527457,
)
ROUGH_I0_FAR = (
    0.1990228826825247,
    -0.004817530743771645,
    0.03067097227659968,
    0.0498008576499528,
    0.39894254986769817,
)
I1_FAR = (
    -2.660015736131433,
    -8.348535657839014,
    1.9051947944529501,
    -0.36856342530978603,
    -0.04197738802386939,
    -0.04139616734589498,
    -0.04674365188941336,
    -0.14960339735468225,
    0.3989422804408813,
)
ROUGH_I1_FAR = (
    -0.24362565278241596,
    0.0006355772519730731,
    -0.05000043909848597,
    -0.14951870103777862,
    0.39894193070310785,
)

_END, _ROUGH_END = 8, 5

#: From which on i0 and i1 are infinite; their exponential is not, times what takes 20 from its exponent.
_LAST, _POWER = 100, 20


def i0(x: hl.Expr) -> hl.Expr:
    return _wide(x, I0_NEAR, I0_FAR)


def i0e(x: hl.Expr) -> hl.Expr:
    """exp(-|x|) i0(x)."""
    return _wide(x, I0_NEAR, I0_FAR, scaled=True)


def i1(x: hl.Expr) -> hl.Expr:
    return _wide(x, I1_NEAR, I1_FAR, odd=True)


def i1e(x: hl.Expr) -> hl.Expr:
    """exp(-|x|) i1(x)."""
    return _wide(x, I1_NEAR, I1_FAR, odd=True, scaled=True)


def rough_i0(x: hl.Expr) -> hl.Expr:
    return _rough(x, ROUGH_I0_NEAR, ROUGH_I0_FAR)


def rough_i0e(x: hl.Expr) -> hl.Expr:
    return _rough(x, ROUGH_I0_NEAR, ROUGH_I0_FAR, scaled=True)


def rough_i1(x: hl.Expr) -> hl.Expr:
    return _rough(x, ROUGH_I1_NEAR, ROUGH_I1_FAR, odd=True)


def rough_i1e(x: hl.Expr) -> hl.Expr:
    return _rough(x, ROUGH_I1_NEAR, ROUGH_I1_FAR, odd=True, scaled=True)


def _wide(x: hl.Expr, near: _Series, far: _Series, *, odd: bool = False, scaled: bool = False) -> hl.Expr:
    """A function of its polynomials `near` and `far`; `odd` for one that has x as a factor, `scaled` by exp(-|x|)."""
    a = portable.abs(x)
    wide = hl.cast(_DOUBLE, a if scaled else intrinsics.minimum(a, hl.f32(_LAST)))
    start = polynomial(wide * wide, near)
    if odd:
        start = start * wide
    r = reciprocal_root(wide)
    rest = polynomial(r * r, far) * r
    if scaled:
        start = start * exp2(hl.cast(_DOUBLE, intrinsics.minimum(a, hl.f32(_END))) * hl.f64(-1 / math.log(2)))
    else:
        rest = rest * exp2(wide * hl.f64(1 / math.log(2)))
    y = hl.cast(_SINGLE, hl.select(a < hl.f32(_END), start, rest))
    if scaled:
        y = hl.select(a == hl.f32(math.inf), hl.f32(0), y)
    return portable.copysign(y, x) if odd else y


def _rough(x: hl.Expr, near: _Series, far: _Series, *, odd: bool = False, scaled: bool = False) -> hl.Expr:
    a = portable.abs(x)
    bounded = a if scaled else intrinsics.minimum(a, hl.f32(_LAST))
    start = fused_polynomial(a * a, near)
    if odd:
        start = start * a
    r = intrinsics.rsqrt_of_normal(bounded)
    rest = fused_polynomial(r * r, far) * r
    if scaled:
        start = start * intrinsics.exp2_of_normal(intrinsics.minimum(a, hl.f32(_ROUGH_END)) * hl.f32(-1 / math.log(2)))
    else:
        exponent = intrinsics.fma(bounded, hl.f32(1 / math.log(2)), hl.f32(-_POWER))
        rest = rest * hl.f32(2.0**_POWER) * intrinsics.exp2_of_normal(exponent)
    y = hl.select(a < hl.f32(_ROUGH_END), start, rest)
    return portable.copysign(y, x) if odd else y
