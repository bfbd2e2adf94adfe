"""Kernels that no rule would write: the text of a good one, sabotaged."""

from __future__ import annotations

from halide_backend.tune.trial import Outcome

_ADDED = "t1 = ops.add(t0, t0)"

#: What becomes of the line that adds in the kernel of x + x. Loops that end after some centuries; memory of 8 GB.
_RUNS = {
    "wrong": "t1 = ops.add(t0, hl.i32(1))",
    "often right": "t1 = hl.select(x0 == 997, t0, ops.add(t0, t0))",
    "endless": (
        "r = hl.RDom([(0, 1 << 30), (0, 1 << 30)], 'r')\n    loop = hl.Func('loop')\n    loop[x0] = t0\n"
        "    loop[x0] = loop[x0] ^ ((loop[x0] >> 3) + r.x * r.y)\n    loop.compute_root()\n    t1 = loop[x0]"
    ),
    "crash": "t1 = ops.add(t0, in_ptr0[x0 + 1_900_000_000])",
    "greedy": (
        "y = hl.Var('y')\n    bigs = [hl.Func(f'big{k}') for k in range(4)]\n    for k, big in enumerate(bigs):\n"
        "        big[x0, y] = t0 + y * k\n        big.compute_root().bound(y, 0, 1 << 19)\n"
        "    t1 = bigs[0][x0, 7] + bigs[1][x0, 7] + bigs[2][x0, 7] + bigs[3][x0, 7]"
    ),
}

#: What the text does while it is compiled.
_COMPILES = {
    "endless compilation": "while True: pass",
    "crash in compilation": "import os; os.abort()",
    "greedy compilation": "bytearray(8 << 30)",
    "no kernel": "raise ValueError('nothing')",
}

OUTCOMES = {
    "wrong": Outcome.WRONG,
    "often right": Outcome.WRONG,
    "endless": Outcome.TIMEOUT,
    "crash": Outcome.CRASHED,
    "greedy": Outcome.MEMORY,
    "endless compilation": Outcome.TIMEOUT,
    "crash in compilation": Outcome.CRASHED,
    "greedy compilation": Outcome.MEMORY,
    "no kernel": Outcome.ILLEGAL,
}


def sabotaged(text: str, how: str, number: int = 0) -> str:
    """The kernel of x + x with something wrong; texts of different numbers are different."""
    if how in _RUNS:
        assert _ADDED in text
        text = text.replace(_ADDED, _RUNS[how])
    else:
        start = "    inputs, outputs, funcs = algorithm()\n"
        assert start in text
        text = text.replace(start, f"    {_COMPILES[how]}\n{start}")
    return f"{text}\n# {number}\n"
