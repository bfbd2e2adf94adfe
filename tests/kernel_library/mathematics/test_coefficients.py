"""The coefficients, in exact arithmetic, against the functions they approximate: a digit lost in copying shows here."""

from __future__ import annotations

from importlib import import_module

import mpmath as mp
import pytest
from cuda_fits import CUDA_FITS
from fits import FITS, Fit
from special_fits import CEPHES


@pytest.mark.parametrize("fit", FITS, ids=lambda fit: fit.numerator)
def test_error_is_as_claimed(fit: Fit) -> None:
    assert_error(fit)


@pytest.mark.parametrize("fit", CUDA_FITS, ids=lambda fit: fit.numerator)
def test_errors_on_cuda(fit: Fit) -> None:
    assert_error(fit, "cuda")


@pytest.mark.parametrize("fit", CEPHES, ids=lambda fit: fit.numerator)
def test_tables_of_cephes(fit: Fit) -> None:
    assert_error(fit)


def assert_error(fit: Fit, folder: str = "mathematics") -> None:
    module = import_module(f"halide_backend.kernel_library.{folder}.{fit.module}")
    p = getattr(module, fit.numerator)
    q = getattr(module, fit.denominator) if fit.denominator else (1.0,)
    if len(q) == fit.q:
        q = (1.0, *q)
    assert (len(p), len(q)) == (fit.p + 1, fit.q + 1)
    worst = mp.mpf(0)
    for i in range(101):
        x = mp.mpf(fit.lo) + (mp.mpf(fit.hi) - fit.lo) * (1 - mp.cos(mp.pi * i / 100)) / 2
        error = mp.polyval(p, x) / mp.polyval(q, x) - fit.function(x)
        worst = max(worst, abs(fit.weight(x) * error))
    assert mp.log(worst, 2) <= fit.error + 0.15
