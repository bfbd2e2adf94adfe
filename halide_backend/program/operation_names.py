"""Names of the elementwise operations that `kernel_library/operations.py` implements.

They stand apart from the implementation because capture decides by name and imports no halide.
"""

from __future__ import annotations

#: Inductor's operator handler has several names for one operation; the left one becomes the right one.
RENAMED = {
    "and_": "bitwise_and",
    "or_": "bitwise_or",
    "xor": "bitwise_xor",
    "invert": "bitwise_not",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
    "div_rn": "truediv",
    "int_truediv": "truediv",
    "igamma": "gammainc",
    "igammac": "gammaincc",
    "modified_bessel_i0": "i0",
    "modified_bessel_i1": "i1",
}

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
LOGICAL = frozenset({"logical_and", "logical_or", "logical_xor", "logical_not"})

#: Operations whose Halide expression is long and uses its argument several times: their arguments become Funcs, so that
#: the expression stays linear in the number of operations.
MATHEMATICS = frozenset(
    {
        "acos", "acosh", "airy_ai", "asin", "asinh", "atan", "atan2", "atanh", "bessel_j0", "bessel_j1", "bessel_y0",
        "bessel_y1", "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v",
        "chebyshev_polynomial_w", "cos", "cosh", "digamma", "erf", "erfc", "erfcx", "erfinv", "exp", "exp2", "expm1",
        "fmod", "gammainc", "gammaincc", "hermite_polynomial_h", "hermite_polynomial_he", "hypot", "i0", "i0e", "i1",
        "i1e", "laguerre_polynomial_l", "legendre_polynomial_p", "lgamma", "log", "log10", "log1p", "log2", "log_ndtr",
        "modified_bessel_k0", "modified_bessel_k1", "ndtr", "ndtri", "pow", "rand", "randint64", "randn",
        "remainder", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "shifted_chebyshev_polynomial_t",
        "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w",
        "sigmoid", "sin", "sinh", "spherical_bessel_j0", "tan", "tanh", "trigamma", "zeta",
    }
)  # fmt: skip

#: Polynomials by a recurrence of as many steps as their degree says, which is data.
RECURRENCES = frozenset(
    {"hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"}
)

#: Operations that are loops over an update definition: its Func needs the variables that their arguments depend on.
LOOPS = frozenset({"gammainc", "gammaincc"}) | RECURRENCES

_ARITHMETIC = frozenset(
    {
        "abs", "add", "bitcast", "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or",
        "bitwise_right_shift", "bitwise_xor", "ceil", "copysign", "floor", "floordiv", "fma", "fmaximum", "identity",
        "isinf", "isnan", "ldexp", "maximum", "minimum", "mod", "mul", "neg", "nextafter", "reciprocal", "relu",
        "round", "rsqrt", "sign", "signbit", "sqrt", "square", "sub", "to_dtype", "trunc", "truncdiv", "truediv",
        "where", "floor_to_int", "ceil_to_int", "trunc_to_int", "round_to_int",
    }
)  # fmt: skip

OPERATIONS = _ARITHMETIC | MATHEMATICS | COMPARISONS | LOGICAL

#: Operations that exist for floating point only.
FLOAT_ONLY = (MATHEMATICS | {"reciprocal", "rsqrt", "sqrt", "truediv", "copysign", "ldexp", "nextafter"}) - {
    "pow",
    "fmod",
    "remainder",
}

#: Operations of integers and booleans only.
INTEGER_ONLY = frozenset(
    {"bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor"}
)
