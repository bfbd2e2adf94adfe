"""Minimax polynomials and rationals: Remez exchange in 60 digits, rational ones linearised (Loeb) in every step."""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp

mp.mp.dps = 60
Function = Callable[[mp.mpf], mp.mpf]


def _solve(
    g: Function, w: Function, nodes: list[mp.mpf], m: int, n: int, q: Function
) -> tuple[list[mp.mpf], list[mp.mpf]]:
    """P - g (Q - 1) + (-1)^i E q/w = g at the nodes: coefficients low to high, Q[0] = 1."""
    size = m + n + 2
    a, b = mp.matrix(size, size), mp.matrix(size, 1)
    for i, x in enumerate(nodes):
        gx, wx = g(x), w(x)
        for j in range(m + 1):
            a[i, j] = x**j
        for j in range(1, n + 1):
            a[i, m + j] = -gx * x**j
        a[i, size - 1] = (-1) ** i * q(x) / wx
        b[i] = gx
    s = mp.lu_solve(a, b)
    return [s[j] for j in range(m + 1)], [mp.mpf(1)] + [s[m + j] for j in range(1, n + 1)]


def minimax(
    g: Function, lo: float, hi: float, m: int, n: int = 0, w: Function = lambda x: mp.mpf(1)
) -> tuple[list[float], list[float], float]:
    """(P, Q, error): coefficients high to low of P/Q, degrees m/n, minimising max |w (P/Q - g)| on [lo, hi]."""
    lo, hi = mp.mpf(lo), mp.mpf(hi)
    weight = w
    w = lambda x: abs(weight(x))  # noqa: E731
    size = m + n + 2
    nodes = [(lo + hi) / 2 - (hi - lo) / 2 * mp.cos(mp.pi * i / (size - 1)) for i in range(size)]
    gap = (hi - lo) / size
    nodes = [x if abs(x) > gap / 4 else x + gap / 4 for x in nodes]  # a weight may vanish at 0
    grid = [(lo + hi) / 2 - (hi - lo) / 2 * mp.cos(mp.pi * (i + mp.mpf(1) / 2) / (24 * size)) for i in range(24 * size)]
    values = [(g(x), w(x)) for x in grid]
    den: list[mp.mpf] = [mp.mpf(1)]
    for _ in range(12):
        num, den = _solve(g, w, nodes, m, n, lambda x, d=den: mp.polyval(d[::-1], x))
        err = [
            wx * (mp.polyval(num[::-1], x) / mp.polyval(den[::-1], x) - gx)
            for x, (gx, wx) in zip(grid, values, strict=True)
        ]
        runs: list[int] = []
        for i, e in enumerate(err):
            if not runs or (e > 0) != (err[runs[-1]] > 0):
                runs.append(i)
            elif abs(e) > abs(err[runs[-1]]):
                runs[-1] = i
        while len(runs) > size:
            runs.pop(0 if abs(err[runs[0]]) < abs(err[runs[-1]]) else -1)
        peak = max(map(abs, err))
        if len(runs) < size:
            break
        low = min(abs(err[i]) for i in runs)
        nodes = [grid[i] for i in runs]
        if peak < low * 1.02:
            break
    return [float(c) for c in num[::-1]], [float(c) for c in den[::-1]], float(peak)
