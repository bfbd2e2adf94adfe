"""The approximation problems behind the Bessel, Airy and normal distribution functions; see fits.py."""

from __future__ import annotations

from functools import cache

import mpmath as mp
from fit import Fit, relative
from minimax import Function

SMALL = mp.mpf(10) ** -12


def regular_i(order: int) -> Function:
    """I_n(x) / x**n in z = x**2."""

    def ratio(z: mp.mpf) -> mp.mpf:
        x = mp.sqrt(z) if z > SMALL**2 else SMALL
        return mp.besseli(order, x) / x**order

    return ratio


def scaled_i(order: int) -> Function:
    """sqrt(x) exp(-x) I_n(x) in t = 1/x - 1/16."""

    def scaled(t: mp.mpf) -> mp.mpf:
        u = t + mp.mpf(1) / 16
        if u < 1e-12:
            return (1 - (4 * order**2 - 1) * u / 8) / mp.sqrt(2 * mp.pi)
        return mp.besseli(order, 1 / u) * mp.exp(-1 / u) / mp.sqrt(u)

    return scaled


def scaled_k(order: int) -> Function:
    """sqrt(x) exp(x) K_n(x) in u = 1/x."""

    def scaled(u: mp.mpf) -> mp.mpf:
        return mp.besselk(order, 1 / u) * mp.exp(1 / u) / mp.sqrt(u)

    return scaled


def scaled_k_growth(order: int) -> Function:
    """(sqrt(x) exp(x) K_n(x) - sqrt(pi/2)) / u."""
    scaled, limit = scaled_k(order), mp.sqrt(mp.pi / 2)

    def growth(u: mp.mpf) -> mp.mpf:
        m = 4 * order**2
        start = limit * (m - 1) / 8 * (1 + (m - 9) * u / 16 * (1 + (m - 25) * u / 24))
        return (scaled(u) - limit) / u if u > 1e-8 else start

    return growth


def k0_rest(z: mp.mpf) -> mp.mpf:
    """K0(x) + log(x) I0(x) in z = x**2."""
    x = mp.sqrt(z) if z > SMALL**2 else SMALL
    return mp.besselk(0, x) + mp.log(x) * mp.besseli(0, x)


def k1_rest(z: mp.mpf) -> mp.mpf:
    """(K1(x) - 1/x - log(x) I1(x)) / x."""
    x = mp.sqrt(z) if z > SMALL**2 else SMALL
    return (mp.besselk(1, x) - 1 / x - mp.log(x) * mp.besseli(1, x)) / x


def j_ratio(order: int) -> Function:
    """J_n(x) / x**n without its first two positive zeros, in t = x**2 - 32."""
    zeros = [mp.besseljzero(order, k) for k in (1, 2)]

    def ratio(t: mp.mpf) -> mp.mpf:
        x = mp.sqrt(t + 32) if t + 32 > SMALL**2 else SMALL
        for zero in zeros:
            x = x if abs(x - zero) > SMALL else zero + SMALL
        return mp.besselj(order, x) / x**order / mp.fprod(x * x - zero * zero for zero in zeros)

    return ratio


def y0_rest(t: mp.mpf) -> mp.mpf:
    """Y0(x) - 2/pi log(x) J0(x) in t = x**2 - 32."""
    x = mp.sqrt(t + 32) if t + 32 > SMALL**2 else SMALL
    return mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x)


def y1_rest(t: mp.mpf) -> mp.mpf:
    """(Y1(x) - 2/pi (log(x) J1(x) - 1/x)) / x."""
    x = mp.sqrt(t + 32) if t + 32 > SMALL**2 else SMALL
    return (mp.bessely(1, x) - 2 / mp.pi * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x


@cache
def hankel(order: int, v: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    """(P, Q x) of J = sqrt(2/(pi x)) (P cos(c) - Q sin(c)), c = x - (2 n + 1) pi/4, in v = 1/x**2 (DLMF 10.17)."""
    if v < 1e-20:
        return mp.mpf(1), mp.mpf(4 * order**2 - 1) / 8
    x = 1 / mp.sqrt(v)
    c = x - (2 * order + 1) * mp.pi / 4
    j, y, scale = mp.besselj(order, x), mp.bessely(order, x), mp.sqrt(mp.pi * x / 2)
    return scale * (j * mp.cos(c) + y * mp.sin(c)), scale * (y * mp.cos(c) - j * mp.sin(c)) * x


def airy_decay(u: mp.mpf) -> mp.mpf:
    """2 sqrt(pi) x**(1/4) exp(zeta) Ai(x) in u = 1/zeta, zeta = 2/3 x**(3/2) (DLMF 9.7.5)."""
    if u < 1e-12:
        return 1 - 5 * u / 72
    x = (mp.mpf(3) / 2 / u) ** (mp.mpf(2) / 3)
    return mp.airyai(x) * mp.exp(1 / u) * 2 * mp.sqrt(mp.pi) * mp.root(x, 4)


@cache
def airy_phase(v: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    """(P, Q zeta) of Ai(-x) = (P cos(c) + Q sin(c)) / (sqrt(pi) x**(1/4)), c = zeta - pi/4, in 1/zeta**2 (9.7.9)."""
    if v < 1e-20:
        return mp.mpf(1), mp.mpf(5) / 72
    u = mp.sqrt(v)
    x = (mp.mpf(3) / 2 / u) ** (mp.mpf(2) / 3)
    a, b, c = mp.airyai(-x), mp.airybi(-x), 1 / u - mp.pi / 4
    scale = mp.sqrt(mp.pi) * mp.root(x, 4)
    return scale * (a * mp.cos(c) - b * mp.sin(c)), scale * (a * mp.sin(c) + b * mp.cos(c)) / u


def airy_cosine(v: mp.mpf) -> mp.mpf:
    """(P - 1) / v; DLMF 9.7.2 at 0."""
    return (airy_phase(v)[0] - 1) / v if v > 1e-15 else mp.mpf(-385) / 10368


AIRY_PHASE_END = float(mp.mpf(9) / 4 / mp.mpf(2.09) ** 3)


def _rational(
    module: str, name: str, f: Function, lo: float, hi: float, p: int, q: int, error: float, weight: Function
) -> Fit:
    return Fit(module, f"{name}_P", f, lo, hi, p, q, error, weight, f"{name}_Q")


def _modified(order: int) -> tuple[Fit, ...]:
    i, i_far, k_far = regular_i(order), scaled_i(order), scaled_k(order)
    module = "modified_bessel"
    rest = k1_rest if order else k0_rest
    return (
        Fit(module, f"I{order}", i, 0, 64, 15, 0, -53.0, relative(i)),
        Fit(module, f"I{order}_FAR", i_far, -1 / 16, 1 / 16, 23, 0, -53.0, relative(i_far)),
        Fit(module, f"K{order}", rest, 0, 1.001, 7, 0, -53.0, relative(rest)),
        _rational(
            module, f"K{order}_FAR", scaled_k_growth(order), 0, 1.001, 8, 8, -53.0, lambda u: u / k_far(u) if u else u
        ),
    )


def _bessel(order: int) -> tuple[Fit, ...]:
    ratio = j_ratio(order)
    rest, degree = (y1_rest, 15) if order else (y0_rest, 16)
    return (
        Fit("bessel", f"J{order}", ratio, -32, 32.01, 14, 0, -50.8 if order else -53.0, relative(ratio)),
        Fit("bessel", f"Y{order}", rest, -32, 32.01, degree, 0, -53.0 if order else -52.3),
    )


SPECIAL_FITS = (
    *_modified(0),
    *_modified(1),
    *_bessel(0),
    *_bessel(1),
    _rational("airy", "DECAY", airy_decay, 0, 1.501, 9, 9, -53.0, relative(airy_decay)),
    Fit("airy", "CENTER", lambda t: mp.airyai(t - 1), -2.001, 2.001, 24, 0, -53.0),
)


def _cephes(order: int) -> tuple[Fit, ...]:
    return (
        _rational("bessel", f"P{order}", lambda v: hankel(order, v / 25)[0], 0, 1, 6, 6, -53.0, lambda v: mp.mpf(1)),
        _rational(
            "bessel", f"Q{order}", lambda v: hankel(order, v / 25)[1] / 5, 0, 1, 7, 7, -53.0, lambda v: mp.mpf(1)
        ),
    )


#: What the tables of Cephes approximate; the denominators of Q, COSINE and SINE have a leading 1 besides.
CEPHES = (
    *_cephes(0),
    *_cephes(1),
    _rational("airy", "COSINE", airy_cosine, 0, AIRY_PHASE_END, 8, 9, -53.0, lambda v: v),
    _rational("airy", "SINE", lambda v: airy_phase(v)[1], 0, AIRY_PHASE_END, 10, 10, -53.0, lambda v: mp.mpf(1)),
)
