"""Random numbers with the bits of Inductor's C++ backend: Philox 4x32-10, counted by element.

Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011). The seed and the counter are the low
32 bits of their int64 values, as in torch/csrc/inductor/cpp_prefix.h; the constants are those of
ATen/core/PhiloxRNGEngine.h.
"""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library import mathematics

_KEY_STEP = (0x9E3779B9, 0xBB67AE85)
_MULTIPLIER = (0xD2511F53, 0xCD9E8D57)
_ROUNDS = 10

#: The largest float32 for which 0x7FFFFFFF times it stays below 1.
_SCALE = 4.6566127342e-10


def rand(seed: hl.Expr, offset: hl.Expr) -> hl.Expr:
    """Uniform float32 in [0, 1)."""
    return _uniform(_philox(seed, offset)[0])


def randn(seed: hl.Expr, offset: hl.Expr) -> hl.Expr:
    """Standard normal float32, by Box and Muller's transform in double precision."""
    first, second, *_ = _philox(seed, offset)
    one = hl.f32(1)
    u1, u2 = one - _uniform(first), one - _uniform(second)
    # The C++ backend takes a float32 logarithm; rounding a float64 one to float32 gives its bits.
    logarithm = hl.cast(hl.Float(32), mathematics.log(hl.cast(hl.Float(64), u1)))
    radius = mathematics.sqrt(hl.f64(-2) * hl.cast(hl.Float(64), logarithm))
    angle = hl.f64(2 * math.pi) * hl.cast(hl.Float(64), u2)
    return hl.cast(hl.Float(32), radius * mathematics.cos(angle))


def randint64(seed: hl.Expr, offset: hl.Expr, low: hl.Expr, high: hl.Expr) -> hl.Expr:
    """Uniform int64 in [low, high)."""
    first, second, *_ = (hl.cast(hl.UInt(64), word) for word in _philox(seed, offset))
    span = hl.cast(hl.UInt(64), high) - hl.cast(hl.UInt(64), low)
    drawn = (first | (second << hl.u64(32))) % span
    return hl.cast(hl.Int(64), drawn + hl.cast(hl.UInt(64), low))


def _uniform(word: hl.Expr) -> hl.Expr:
    positive = hl.cast(hl.Int(32), word & hl.u32(0x7FFFFFFF))
    # The product is exact in float64 and rounded once, as a float32 product is; written as one, it would contract with
    # the subtraction that follows in `randn`.
    scale = hl.cast(hl.Float(64), hl.f32(_SCALE))
    single = hl.cast(hl.Float(32), positive)
    return hl.cast(hl.Float(32), hl.cast(hl.Float(64), single) * scale)


def _philox(seed: hl.Expr, offset: hl.Expr) -> list[hl.Expr]:
    return philox([hl.cast(hl.UInt(32), seed), hl.u32(0)], offset)


def philox(key: list[hl.Expr], offset: hl.Expr) -> list[hl.Expr]:
    """The four words of block number `offset` under the two words of `key`."""
    zero = hl.u32(0)
    counter = [hl.cast(hl.UInt(32), offset), zero, zero, zero]
    for _ in range(_ROUNDS):
        products = [
            hl.cast(hl.UInt(64), word) * hl.u64(multiplier)
            for word, multiplier in zip((counter[0], counter[2]), _MULTIPLIER)
        ]
        high = [hl.cast(hl.UInt(32), product >> hl.u64(32)) for product in products]
        low = [hl.cast(hl.UInt(32), product) for product in products]
        counter = [high[1] ^ counter[1] ^ key[0], low[1], high[0] ^ counter[3] ^ key[1], low[0]]
        key = [word + hl.u32(step) for word, step in zip(key, _KEY_STEP)]
    return counter
