"""What the functions should yield: torch in float64 for float32 arguments, mpmath for float64 arguments."""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp
import numpy as np
import numpy.typing as npt
import torch

Number = mp.mpf
INF, NAN = mp.inf, mp.nan

#: Working precision in bits: circular functions reduce arguments up to 2**1024.
PRECISION = {"sin": 1300, "cos": 1300, "tan": 1300, "fmod": 2300}
USUAL_PRECISION = 300


def torch_function(name: str) -> Callable[..., torch.Tensor]:
    if name == "trigamma":
        return lambda x: torch.polygamma(1, x)
    if name == "silu":
        return torch.nn.functional.silu
    return getattr(torch, name, None) or getattr(torch.special, name)


def float64_truth(name: str, *inputs: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The function in float64 of float32 arguments: right to 2**-50 or so."""
    with np.errstate(all="ignore"):
        wide = [torch.from_numpy(a.astype(np.float64)) for a in inputs]
    return np.asarray(torch_function(name)(*wide).numpy())


def long_double_truth(name: str, *inputs: npt.NDArray[np.float64]) -> npt.NDArray[np.longdouble]:
    """The function of float64 arguments by the C library's long double, right to 2**-62 or so (x86: 64 bits)."""
    with np.errstate(all="ignore"):
        return np.asarray(LONG_DOUBLE[name](*(a.astype(np.longdouble) for a in inputs)))


def mpmath_truth(name: str, *inputs: npt.NDArray[np.float64]) -> list[Number]:
    """The function of each element (of float64 arguments) to many more digits than asked.

    Where an argument is zero, infinite or NaN it is torch's value: mpmath has no signed zero and no C99.
    """
    function, rough = FUNCTIONS[name], float64_truth(name, *inputs)
    plain = np.all([np.isfinite(a) & (a != 0) for a in inputs], axis=0)
    with mp.workprec(PRECISION.get(name, USUAL_PRECISION)):
        return [
            function(*(mp.mpf(float(v)) for v in row)) if exact else mp.mpf(float(value))
            for row, value, exact in zip(zip(*inputs, strict=True), rough, plain, strict=True)
        ]


def _bounded(function: Callable[[Number], Number], limit: float) -> Callable[[Number], Number]:
    """The function with its argument clamped to +-limit, where it has already over- or underflown or saturated."""
    return lambda x: function(max(min(x, mp.mpf(limit)), mp.mpf(-limit)))


def _inside(function: Callable[[Number], Number], lowest: float, highest: float) -> Callable[[Number], Number]:
    return lambda x: function(x) if lowest <= x <= highest else NAN


def _log1p(x: Number) -> Number:
    return -INF if x == -1 else NAN if x < -1 else mp.log1p(x)


def _atanh(x: Number) -> Number:
    return NAN if abs(x) > 1 else mp.sign(x) * INF if abs(x) == 1 else mp.atanh(x)


def _rsqrt(x: Number) -> Number:
    return NAN if x < 0 else 1 / mp.sqrt(x)


def _erfinv(x: Number) -> Number:
    a = abs(x)
    if a >= 1:
        return mp.sign(x) * INF if a == 1 else NAN
    if a < 1e-30:
        return x * mp.sqrt(mp.pi) / 2
    y = mp.erfinv(a) if a < 0.9999999 else mp.sqrt(-mp.log(1 - a)) * 0.95
    for _ in range(60):
        e = mp.erfc(y)
        step = (mp.log(e) - mp.log(1 - a)) * e * mp.sqrt(mp.pi) / 2 * mp.exp(y * y)
        y += step
        if abs(step) < y * mp.mpf(10) ** -40:
            break
    return mp.sign(x) * y


def _erfcx(x: Number) -> Number:
    if x > 1e4:
        return (1 - 1 / (2 * x * x) + 3 / (4 * x**4)) / (x * mp.sqrt(mp.pi))
    return INF if x < -27 else mp.exp(x * x) * mp.erfc(x)


def _lgamma(x: Number) -> Number:
    if x < 0 and x == mp.floor(x):
        return INF
    if x > 1e20:
        return (x - 0.5) * mp.log(x) - x + mp.log(2 * mp.pi) / 2
    if x < 0:
        return mp.log(mp.pi / abs(x * mp.sinpi(x))) - _lgamma(-x)
    return mp.loggamma(x)


def _digamma(x: Number) -> Number:
    if x < 0:
        pole = x == mp.floor(x)
        return NAN if pole else _digamma(-x) - 1 / x - mp.pi * mp.cospi(x) / mp.sinpi(x)
    return mp.log(x) - 1 / (2 * x) if x > 1e20 else mp.digamma(x)


def _pow(x: Number, y: Number) -> Number:
    with np.errstate(all="ignore"):
        rough = float(np.float_power(float(x), float(y)))
    if rough != rough or rough == 0 or abs(rough) == float("inf"):
        return mp.mpf(rough)
    return mp.sign(x) ** int(abs(y) % 2) * abs(x) ** y if x < 0 else x**y


def _fmod(x: Number, y: Number) -> Number:
    return mp.sign(x) * (abs(x) % abs(y))


def _atan2(y: Number, x: Number) -> Number:
    """C99's, by numpy where an argument is zero or infinite: those are exact to half an ulp there."""
    if x == 0 or y == 0 or mp.isinf(x):
        return mp.mpf(float(np.arctan2(float(y), float(x))))
    return mp.atan2(y, x)


FUNCTIONS: dict[str, Callable[..., Number]] = {
    "acos": _inside(mp.acos, -1, 1),
    "acosh": _inside(mp.acosh, 1, float("inf")),
    "asin": _inside(mp.asin, -1, 1),
    "asinh": mp.asinh,
    "atan": mp.atan,
    "atan2": mp.atan2,
    "atanh": _atanh,
    "cos": mp.cos,
    "cosh": _bounded(mp.cosh, 2000),
    "digamma": _digamma,
    "erf": _bounded(mp.erf, 40),
    "erfc": _bounded(mp.erfc, 40),
    "erfcx": _erfcx,
    "erfinv": _erfinv,
    "exp": _bounded(mp.exp, 2000),
    "exp2": _bounded(lambda x: mp.mpf(2) ** x, 2000),
    "expm1": _bounded(mp.expm1, 2000),
    "fmod": _fmod,
    "hypot": mp.hypot,
    "lgamma": _lgamma,
    "log": _inside(mp.log, 0, float("inf")),
    "log1p": _log1p,
    "log2": _inside(lambda x: mp.log(x) / mp.log(2), 0, float("inf")),
    "log10": _inside(mp.log10, 0, float("inf")),
    "pow": _pow,
    "rsqrt": _rsqrt,
    "sigmoid": _bounded(lambda x: 1 / (1 + mp.exp(-x)), 2000),
    "silu": lambda x: x / (1 + mp.exp(-x)),
    "sin": mp.sin,
    "sinh": _bounded(mp.sinh, 2000),
    "sqrt": _inside(mp.sqrt, 0, float("inf")),
    "tan": mp.tan,
    "tanh": _bounded(mp.tanh, 2000),
}

LONG_DOUBLE: dict[str, Callable[..., npt.NDArray[np.longdouble]]] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cos": np.cos,
    "cosh": np.cosh,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "log": np.log,
    "log1p": np.log1p,
    "log2": np.log2,
    "log10": np.log10,
    "pow": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}
