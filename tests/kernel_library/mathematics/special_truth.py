"""The special functions by mpmath, the arguments to test them with, and the size below which errors are absolute."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp
import numpy as np
from arguments import Floats, padded, specials
from truth import INF, NAN, Number

PRECISION = 1300  # a sine reduces arguments up to 2**1024


def _positive(f: Callable[[Number], Number]) -> Callable[[Number], Number]:
    """f for positive arguments, NaN for negative ones."""
    return lambda x: f(x) if x > 0 else NAN


def _ndtr(x: Number) -> Number:
    return mp.mpf(0) if x < -50 else mp.erfc(-x / mp.sqrt(2)) / 2 if x < 50 else mp.mpf(1)


def _log_ndtr(x: Number) -> Number:
    if x > 0:
        return mp.log1p(-mp.erfc(x / mp.sqrt(2)) / 2) if x < 50 else -mp.mpf(0)
    if x < -1e3:
        return -x * x / 2 - mp.log(-x * mp.sqrt(2 * mp.pi)) - 1 / (x * x)
    return mp.log(mp.erfc(-x / mp.sqrt(2)) / 2)


def _ndtri(p: Number) -> Number:
    """Newton's method on log(ndtr)."""
    if not 0 <= p <= 1:
        return NAN
    q = min(p, 1 - p)
    if q == 0:
        return INF if p else -INF
    x = -mp.sqrt(-2 * mp.log(q)) if q < 0.1 else (q - mp.mpf(0.5)) * mp.sqrt(2 * mp.pi)
    for _ in range(60):
        tail = mp.erfc(-x / mp.sqrt(2)) / 2
        step = mp.log(tail / q) * tail * mp.sqrt(2 * mp.pi) * mp.exp(x * x / 2)
        x -= step
        if abs(step) <= abs(x) * mp.mpf(10) ** -40:
            break
    return x if p < 0.5 else -x


def _zeta(s: Number, q: Number) -> Number:
    if s <= 1:
        return INF if s == 1 else NAN
    if q <= 0 and q == mp.floor(q):
        return INF
    if q < 0 and s != mp.floor(s):
        return NAN
    skipped = max(0, math.ceil(-q))
    return mp.fsum((q + k) ** -s for k in range(skipped)) + mp.zeta(s, q + skipped)


def _gammainc(a: Number, x: Number) -> Number:
    if a < 0 or x < 0:
        return NAN
    return mp.gammainc(a, 0, x, regularized=True) if x < a + 1 else 1 - _gammaincc(a, x)


def _gammaincc(a: Number, x: Number) -> Number:
    if a < 0 or x < 0:
        return NAN
    return 1 - _gammainc(a, x) if x < a + 1 else mp.gammainc(a, x, mp.inf, regularized=True)


def _chebyshev(kind: str, shifted: bool) -> Callable[[Number, Number], Number]:
    def polynomial(x: Number, n: Number) -> Number:
        x = 2 * x - 1 if shifted else x
        before, now = mp.mpf(1), {"t": x, "u": 2 * x, "v": 2 * x - 1, "w": 2 * x + 1}[kind]
        if int(n) <= 0:
            return before if n > -1 else mp.mpf(0)
        for _ in range(int(n) - 1):
            before, now = now, 2 * x * now - before
        return now

    return polynomial


def _wave(x: float) -> float:
    """The size of a Bessel function's oscillation, about."""
    return 0.5 / math.sqrt(1 + abs(x))


def _beyond_five(x: Floats) -> Floats:
    """Where Hankel's expansions have begun and their high powers still count."""
    return (np.abs(x) > 5) & (np.abs(x) < 40)


def _airy_wave(x: float) -> float:
    return 0.5 * abs(x) ** -0.25 if x < -1 else 0.0


def _zeta_terms(s: float, q: float) -> float:
    """The largest terms, which may cancel for negative q."""
    distance = abs(q - round(q))
    return float(distance**-s) if q < 0 and distance and s * -math.log2(distance) < 1000 else 0.0


@dataclass(frozen=True)
class Special:
    """binary64, bound: largest errors in ulps of binary64 and binary32 (the binary64 result rounded, mostly).

    Argument sizes: from exp(-40) to `largest`, and even ones to `usual`. floor: of the arguments; below it the ulp
    of the floor counts. error_32, error_64: the arguments for which the result has torch's error
    (docs/design/why.md).
    """

    truth: Callable[..., Number]
    binary64: float
    largest: float = 1e300
    usual: float = 12.0
    floor: Callable[..., float] = lambda *x: 0.0
    binary32: float = 0.51
    error_32: Callable[[Floats], Floats] = np.zeros_like
    error_64: Callable[[Floats], Floats] = np.zeros_like


SPECIALS = {
    "airy_ai": Special(mp.airyai, 6.0, largest=1e4, floor=_airy_wave, error_64=lambda x: (x < -2.09) & (x > -9)),
    "bessel_j0": Special(lambda x: mp.besselj(0, x), 20.0, 1e6, floor=_wave, error_64=_beyond_five),
    "bessel_j1": Special(lambda x: mp.besselj(1, x), 20.0, 1e6, floor=_wave, error_64=_beyond_five),
    "bessel_y0": Special(_positive(lambda x: mp.bessely(0, x)), 20.0, 1e6, floor=_wave, error_64=_beyond_five),
    "bessel_y1": Special(_positive(lambda x: mp.bessely(1, x)), 20.0, 1e6, floor=_wave, error_64=_beyond_five),
    "gammainc": Special(_gammainc, 30.0),
    "gammaincc": Special(_gammaincc, 30.0),
    "i0": Special(lambda x: mp.besseli(0, x), 2.6, 700),
    "i0e": Special(lambda x: mp.besseli(0, x) * mp.exp(-abs(x)), 2.8, 1e4),
    "i1": Special(lambda x: mp.besseli(1, x), 3.0, 700),
    "i1e": Special(lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), 2.8, 1e4),
    "log_ndtr": Special(_log_ndtr, 7.0),
    "modified_bessel_k0": Special(_positive(lambda x: mp.besselk(0, x)), 2.2, 1e4),
    "modified_bessel_k1": Special(_positive(lambda x: mp.besselk(1, x)), 2.2, 1e4),
    "ndtr": Special(_ndtr, 2.8),
    "ndtri": Special(_ndtri, 2.5, 1.0, usual=1.0),
    "scaled_modified_bessel_k0": Special(_positive(lambda x: mp.exp(x) * mp.besselk(0, x)), 2.2, 1e4),
    "scaled_modified_bessel_k1": Special(_positive(lambda x: mp.exp(x) * mp.besselk(1, x)), 2.2, 1e4),
    "spherical_bessel_j0": Special(lambda x: mp.sin(x) / x, 0.6, binary32=0.58),
    "trigamma": Special(lambda x: mp.psi(1, x), 3.2, 1e6, error_32=lambda x: x < 0),
    "zeta": Special(_zeta, 5.0, floor=_zeta_terms),
    **{
        f"{shift}chebyshev_polynomial_{kind}": Special(
            _chebyshev(kind, bool(shift)), bound, usual=1.0, floor=lambda *x: 1.0
        )
        for shift in ("", "shifted_")
        for kind, bound in (("t", 28.0), ("u", 30.0), ("v", 50.0), ("w", 50.0))
    },
}
#: Functions of two arguments.
PAIRS = frozenset(name for name in SPECIALS if "chebyshev" in name or "gammainc" in name or name == "zeta")


def special_arguments(name: str, bits: int, count: int) -> tuple[Floats, ...]:
    """Usual and extreme sizes of both signs; pairs that fit each other."""
    kind = np.float32 if bits == 32 else np.float64
    random, special = np.random.default_rng(count), SPECIALS[name]
    if name == "zeta":
        s = np.concatenate(
            [random.uniform(1, 12, count), np.round(random.uniform(2, 30, count)), random.uniform(1, 99, 99)]
        )
        q = np.concatenate(
            [np.exp(random.uniform(-5, 8, count)), random.uniform(-20, 20, count), random.uniform(0, 2, 99)]
        )
        return padded(s.astype(kind)), padded(q.astype(kind))
    if "gammainc" in name:
        a = np.exp(np.concatenate([random.uniform(-20, 6, count), random.uniform(-1, 9, 2 * count)]))
        ratio = np.exp(
            random.normal(0, 1, a.size) * np.where(random.uniform(0, 1, a.size) < 0.5, 1, np.minimum(1, 1 / np.sqrt(a)))
        )
        signs = np.where(random.uniform(0, 1, a.size) < 0.02, -1.0, 1.0)
        return padded((signs * a).astype(kind)), padded((a * ratio).astype(kind))
    largest = min(special.largest, 1e37 if bits == 32 else 1e300)
    x = random.uniform(-special.usual, special.usual, count)
    if name in PAIRS:
        x = np.concatenate([x, random.uniform(-3, 3, count)])
        return padded(x.astype(kind)), padded(random.uniform(-2, 30, x.size).astype(kind))
    sizes = np.exp(random.uniform(-40, math.log(largest), count // 2)) * random.choice([-1.0, 1.0], count // 2)
    tiny = np.exp(-random.uniform(0, 740 if bits == 64 else 87, count // 2))
    parts = [x, sizes, tiny] if name == "ndtri" else [x, sizes]
    return (padded(np.concatenate(parts).astype(kind)),)


def special_values(name: str, bits: int) -> tuple[Floats, ...]:
    """Zeros, infinities, NaN, extreme and small numbers; pairs of small ones, where torch overflows to NaN else."""
    x = specials(bits)
    x = x[(x == 0) | ~(np.abs(x) < np.finfo(x.dtype).tiny)]
    if name == "airy_ai":  # torch's zeta overflows in binary32
        x = x[~(np.abs(x) > 1e20) | np.isinf(x)]
    if name == "trigamma":  # torch's sine of pi x misses the poles
        x = x[(x >= 0) | (np.floor(x) != x) | ~np.isfinite(x)]
    if name not in PAIRS:
        return (padded(x),)
    x = x[np.abs(x) <= 100]
    return tuple(padded(a.ravel()) for a in np.meshgrid(x, x))


def special_truth(name: str, *inputs: Floats) -> list[Number]:
    function = SPECIALS[name].truth
    with mp.workprec(PRECISION if name == "spherical_bessel_j0" else 200):
        return [function(*(mp.mpf(float(v)) for v in row)) for row in zip(*inputs, strict=True)]
