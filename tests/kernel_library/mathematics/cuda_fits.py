"""The approximation problems behind the coefficients of `halide_backend.kernel_library.cuda`."""

from __future__ import annotations

from functools import cache

import mpmath as mp
from fit import Fit, relative
from fits import LOG_S_SQUARED, digamma_ratio, digamma_series, lgamma_ratio, sine_pi, stirling
from minimax import Function

#: Where the series begin.
FAR = 3


@cache
def erfcx(a: mp.mpf) -> mp.mpf:
    return mp.exp(a * a) * mp.erfc(a)


@cache
def erfinv_ratio(w: mp.mpf) -> mp.mpf:
    """erfinv(x) / x in w = -log(1 - x**2), by Newton's method."""
    if w < mp.mpf(10) ** -20:
        return mp.sqrt(mp.pi) / 2
    x = mp.sqrt(-mp.expm1(-w))
    rest = mp.exp(-w) / (1 + x)
    y = mp.sqrt(w) * 0.9
    for _ in range(60):
        e = mp.erfc(y)
        step = (mp.log(e) - mp.log(rest)) * e * mp.sqrt(mp.pi) / 2 * mp.exp(y * y)
        y += step
        if abs(step) < mp.mpf(10) ** -40:
            break
    return y / x


def erfcx_of_reciprocal(v: mp.mpf) -> mp.mpf:
    """a exp(a**2) erfc(a) in v = 1/a**2."""
    if v < 1e-8:
        return (1 - v / 2) / mp.sqrt(mp.pi)
    a = 1 / mp.sqrt(v)
    return mp.exp(a * a) * mp.erfc(a) * a


def scaled_erfc(t: mp.mpf) -> mp.mpf:
    """(1 + 2 a) exp(a**2) erfc(a) in t = a / (a + 2)."""
    a = 2 * t / (1 - t) if t < 1 - 1e-8 else mp.mpf(2) * 10**8
    ratio = erfcx(a) if a < 50 else (1 - 1 / (2 * a * a) + 3 / (4 * a**4) - 15 / (8 * a**6)) / (a * mp.sqrt(mp.pi))
    return (1 + 2 * a) * ratio


def bessel_near(order: int) -> Function:
    """I0(x), or I1(x) / x, in x**2."""

    @cache
    def function(z: mp.mpf) -> mp.mpf:
        return mp.besseli(order, mp.sqrt(z)) / mp.sqrt(z) ** order if z > 1e-20 else mp.mpf(1) / (1 + order)

    return function


def bessel_far(order: int) -> Function:
    """sqrt(x) exp(-x) I0(x), or that of I1, in u = 1/x."""

    @cache
    def function(u: mp.mpf) -> mp.mpf:
        if u < 1e-3:
            terms = [mp.rf(0.5 - order, n) * mp.rf(0.5 + order, n) / (mp.factorial(n) * 2**n) * u**n for n in range(12)]
            return sum(terms) / mp.sqrt(2 * mp.pi)
        return mp.besseli(order, 1 / u) * mp.exp(-1 / u) / mp.sqrt(u)

    return function


def logarithm_ratio(z: mp.mpf) -> mp.mpf:
    """log((1 + s) / (1 - s)) / s in s**2."""
    s = mp.sqrt(z)
    return 2 * mp.atanh(s) / s if z > 1e-20 else mp.mpf(2)


def lgamma_ratio_of_one_more(y: mp.mpf) -> mp.mpf:
    """lgamma(1 + y) / (y (y - 1))."""
    return lgamma_ratio(y + mp.mpf(0.5))


def of_series(function: Function, power: float) -> Function:
    """Weight that turns an error of a series in v = 1/x**2, of which v**power is a factor, into one of `function`."""

    def weight(v: mp.mpf) -> mp.mpf:
        return v**power / function(1 / mp.sqrt(v)) if v > 1e-9 else mp.mpf(0)

    return weight


CUDA_FITS = (
    *(
        Fit("wide_arithmetic", name, logarithm_ratio, 0, LOG_S_SQUARED, p, 0, error, lambda z: mp.mpf(1) / 2)
        for name, p, error in (("LOG_SERIES_38", 4, -37.7), ("LOG_SERIES_30", 3, -30.4))
    ),
    *(
        Fit("error_functions", f"{name}_P", erfcx, 0, 10.5, p, q, error, relative(erfcx), f"{name}_Q")
        for name, p, q, error in (("ERFCX", 5, 6, -33.4), ("ROUGH_ERFCX", 3, 4, -21.2))
    ),
    Fit(
        *("error_functions", "ERFCX_FAR", erfcx_of_reciprocal, 0, 1 / 100, 4, 0, -37.5),
        relative(erfcx_of_reciprocal),
    ),
    Fit("error_functions", "ROUGH_SCALED_ERFC", scaled_erfc, 0, 1, 8, 0, -20.3, relative(scaled_erfc)),
    *(
        Fit("bessel", f"{rough}I{order}_NEAR", bessel_near(order), 0, end**2, p, 0, error, relative(bessel_near(order)))
        for rough, order, end, p, error in (
            *(("", 0, 8, 11, -37.0), ("", 1, 8, 11, -39.2)),
            *(("ROUGH_", 0, 5, 6, -21.2), ("ROUGH_", 1, 5, 5, -18.1)),
        )
    ),
    *(
        Fit("bessel", f"{rough}I{order}_FAR", bessel_far(order), 0, 1 / end, p, 0, error, relative(bessel_far(order)))
        for rough, order, end, p, error in (
            *(("", 0, 8, 8, -33.3), ("", 1, 8, 8, -33.2)),
            *(("ROUGH_", 0, 5, 4, -20.4), ("ROUGH_", 1, 5, 4, -20.1)),
        )
    ),
    *(
        Fit("error_functions", f"{name}_P", erfinv_ratio, 0, 16.7, p, q, error, relative(erfinv_ratio), f"{name}_Q")
        for name, p, q, error in (("ERFINV", 6, 6, -31.4), ("ROUGH_ERFINV", 4, 3, -16.7))
    ),
    *(
        Fit(
            *("gamma", f"{name}LGAMMA_P", lgamma_ratio_of_one_more, -0.5, 2, p, p, error),
            *(relative(lgamma_ratio_of_one_more), f"{name}LGAMMA_Q"),
        )
        for name, p, error in (("", 5, -33.2), ("ROUGH_", 3, -20.4))
    ),
    *(
        Fit("gamma", f"{name}STIRLING", stirling, 0, 1 / FAR**2, p, 0, error, of_series(mp.loggamma, 0.5))
        for name, p, error in (("", 4, -39.4), ("ROUGH_", 1, -23.6))
    ),
    *(
        Fit(
            *("gamma", f"{name}DIGAMMA_P", digamma_ratio, 0, 2, p, q, error),
            *(relative(digamma_ratio), f"{name}DIGAMMA_Q"),
        )
        for name, p, q, error in (("", 4, 4, -35.6), ("ROUGH_", 2, 3, -22.1))
    ),
    *(
        Fit("gamma", f"{name}SERIES", digamma_series, 0, 1 / FAR**2, p, 0, error, of_series(mp.digamma, 1))
        for name, p, error in (("", 4, -37.5), ("ROUGH_", 1, -22.8))
    ),
    *(
        Fit("gamma", name, sine_pi, 0, 0.25, p, 0, error, relative(sine_pi))
        for name, p, error in (("SIN_PI_35", 5, -35.4), ("SIN_PI_20", 3, -20.0))
    ),
)
