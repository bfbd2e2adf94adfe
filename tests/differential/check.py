"""Runs one program through this backend and through eager."""

from __future__ import annotations

import traceback
import warnings
from dataclasses import dataclass, field

import torch
import torch._inductor.config as inductor_config

import halide_backend

from .comparison import compare, outputs
from .program import Program


@dataclass
class Outcome:
    """`kind` is "equal", "mismatch", "error" (compiling or running raised) or "eager" (eager itself raised)."""

    kind: str
    message: str = ""
    native: int = 0
    delegated: dict[str, int] = field(default_factory=dict)
    elements: int = 0
    unproved: int = 0


def check(program: Program, backend: str = "halide_backend") -> Outcome:
    """Compile `program`, run it, compare everything it returns, changes and differentiates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _check(program, backend)


def _check(program: Program, backend: str) -> Outcome:
    try:
        expected = outputs(program.function(), [t.make() for t in program.inputs], program.gradients)
    except Exception as error:
        return Outcome("eager", f"{type(error).__name__}: {error}")
    torch._dynamo.reset()
    halide_backend.reset_stats()
    try:
        with inductor_config.patch(cpu_backend=backend, force_disable_caches=True):
            compiled = torch.compile(program.function(), dynamic=False, fullgraph=True)
            got = outputs(compiled, [t.make() for t in program.inputs], program.gradients)
    except Exception as error:
        lines = traceback.format_exc().strip().splitlines()
        return Outcome("error", f"{type(error).__name__}: {error}"[:2000] + "\n" + "\n".join(lines[-8:]))
    stats = halide_backend.stats()
    comparison = compare(program, got, expected)
    return Outcome(
        "mismatch" if comparison.problems else "equal",
        "\n".join(comparison.problems),
        int(stats["native_kernels"]),
        dict(stats["delegation_reasons"]),
        comparison.elements,
        comparison.unproved,
    )
