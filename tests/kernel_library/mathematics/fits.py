"""The approximation problems behind the coefficients in `halide_backend.kernel_library.mathematics`.

`python tests/kernel_library/mathematics/fits.py [NAME...]` solves them again and prints coefficients and errors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import mpmath as mp
from fit import Fit, relative
from incomplete_gamma_fits import INCOMPLETE_GAMMA_FITS
from minimax import Function, minimax
from rounding import rounded
from special_fits import SPECIAL_FITS

from halide_backend.kernel_library.mathematics import error_function, gamma_64, hyperbolic, trigonometric

LN2_HALF = float(mp.log(2) / 2) * 1.002
QUARTER_PI_SQUARED = float((mp.pi / 4 * 1.01) ** 2)
LOG_S_SQUARED = float(((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2) * 1.001


def without_start(f: Function, tail: int, radius: float = 0.01) -> Function:
    """(f less its Taylor terms below x**tail) / x**tail, by the series near 0."""
    c = mp.taylor(f, 0, tail + 30)

    def quotient(x: mp.mpf) -> mp.mpf:
        if abs(x) < radius:
            return mp.polyval(c[tail:][::-1], x)
        return (f(x) - mp.polyval(c[:tail][::-1], x)) / x**tail

    return quotient


def odd(f: Function, tail: int = 3, radius: float = 1e-3) -> Function:
    """The same for an odd f, as a function of z = x**2."""
    c = mp.taylor(f, 0, 41)

    def quotient(z: mp.mpf) -> mp.mpf:
        if z < radius:
            return sum(c[i] * z ** ((i - tail) // 2) for i in range(tail, 41, 2))
        x = mp.sqrt(z)
        return (f(x) - sum(c[i] * x**i for i in range(1, tail, 2))) / x**tail

    return quotient


def less(c: float, f: Function) -> Function:
    return lambda z: f(z) - c


def of_odd(f: Function) -> Function:
    """Weight that turns an error of odd(f) into a relative error of f."""
    return lambda z: z * mp.sqrt(z) / f(mp.sqrt(z)) if z else mp.mpf(0)


def cosine_rest(z: mp.mpf) -> mp.mpf:
    if z < 1e-3:
        return sum((-1) ** i * z**i / mp.factorial(2 * i + 4) for i in range(12))
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2


def tangent_ratio(z: mp.mpf) -> mp.mpf:
    return mp.tan(mp.sqrt(z)) / mp.sqrt(z) if z > 1e-12 else 1 + z / 3


def erf_ratio(z: mp.mpf) -> mp.mpf:
    """erf(x)/x - 1."""
    if z < 1e-8:
        return 2 / mp.sqrt(mp.pi) * (1 - z / 3 + z * z / 10) - 1
    return mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1


def erf_rest(z: mp.mpf) -> mp.mpf:
    return erf_ratio(z) - error_function.ERF_CUBIC * z - mp.mpf(1) / 8


def scaled_erfc(t: mp.mpf) -> mp.mpf:
    a = 4 * (1 + t) / (1 - t)
    return (1 + 2 * a) * mp.exp(a * a) * mp.erfc(a)


def erfc_position(a: float) -> float:
    return (a - 4) / (a + 4)


def erfinv_center(r: mp.mpf) -> mp.mpf:
    z = mp.mpf(0.5625) - r
    return (mp.erfinv(mp.sqrt(z)) / mp.sqrt(z) if z > 1e-16 else mp.sqrt(mp.pi) / 2) - 1


def erfinv_tail(s: mp.mpf) -> mp.mpf:
    """1 - erfinv(1 - exp(-s**2)) / s, by Newton's method."""
    y = s if s > 2 else s * 0.8
    for _ in range(60):
        e = mp.erfc(y)
        step = (mp.log(e) + s * s) * e * mp.sqrt(mp.pi) / 2 * mp.exp(y * y)
        y += step
        if abs(step) < mp.mpf(10) ** -50:
            break
    return 1 - y / s


def acosh_ratio(t: mp.mpf) -> mp.mpf:
    return (mp.acosh(1 + t) / mp.sqrt(2 * t) - 1) / t if t > 1e-12 else -mp.mpf(1) / 12 + 3 * t / 160


def lgamma_ratio(v: mp.mpf) -> mp.mpf:
    y = v - 0.5
    if abs(y) < 1e-18:
        return mp.mpf(mp.euler)
    return 1 - mp.euler if abs(y - 1) < 1e-18 else mp.loggamma(1 + y) / (y * (y - 1))


def stirling(v: mp.mpf) -> mp.mpf:
    if v < 1e-10:
        return mp.mpf(1) / 12 - v / 360
    x = 1 / mp.sqrt(v)
    return (mp.loggamma(x) - ((x - 0.5) * mp.log(x) - x + mp.log(2 * mp.pi) / 2)) * x


def sine_pi(z: mp.mpf) -> mp.mpf:
    return mp.sinpi(mp.sqrt(z)) / mp.sqrt(z) if z > 1e-20 else mp.mpf(mp.pi)


def sine_pi_rest(w: mp.mpf) -> mp.mpf:
    z = w + gamma_64.SIN_PI_MIDDLE
    return (sine_pi(z) / mp.pi - 1) / z - gamma_64.SIN_PI_CUBIC


def cotangent_rest(z: mp.mpf) -> mp.mpf:
    if z < 1e-10:
        return 4 - 2 * (mp.zeta(2) + mp.zeta(4) * z)
    f = mp.sqrt(z)
    return 4 - (1 / f - mp.pi * mp.cot(mp.pi * f)) / f


ZERO = mp.findroot(mp.digamma, 1.4616)


def digamma_ratio(y: mp.mpf) -> mp.mpf:
    x = 1 + y
    return mp.digamma(x) / (x - ZERO) if abs(x - ZERO) > 1e-20 else mp.psi(1, ZERO)


def digamma_series(v: mp.mpf) -> mp.mpf:
    if v < 1e-10:
        return mp.mpf(1) / 12 - v / 120
    x = 1 / mp.sqrt(v)
    return (mp.log(x) - 1 / (2 * x) - mp.digamma(x)) * x * x


def _exponential(name: str, limit: float, p: int, error: float) -> Fit:
    def weight(r: mp.mpf) -> mp.mpf:
        return r * r / mp.exp(r)

    return Fit("exponential", name, without_start(mp.exp, 2), -limit, limit, p, 0, error, weight)


def _expm1(name: str, p: int, error: float) -> Fit:
    def weight(r: mp.mpf) -> mp.mpf:
        return r * r / mp.expm1(r) if r else mp.mpf(0)

    return Fit("exponential", name, without_start(mp.expm1, 2), -0.5, 0.5002, p, 0, error, weight)


def _exp2(module: str, name: str, p: int, error: float, fixed: int | None = None) -> Fit:
    f = without_start(lambda r: mp.mpf(2) ** r, 1)
    return Fit(module, name, f, -0.501, 0.5, p, 0, error, lambda r: r / mp.mpf(2) ** r, fixed=fixed)


def _half_range(module: str, name: str, f: Callable[..., mp.mpf], p: int, error: float) -> Fit:
    return Fit(module, name, f, 0, LOG_S_SQUARED, p, 0, error, lambda z: z)


FITS = (
    _exponential("EXP_32", LN2_HALF, 4, -28.2),
    _exponential("EXP_64", LN2_HALF, 9, -56.8),
    _expm1("EXPM1_32", 5, -28.2),
    _expm1("EXPM1_64", 11, -57.7),
    _exp2("exponential", "EXP2_32", 6, -30.9, fixed=1),
    _exp2("exponential", "EXP2_64", 10, -55.6),
    _exp2("power", "EXP2_SERIES", 6, -33.7),
    Fit(
        *("logarithm", "LOG_32", without_start(mp.log1p, 3)),
        *(-0.3126, 0.3751, 8, 0, -29.5),
        lambda f: f**3 / mp.log1p(f) if f else mp.mpf(0),
        fixed=0,
    ),
    Fit(
        *("logarithm", "LOG1P_UNIT_32", without_start(mp.log1p, 2), 0, 1.0, 8, 0, -26.6),
        lambda t: t * t / mp.log1p(t) if t else mp.mpf(0),
        fixed=0,
    ),
    _half_range("logarithm", "LOG_64", odd(lambda s: 2 * mp.atanh(s)), 6, -58.1),
    Fit(
        *("logarithm", "ATANH_TAIL", odd(lambda s: 3 * mp.atanh(s), 5)),
        *(0, LOG_S_SQUARED, 7, 0, -67.5, lambda z: z * z / 3),
    ),
    Fit(
        *("power", "LOG2_SERIES", odd(lambda s: 2 * mp.atanh(s) / mp.log(2), 1)),
        *(0, LOG_S_SQUARED, 5, 0, -45.1, lambda z: mp.mpf(1) / 3),
    ),
    Fit("trigonometric", "SIN_32", odd(mp.sin), 0, QUARTER_PI_SQUARED, 2, 0, -27.9, lambda z: z),
    Fit(
        *("trigonometric", "SIN_64", less(trigonometric.SIN_CUBIC, odd(mp.sin)), 0, QUARTER_PI_SQUARED),
        *(5, 0, -57.7, lambda z: z),
    ),
    Fit("trigonometric", "COS_32", cosine_rest, 0, QUARTER_PI_SQUARED, 2, 0, -33.1, lambda z: z * z),
    Fit("trigonometric", "COS_64", cosine_rest, 0, QUARTER_PI_SQUARED, 5, 0, -59.4, lambda z: z * z),
    Fit(
        *("trigonometric", "TAN_32_P", tangent_ratio, 0, 0.618, 2, 2, -35.3),
        *(relative(tangent_ratio), "TAN_32_Q"),
    ),
    Fit("hyperbolic", "TANH_32", odd(mp.tanh), 0, 1.002, 6, 0, -27.6, of_odd(mp.tanh), fixed=2),
    Fit(
        *("hyperbolic", "TANH_64_P", less(hyperbolic.TANH_CUBIC, odd(mp.tanh)), 0, 0.6255**2, 3, 2, -57.6),
        *(lambda z: z, "TANH_64_Q"),
    ),
    Fit("hyperbolic", "SINH_64", odd(mp.sinh), 0, 1.01, 6, 0, -56.4, of_odd(mp.sinh)),
    Fit(
        *("error_function", "ERF_32", erf_ratio, 0, 0.81, 5, 0, -26.2),
        lambda z: 1 / (1 + erf_ratio(z)),
    ),
    Fit(
        *("error_function", "ERF_64_P", erf_rest, 0, 0.7226, 5, 4, -57.8),
        *(lambda z: 1 / (1 + erf_ratio(z)), "ERF_64_Q"),
    ),
    Fit(*("error_function", "ERF_64", erf_ratio, 0, 1.001, 12, 0, -56.3), lambda z: 1 / (1 + erf_ratio(z))),
    Fit(
        *("error_function", "LOG_ERFC_64", lambda a: -mp.log(mp.erfc(a)), 0.999, 6, 17, 0, -56.6),
        lambda a: mp.erfc(a) / mp.erf(a),
    ),
    Fit(
        *("error_function", "LOG_ERFC_32", lambda a: -mp.log(mp.erfc(a)), 0.9, 4, 7, 0, -26.1),
        lambda a: mp.erfc(a) / mp.erf(a),
    ),
    Fit(
        *("error_function", "SCALED_ERFC_64", scaled_erfc),
        *(erfc_position(0.5), erfc_position(28), 21, 0, -54.0, relative(scaled_erfc)),
    ),
    Fit(
        *("error_function", "SCALED_ERFC_32", scaled_erfc),
        *(erfc_position(0.5), erfc_position(11), 9, 0, -28.6, relative(scaled_erfc)),
    ),
    Fit(
        *("inverse_error_function", "CENTER_P", erfinv_center, 0, 0.5625, 7, 7, -58.0),
        denominator="CENTER_Q",
    ),
    Fit(
        *("inverse_error_function", "NEAR_P", lambda u: erfinv_tail(mp.mpf(1.177) + u)),
        *(0, 3 - 1.177, 7, 7, -55.0),
        denominator="NEAR_Q",
    ),
    Fit(
        *("inverse_error_function", "FAR_P", lambda v: erfinv_tail(mp.mpf(2.999) + v)),
        *(0, 6.07 - 2.999, 6, 6, -55.0),
        denominator="FAR_Q",
    ),
    Fit(
        *("normal_distribution", "FARTHEST_P", lambda v: erfinv_tail(mp.mpf(6) + v)),
        *(0, 21.4, 8, 8, -55.0),
        denominator="FARTHEST_Q",
    ),
    Fit(
        *("inverse_trigonometric", "ASIN_P", odd(mp.asin), 0, 0.2505, 5, 4, -56.9),
        *(of_odd(mp.asin), "ASIN_Q"),
    ),
    Fit(
        *("inverse_trigonometric", "ATAN_P", odd(mp.atan), 0, (7 / 16) ** 2 * 1.002, 4, 4, -57.5),
        *(of_odd(mp.atan), "ATAN_Q"),
    ),
    Fit(*("inverse_trigonometric", "ASIN_32", odd(mp.asin), 0, 0.2501, 6, 0, -35.7), of_odd(mp.asin)),
    Fit(*("inverse_trigonometric", "ATAN_32", odd(mp.atan), 0, 1, 10, 0, -33.8), of_odd(mp.atan)),
    Fit(
        *("inverse_hyperbolic", "ASINH_P", odd(mp.asinh), 0, 1.001, 6, 6, -56.5),
        *(of_odd(mp.asinh), "ASINH_Q"),
    ),
    Fit(
        *("inverse_hyperbolic", "ACOSH_P", acosh_ratio, 0, 1.001, 5, 5, -57.0),
        *(lambda t: t, "ACOSH_Q"),
    ),
    Fit(
        *("inverse_hyperbolic", "ATANH_P", odd(mp.atanh), 0, 0.2525, 5, 5, -55.0),
        *(of_odd(mp.atanh), "ATANH_Q"),
    ),
    Fit(
        *("gamma", "LGAMMA_P", lgamma_ratio, 0, 2.5001, 9, 9, -54.0),
        *(relative(lgamma_ratio), "LGAMMA_Q"),
    ),
    Fit(
        *("gamma", "LGAMMA_3_P", lambda t: mp.loggamma(3 + t), 0, 5.001, 8, 7, -54.0),
        *(lambda t: 1 / mp.loggamma(3 + t), "LGAMMA_3_Q"),
    ),
    Fit("gamma", "STIRLING", stirling, 0, 1 / 64, 6, 0, -57.0),
    Fit("gamma", "SIN_PI", sine_pi, 0, 0.25, 8, 0, -52.5, relative(sine_pi)),
    Fit(
        *("gamma_64", "NEAR_P", lambda y: lgamma_ratio(y + mp.mpf(0.5)) - 0.5, 0, 1.5001, 7, 6, -54.9),
        denominator="NEAR_Q",
    ),
    Fit(*("gamma_64", "STIRLING_FROM_TWO_AND_A_HALF", stirling, 0, 0.1602, 12, 0, -57.9), mp.sqrt),
    Fit(
        *("gamma_64", "SIN_PI_REST", sine_pi_rest, 5e-5 - gamma_64.SIN_PI_MIDDLE, 1 / 32, 7, 0, -60.0),
        lambda w: (w + gamma_64.SIN_PI_MIDDLE) * mp.pi / sine_pi(w + gamma_64.SIN_PI_MIDDLE),
    ),
    Fit(
        *("gamma_64", "DIGAMMA_P", lambda y: digamma_ratio(y) - 1, 0, 2.0001, 6, 6, -54.0),
        denominator="DIGAMMA_Q",
    ),
    Fit(*("gamma_64", "DIGAMMA_FROM_TWO_AND_A_HALF", digamma_series, 0, 0.1602, 13, 0, -57.9), lambda v: v),
    Fit(*("gamma_64", "COTANGENT_P", cotangent_rest, 0, 0.25, 4, 3, -54.0), mp.sqrt, "COTANGENT_Q"),
    Fit(
        *("gamma", "DIGAMMA_3_P", lambda t: mp.digamma(3 + t), 0, 7.001, 8, 8, -54.0),
        *(lambda t: 1 / mp.digamma(3 + t), "DIGAMMA_3_Q"),
    ),
    Fit("gamma", "DIGAMMA_SERIES", digamma_series, 0, 1 / 100, 6, 0, -57.0),
    *SPECIAL_FITS,
    *INCOMPLETE_GAMMA_FITS,
)

if __name__ == "__main__":
    from cuda_fits import CUDA_FITS

    for fit in (*FITS, *CUDA_FITS):
        if len(sys.argv) == 1 or fit.numerator in sys.argv[1:]:
            if fit.fixed is not None:
                p, error = rounded(fit, fit.fixed)
                q = []
            else:
                p, q, error = minimax(fit.function, fit.lo, fit.hi, fit.p, fit.q, fit.weight)
            print(f"{fit.module}.{fit.numerator} 2**{float(mp.log(error, 2)):.1f}\n  {p}")
            if fit.q:
                print(f"{fit.module}.{fit.denominator}\n  {q}")
