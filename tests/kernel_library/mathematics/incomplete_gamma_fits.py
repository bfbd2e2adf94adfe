"""The approximation problems behind the incomplete gamma functions; see fits.py."""

from __future__ import annotations

from functools import cache

import mpmath as mp
from fit import Fit, relative
from minimax import Function

#: Terms of Taylor series: (2.76 / sqrt(4 pi))**TERMS is below 1e-25.
TERMS = 240
#: Beyond it exp(-a eta**2 / 2) is 0 for a >= 200.
LARGEST_ETA = 2.75


def gamma_scale(u: mp.mpf) -> mp.mpf:
    """(a + 1/2)**(a + 1/2) exp(-a) / gamma(a + 1) in u = 1 / (a + 1/2)."""
    w = 1 / u
    return mp.exp(w * mp.log(w) - (w - 0.5) - mp.loggamma(w + 0.5))


@cache
def _taylor(k: int) -> list[mp.mpf]:
    """Temme's c_k in eta (DLMF 8.12.9-14)."""
    if k == 0:
        # mu = lambda - 1 in eta: mu mu' = eta (1 + mu)
        mu = [mp.mpf(0), mp.mpf(1)]
        for n in range(2, TERMS + 20):
            products = mp.fsum(mu[i] * mu[n + 1 - i] for i in range(2, n))
            mu.append(mu[n - 1] / (n + 1) - products / 2)
        return [mp.mpf(-1) / 3, *((n + 2) * mu[n + 2] for n in range(1, TERMS + 18))]
    stirling = (1, mp.mpf(1) / 12, mp.mpf(1) / 288, mp.mpf(-139) / 51840, mp.mpf(-571) / 2488320)
    first, before = _taylor(0), _taylor(k - 1)
    return [(-1) ** k * stirling[k] * first[n] + (n + 2) * before[n + 2] for n in range(len(before) - 2)]


def temme(k: int) -> Function:
    coefficients = _taylor(k)[TERMS::-1]
    return lambda eta: mp.polyval(coefficients, eta)


def _temme(k: int, degree: int, error: float) -> Fit:
    return Fit("incomplete_gamma", f"TEMME_{k}", temme(k), -LARGEST_ETA, LARGEST_ETA, degree, 0, error)


INCOMPLETE_GAMMA_FITS = (
    Fit(
        *("incomplete_gamma", "SCALE_P", gamma_scale, 0.00498, 2, 10, 10, -53.7),
        *(relative(gamma_scale), "SCALE_Q"),
    ),
    _temme(0, 36, -54.0),
    _temme(1, 31, -46.5),
    _temme(2, 26, -39.0),
    _temme(3, 20, -30.7),
    _temme(4, 15, -23.5),
)
