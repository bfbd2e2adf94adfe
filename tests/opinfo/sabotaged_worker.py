"""The real worker, with operators that do damage: run by the tests in place of the worker."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch

from halide_backend.opinfo import database, worker

_operators = database.operators


def _wrong(x: torch.Tensor) -> torch.Tensor:
    # 3e-5 relative: outside of the tolerance of float32, inside of that of float16.
    return torch.sin(x) * (1 + 3e-5) if torch.compiler.is_compiling() else torch.sin(x)


def _wrong_gradient(x: torch.Tensor) -> torch.Tensor:
    return x * 3 - 2 * x.detach() if torch.compiler.is_compiling() else x * 1


def _changes_input(x: torch.Tensor) -> torch.Tensor:
    if torch.compiler.is_compiling():
        return x.detach() + 1
    return x.detach().add_(1) * 1


def _raises(x: torch.Tensor) -> torch.Tensor:
    if torch.compiler.is_compiling():
        raise NotImplementedError("no such thing")
    return torch.cos(x)


def _aborts(x: torch.Tensor) -> torch.Tensor:
    os.abort()


def _hangs(x: torch.Tensor) -> torch.Tensor:
    if mark := os.environ.get("HANGS_WITH"):
        Path(mark).touch()
    else:
        # The limit is what a slow machine needs; most of it need not be waited for. Without one it stays without.
        left, _ = signal.getitimer(signal.ITIMER_REAL)
        signal.setitimer(signal.ITIMER_REAL, left / 100)
    time.sleep(1000)
    return x


def _eager_raises(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("not even eager")


SABOTAGED = {
    "abs": _changes_input,
    "sin": _wrong,
    "cos": _raises,
    "tan": _aborts,
    "exp": _hangs,
    "log": _wrong_gradient,
    "sqrt": _eager_raises,
}


def operators() -> dict[str, Any]:
    """torch's database with `SABOTAGED` in place of a few operators."""
    infos = _operators()
    for name, function in SABOTAGED.items():
        infos[name].op = function
    return infos


if __name__ == "__main__":
    database.operators = operators
    worker.main()
