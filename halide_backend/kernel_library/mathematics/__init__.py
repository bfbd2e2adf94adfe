"""Vector mathematics: functions of Float(32) or Float(64) Exprs, made of arithmetic, selects and bit moves only.

They are right under StrictFloat, whether or not the code generator contracts a*b+c; only for targets with FMA, whose
code it does contract, sine and cosine of binary32 rely on that (angle.py).
Accuracy: tests/kernel_library/mathematics.
"""

from __future__ import annotations

from halide_backend.kernel_library.mathematics.airy import airy_ai
from halide_backend.kernel_library.mathematics.bessel import (
    bessel_j0,
    bessel_j1,
    bessel_y0,
    bessel_y1,
    spherical_bessel_j0,
)
from halide_backend.kernel_library.mathematics.chebyshev import (
    chebyshev_polynomial_t,
    chebyshev_polynomial_u,
    chebyshev_polynomial_v,
    chebyshev_polynomial_w,
    shifted_chebyshev_polynomial_t,
    shifted_chebyshev_polynomial_u,
    shifted_chebyshev_polynomial_v,
    shifted_chebyshev_polynomial_w,
)
from halide_backend.kernel_library.mathematics.error_function import erf, erfc, erfcx
from halide_backend.kernel_library.mathematics.exponential import exp, exp2, expm1, sigmoid, silu
from halide_backend.kernel_library.mathematics.gamma import digamma, lgamma
from halide_backend.kernel_library.mathematics.hyperbolic import cosh, sinh, tanh
from halide_backend.kernel_library.mathematics.hypotenuse import hypot
from halide_backend.kernel_library.mathematics.incomplete_gamma import gammainc, gammaincc
from halide_backend.kernel_library.mathematics.inverse_error_function import erfinv
from halide_backend.kernel_library.mathematics.inverse_hyperbolic import acosh, asinh, atanh
from halide_backend.kernel_library.mathematics.inverse_trigonometric import acos, asin, atan, atan2
from halide_backend.kernel_library.mathematics.logarithm import log, log1p, log2, log10
from halide_backend.kernel_library.mathematics.modified_bessel import (
    i0,
    i0e,
    i1,
    i1e,
    modified_bessel_k0,
    modified_bessel_k1,
    scaled_modified_bessel_k0,
    scaled_modified_bessel_k1,
)
from halide_backend.kernel_library.mathematics.normal_distribution import log_ndtr, ndtr, ndtri
from halide_backend.kernel_library.mathematics.orthogonal import (
    hermite_polynomial_h,
    hermite_polynomial_he,
    laguerre_polynomial_l,
    legendre_polynomial_p,
)
from halide_backend.kernel_library.mathematics.power import pow, power_of_number, rsqrt, sqrt
from halide_backend.kernel_library.mathematics.remainder import fmod
from halide_backend.kernel_library.mathematics.trigamma import trigamma
from halide_backend.kernel_library.mathematics.trigonometric import cos, sin, tan
from halide_backend.kernel_library.mathematics.zeta import zeta

__all__ = [
    "acos",
    "acosh",
    "airy_ai",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "chebyshev_polynomial_t",
    "chebyshev_polynomial_u",
    "chebyshev_polynomial_v",
    "chebyshev_polynomial_w",
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
    "gammainc",
    "gammaincc",
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "hypot",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
    "lgamma",
    "log",
    "log1p",
    "log2",
    "log10",
    "log_ndtr",
    "modified_bessel_k0",
    "modified_bessel_k1",
    "ndtr",
    "ndtri",
    "pow",
    "power_of_number",
    "rsqrt",
    "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1",
    "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
    "sigmoid",
    "silu",
    "sin",
    "sinh",
    "spherical_bessel_j0",
    "sqrt",
    "tan",
    "tanh",
    "trigamma",
    "zeta",
]
