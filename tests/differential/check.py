"""Runs one program through this backend and through eager."""

from __future__ import annotations

import traceback
import warnings
from dataclasses import dataclass, field

import torch
import torch._inductor.config as inductor_config

import halide_backend

from .comparison import compare
from .execution import outputs
from .program import Program


@dataclass
class Outcome:
    """`kind` is "equal", "mismatch", "error" (compiling or running raised), "eager" (eager itself raised) or "inductor".

    The last is a difference from eager that Inductor's C++ backend has as well, with the values that this backend has:
    it was made before any backend saw the graph. `message` says what differs.
    """

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
    halide_backend.reset_stats()
    try:
        got = _compiled(program, backend)
    except Exception as error:
        lines = traceback.format_exc().strip().splitlines()
        return Outcome("error", f"{type(error).__name__}: {error}"[:2000] + "\n" + "\n".join(lines[-8:]))
    stats = halide_backend.stats()
    left = dict(stats["delegation_reasons"])
    if stats["unfused_groups"]:
        left["fused nodes that fell apart"] = stats["unfused_groups"]
    comparison = compare(program, got, expected)
    kind = "equal"
    if comparison.problems:
        shared = backend != "cpp" and not compare(program, got, _compiled(program, "cpp")).problems
        kind = "inductor" if shared else "mismatch"
    return Outcome(
        kind,
        "\n".join(comparison.problems),
        int(stats["native_kernels"]),
        left,
        comparison.elements,
        comparison.unproved,
    )


def _compiled(program: Program, backend: str) -> list[torch.Tensor]:
    torch._dynamo.reset()
    with inductor_config.patch(cpu_backend=backend, force_disable_caches=True):
        compiled = torch.compile(program.function(), dynamic=False, fullgraph=True)
        return outputs(compiled, [t.make() for t in program.inputs], program.gradients)
