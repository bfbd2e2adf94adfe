"""What torch makes of the rational functions of the Cephes library (S. L. Moshier, Methods and Programs for
Mathematical Functions, 1989).

Cephes leaves the leading 1 of most denominators out of its tables and adds it when it evaluates them. torch has the
tables of the Airy and Bessel functions, but not the addition: its values are off by up to 3e-6 just beyond the point
where these rational functions take over (docs/design/why.md).
"""

from __future__ import annotations

from halide_backend.kernel_library.mathematics.floating_point import BINARY32, FloatFormat


def denominator(rest: tuple[float, ...], f: FloatFormat) -> tuple[float, ...]:
    """All coefficients of a denominator whose leading 1 is not in `rest`.

    In binary64 without it: its difference to torch's value would be beyond torch's own tolerance. In binary32 torch's
    tolerance is wider than the error, so the function is the true one.
    """
    return (1.0, *rest) if f is BINARY32 else rest
