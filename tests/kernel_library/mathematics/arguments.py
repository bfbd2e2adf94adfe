"""Arguments to test with: bit patterns of every exponent, usual sizes, edges of domain and range."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
_WORD = {32: np.uint32, 64: np.uint64}
_FLOAT = {32: np.float32, 64: np.float64}
#: Stride through all bit patterns, prime.
STRIDE_32 = 4099

#: Where functions start, end, turn over or change method.
_EDGES = (
    *(0.5, 0.75, 1, 1.5, 2, 3, 8, 10, 25, 28, 1e-3, 1e-8, 1e-17, 1e20, 1e30),
    *(0.34657359, 1.0397207, 0.70710678, 1.41421356, 0.41421356, 2.41421356, 0.625, 0.85, 0.9, 4),
    *(0.78539816, 1.57079633, 3.14159265, 4.71238898, 10, 103.97, 104, 87.3365, 88.7228, 89.416),
    *(708.396, 709.7827, 710.4758, 744.44, 745.133, 126, 127, 128, 149, 150, 1022, 1024, 1074, 1075),
    *(9.1, 9.19, 10.05, 5.9, 26.5, 27.2, 1.46163214, 6.5, 0.0057, 36.7, 17.3, 16777216, 8388608.5),
)


def specials(bits: int) -> Floats:
    """Zeros, infinities, NaN, denormals, largest and smallest numbers, ones and their neighbours, of both signs."""
    kind = _FLOAT[bits]
    limits = np.finfo(kind)
    positive = [0.0, np.inf, np.nan, limits.tiny, limits.smallest_subnormal, limits.max]
    positive += [limits.tiny / 3, 1.0, 0.5, 2.0, 3.0, 4.0, 0.3, 2.5, 7.0, 1e10, 2.0**31, 2.0**53]
    positive += [np.nextafter(kind(1), kind(0)), np.nextafter(kind(1), kind(2))]
    half = np.array(positive, kind)
    return np.concatenate([half, -half])


def arguments(bits: int, count: int, stride: int = 0, seed: int = 0) -> Floats:
    """A mixture, length a multiple of 16; `stride` (32 bits) walks through all bit patterns, else they are drawn."""
    word, kind = _WORD[bits], _FLOAT[bits]
    random = np.random.default_rng(seed)
    if stride:
        patterns = np.arange(seed % stride, 2**32, stride, dtype=np.int64).astype(np.uint32)
    else:
        patterns = random.integers(0, 2**bits, count, dtype=word)
    sizes = random.choice([0.01, 0.3, 1, 4, 30, 300], count)
    edges = np.array(_EDGES, np.float64)
    near = np.repeat(np.concatenate([edges, -edges]).astype(kind).view(word), max(1, count // 1000))
    near = near + random.integers(-30, 31, near.size).astype(word)
    turns = (np.round(random.uniform(-1e6, 1e6, count // 8)) * (np.pi / 2)).astype(kind)
    parts = [
        patterns.view(kind),
        (random.standard_normal(count) * sizes).astype(kind),
        near.view(kind),
        turns,
        specials(bits),
    ]
    return padded(np.concatenate(parts))


def pairs(bits: int, count: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Two arguments: random ones, all pairs of special values, powers near 1, equal and nearly equal sizes."""
    kind = _FLOAT[bits]
    random = np.random.default_rng(seed)
    x, y = arguments(bits, count, seed=seed + 1), arguments(bits, count, seed=seed + 2)
    random.shuffle(x)
    random.shuffle(y)
    a, b = (v.ravel() for v in np.meshgrid(specials(bits), specials(bits)))
    near = (1 + random.standard_normal(count // 4) * 1e-3).astype(kind)
    large = (random.standard_normal(count // 4) * 1e4).astype(kind)
    whole = np.round(random.standard_normal(count // 4) * 20).astype(kind)
    base = random.standard_normal(count // 4).astype(kind)
    first, second = [x, a, near, base, base], [y, b, large, whole, base[::-1]]
    return padded(np.concatenate(first)), padded(np.concatenate(second))


def padded(a: Floats) -> Floats:
    """Ones appended up to a multiple of 16."""
    return np.concatenate([a, np.ones(-a.size % 16, a.dtype)])
