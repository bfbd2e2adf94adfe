"""exp, exp2, expm1, sigmoid, silu.

Cody-Waite reduction x = k ln2 + r, |r| <= ln2/2, with ln2 in two parts of which k times the first is exact; minimax
polynomials by tests/kernel_library/mathematics/fits.py.
"""

from __future__ import annotations

import halide as hl

from halide_backend.kernel_library.mathematics.floating_point import (
    BINARY32,
    at_least,
    at_most,
    float_format,
    negate,
    power_of_two,
    round_to_integer,
    sum_in_two_parts,
    times_power_of_two,
)
from halide_backend.kernel_library.mathematics.polynomial import polynomial, polynomial_by_pairs

LOG2_E = 1.4426950408889634
# ln2 = high + low; high has 15 (binary32) or 33 (binary64) significant bits.
LN2_PARTS_32 = (0.693145751953125, 1.4286068203094172e-06)
LN2_PARTS_64 = (0.6931471803691238, 1.9082149292705877e-10)

# (exp(r) - 1 - r) / r**2 on |r| <= 0.3473, error relative to exp(r): 2**-28.3 and 2**-57.9.
EXP_32 = (
    0.001381420338627364,
    0.008368848307267382,
    0.04166840327401379,
    0.16666519544787078,
    0.49999993362785433,
)
EXP_64 = (
    2.4999512024152548e-08,
    2.763051766998014e-07,
    2.7557589540383514e-06,
    2.4801492405957007e-05,
    0.0001984126950146174,
    0.0013888888944230098,
    0.008333333333497525,
    0.04166666666652819,
    0.16666666666666408,
    0.5000000000000011,
)
# The same quotient on |r| <= 0.5, error relative to expm1(r): 2**-28.2 and 2**-61.3.
EXPM1_32 = (
    0.00019851299312277748,
    0.0013996226544233997,
    0.008333574898283961,
    0.0416653573418455,
    0.16666664010055246,
    0.5000000385902073,
)
EXPM1_64 = (
    1.606180372565342e-10,
    2.0969635448155298e-09,
    2.5052355970525307e-08,
    2.7557030918978407e-07,
    2.7557318290165386e-06,
    2.4801587729728436e-05,
    0.0001984126984260564,
    0.0013888888888581503,
    0.008333333333332539,
    0.0416666666666676,
    0.16666666666666669,
    0.5,
)
# (2**r - 1) / r on |r| <= 0.501, error relative to 2**r: 2**-30.9 (as rounded, the last one fixed) and 2**-58.
EXP2_32 = (
    1.4364645721798297e-05,
    0.0001545670529594645,
    0.0013337797718122602,
    0.009618070907890797,
    0.055504050105810165,
    0.24022650718688965,
    0.6931471824645996,
)
EXP2_64 = (
    4.455867940696522e-10,
    7.073897208676959e-09,
    1.0178055793445638e-07,
    1.321543461357143e-06,
    1.5252733847066518e-05,
    0.00015403530458459576,
    0.001333355814639818,
    0.009618129107593057,
    0.05550410866482167,
    0.24022650695910133,
    0.6931471805599453,
)
# Beyond these exp, exp2 and sigmoid are 0 or inf; at them the scaling still runs over or under.
EXP_RANGE_32 = (-104.0, 89.0)
EXP_RANGE_64 = (-746.0, 710.0)
EXP2_RANGE_32 = (-151.0, 129.0)
EXP2_RANGE_64 = (-1076.0, 1025.0)


def reduce_exponential(x: hl.Expr, low: hl.Expr | None = None) -> tuple[hl.Expr, hl.Expr]:
    """(k as two's complement bits, r): x + low = k ln2 + r with |r| <= 0.347, low far below x.

    |x| < 2**10 (binary32) or 2**19 (binary64), so that k times the high part of ln2 is exact.
    """
    k, coarse, fine = reduce_exponential_exactly(x, low)
    return k, coarse - fine


def reduce_exponential_exactly(x: hl.Expr, low: hl.Expr | None = None) -> tuple[hl.Expr, hl.Expr, hl.Expr]:
    """(k, coarse, fine): `reduce_exponential` whose r = coarse - fine is not rounded yet, fine far below 1."""
    f = float_format(x)
    ln2_high, ln2_low = LN2_PARTS_32 if f is BINARY32 else LN2_PARTS_64
    whole, k = round_to_integer(x * f.value(LOG2_E))
    fine = whole * f.value(ln2_low)
    return k, x - whole * f.value(ln2_high), fine if low is None else fine - low


def growth_of_remainder(r: hl.Expr) -> hl.Expr:
    """exp(r) - 1 for |r| <= 0.347, to the last place of exp(r)."""
    return r * r * polynomial(r, EXP_32 if float_format(r) is BINARY32 else EXP_64) + r


def exponential_of_remainder(r: hl.Expr) -> hl.Expr:
    """exp(r) for |r| <= 0.347."""
    return growth_of_remainder(r) + 1


def small_exponential(x: hl.Expr) -> hl.Expr:
    """exp(x) where neither the result nor its reciprocal leaves the normal range: |x| < 87 or 708."""
    k, r = reduce_exponential(x)
    return exponential_of_remainder(r) * power_of_two(k)


def unscaled_exponential(x: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """(k as two's complement bits, y): exp(x) = y 2**k, |x| < 2**10.

    In binary64 the rounding error of 1 + r is kept as well; binary32, which is wanted fast, does without.
    """
    if float_format(x) is BINARY32:
        whole, k = round_to_integer(x * hl.f32(LOG2_E))
        high, low = LN2_PARTS_32
        coarse, fine = x - whole * hl.f32(high), whole * hl.f32(low)
        # r = coarse - fine to 2**-32, which is enough for the polynomial: of a product that nothing else needs, LLVM
        # makes one instruction with the difference; of `fine` two, of which one waits for the other.
        r = coarse - whole * hl.f32(low * (1 + 2.0**-20))
        return k, (r * r * polynomial_by_pairs(r, EXP_32) - fine) + coarse + 1
    k, coarse, fine = reduce_exponential_exactly(x)
    r = coarse - fine
    total, missing = sum_in_two_parts(hl.f64(1), coarse)
    return k, total + (missing + (r * r * polynomial(r, EXP_64) - fine))


def exp(x: hl.Expr) -> hl.Expr:
    _, highest = EXP_RANGE_32 if float_format(x) is BINARY32 else EXP_RANGE_64
    return _bounded_exp(at_most(x, highest))


def _bounded_exp(x: hl.Expr) -> hl.Expr:
    """exp(x) for x up to where it is inf."""
    lowest, _ = EXP_RANGE_32 if float_format(x) is BINARY32 else EXP_RANGE_64
    k, y = unscaled_exponential(at_least(x, lowest))
    return times_power_of_two(_zero_below(lowest, x, y), k)


def exp2(x: hl.Expr) -> hl.Expr:
    single = float_format(x) is BINARY32
    lowest, highest = EXP2_RANGE_32 if single else EXP2_RANGE_64
    bounded = at_most(at_least(x, lowest), highest)
    whole, k = round_to_integer(bounded)
    r = bounded - whole
    y = r * polynomial(r, EXP2_32 if single else EXP2_64) + 1
    return times_power_of_two(_zero_below(lowest, x, y), k)


def _zero_below(lowest: float, x: hl.Expr, y: hl.Expr) -> hl.Expr:
    """y, or 0 where x is about `lowest` or less, NaN stays NaN.

    A product that underflows takes an Intel core some 150 cycles, and half the elements of a masked softmax would.
    The bound is not that of `at_least`: LLVM would make one comparison of both, and no maximum of x and `lowest`, which
    everything waits for.
    """
    f = float_format(x)
    return hl.select(x < f.value(lowest + 0.02), f.value(0), y)


def expm1(x: hl.Expr) -> hl.Expr:
    """2**k (expm1(r) + 1) - 1, scaled by 2**(k-1) and doubled so that k = bias + 1 does not overflow early.

    k = 0 up to |x| = 1/2: for |r| near ln2/2, expm1(r) would cancel against 2**k - 1.
    """
    f = float_format(x)
    single = f is BINARY32
    lowest, highest = (-18.0, 89.0) if single else (-38.0, 710.0)
    bounded = at_most(at_least(x, lowest), highest)
    k, r = reduce_exponential(bounded)
    near = hl.abs(x) < f.value(0.5)
    r = hl.select(near, x, r)
    q = r * r * polynomial(r, EXPM1_32 if single else EXPM1_64) + r
    half = power_of_two(k - 1)
    y = hl.select(near, q, (q * half + (half - f.value(0.5))) * 2)
    return hl.select(x == f.value(0), x, y)


def sigmoid(x: hl.Expr) -> hl.Expr:
    """1/(1 + exp(-|x|)) for x >= 0 and exp(-|x|)/(1 + exp(-|x|)) below: no overflow, denormal results are kept.

    The rounding error of the denominator d is put right, with 1/d = (24 - 8 d)/17 to 6 % of it for 1 <= d <= 2: what is
    to be subtracted is known as soon as the quotient is.
    """
    f = float_format(x)
    e = _bounded_exp(negate(hl.abs(x)))
    d = e + 1
    y = hl.select(x < f.value(0), e, f.value(1)) / d
    return y - y * ((e - (d - 1)) * (f.value(24 / 17) - f.value(8 / 17) * d))


def silu(x: hl.Expr) -> hl.Expr:
    """x/(1 + exp(-x)). Below -88.4 exp(-x) is inf and the result 0: less than 4e-37 is left out.

    In binary32 exp(-x) does without what `unscaled_exponential` keeps of the remainder: the sum and the quotient round
    as much.
    """
    single = float_format(x) is BINARY32
    lowest, highest = (-89.0, 87.0) if single else (-710.0, 708.0)
    bounded = at_most(at_least(x, lowest), highest)
    if not single:
        k, y = unscaled_exponential(negate(bounded))
        return x / (1 + y * power_of_two(k))
    high, low = LN2_PARTS_32
    whole, k = round_to_integer(bounded * hl.f32(-LOG2_E))
    negative = (bounded + whole * hl.f32(high)) + whole * hl.f32(low)
    signs = (1, -1, 1, -1, 1)
    y = polynomial(negative, [*(sign * each for sign, each in zip(signs, EXP_32)), -1.0, 1.0])
    return x / (1 + y * power_of_two(k))
