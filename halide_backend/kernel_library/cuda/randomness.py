"""Random numbers with the bits of Inductor's Triton kernels: Philox 4x32-10, keyed by the whole 64-bit seed.

The mapping to floats is that of triton/language/random.py: `uint_to_uniform_float` and `pair_uniform_to_normal`.
"""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library import mathematics
from halide_backend.kernel_library.randomness import philox

#: The largest float32 for which 0x7FFFFFFF times it stays below 1.
_SCALE = 4.6566127342e-10


def rand(seed: hl.Expr, offset: hl.Expr) -> hl.Expr:
    """Uniform float32 in [0, 1)."""
    return _uniform(_words(seed, offset)[0])


def randn(seed: hl.Expr, offset: hl.Expr) -> hl.Expr:
    """Standard normal float32, by Box and Muller's transform."""
    first, second, *_ = _words(seed, offset)
    u1, u2 = _uniform(first), _uniform(second)
    u1 = hl.select(u1 < hl.f32(1e-7), hl.f32(1e-7), u1)
    radius = mathematics.sqrt(hl.f32(-2) * mathematics.log(u1))
    return radius * mathematics.cos(hl.f32(2 * math.pi) * u2)


def randint64(seed: hl.Expr, offset: hl.Expr, low: hl.Expr, high: hl.Expr) -> hl.Expr:
    """Uniform int64 in [low, high)."""
    first, second, *_ = (hl.cast(hl.UInt(64), word) for word in _words(seed, offset))
    span = hl.cast(hl.UInt(64), high) - hl.cast(hl.UInt(64), low)
    drawn = (first | (second << hl.u64(32))) % span
    return hl.cast(hl.Int(64), drawn + hl.cast(hl.UInt(64), low))


def _words(seed: hl.Expr, offset: hl.Expr) -> list[hl.Expr]:
    wide = hl.cast(hl.UInt(64), seed)
    return philox([hl.cast(hl.UInt(32), wide), hl.cast(hl.UInt(32), wide >> hl.u64(32))], offset)


def _uniform(word: hl.Expr) -> hl.Expr:
    signed = hl.reinterpret(hl.Int(32), word)
    positive = hl.select(signed < 0, -signed - 1, signed)
    return hl.cast(hl.Float(32), positive) * hl.f32(_SCALE)
