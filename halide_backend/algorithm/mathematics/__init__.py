"""Vector mathematics: functions from hl.Expr to hl.Expr, Float(32) or Float(64), made of arithmetic, selects and bit moves only."""

from __future__ import annotations

from halide_backend.algorithm.mathematics.error_function import erf, erfc
from halide_backend.algorithm.mathematics.exponential import exp, exp2, expm1, sigmoid
from halide_backend.algorithm.mathematics.hyperbolic import tanh
from halide_backend.algorithm.mathematics.logarithm import log, log1p, log2, log10
from halide_backend.algorithm.mathematics.power import pow, rsqrt, sqrt
from halide_backend.algorithm.mathematics.remainder import fmod
from halide_backend.algorithm.mathematics.trigonometric import cos, sin, tan

__all__ = [
    "cos",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "fmod",
    "log",
    "log1p",
    "log2",
    "log10",
    "pow",
    "rsqrt",
    "sigmoid",
    "sin",
    "sqrt",
    "tan",
    "tanh",
]
