"""Vector mathematics: functions of Float(32) or Float(64) Exprs, made of arithmetic, selects and bit moves only.

They are right under StrictFloat, whether or not the code generator contracts a*b+c.
Accuracy: tests/algorithm/mathematics.
"""

from __future__ import annotations

from halide_backend.algorithm.mathematics.error_function import erf, erfc, erfcx
from halide_backend.algorithm.mathematics.exponential import exp, exp2, expm1, sigmoid
from halide_backend.algorithm.mathematics.gamma import digamma, lgamma
from halide_backend.algorithm.mathematics.hyperbolic import cosh, sinh, tanh
from halide_backend.algorithm.mathematics.hypotenuse import hypot
from halide_backend.algorithm.mathematics.inverse_error_function import erfinv
from halide_backend.algorithm.mathematics.inverse_hyperbolic import acosh, asinh, atanh
from halide_backend.algorithm.mathematics.inverse_trigonometric import acos, asin, atan, atan2
from halide_backend.algorithm.mathematics.logarithm import log, log1p, log2, log10
from halide_backend.algorithm.mathematics.power import pow, rsqrt, sqrt
from halide_backend.algorithm.mathematics.remainder import fmod
from halide_backend.algorithm.mathematics.trigonometric import cos, sin, tan

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cos",
    "cosh",
    "digamma",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "fmod",
    "hypot",
    "lgamma",
    "log",
    "log1p",
    "log2",
    "log10",
    "pow",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]
