"""Runs one program through this backend and through eager."""

from __future__ import annotations

import traceback
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch

import halide_backend
from halide_backend.inspection.compiled import compile_for

from . import guarded_memory
from .comparison import compare
from .execution import outputs
from .program import Program


@dataclass
class Outcome:
    """`kind` is "equal", "mismatch", "error" (compiling or running raised), "eager" (eager itself raised) or "inductor".

    The last is a difference from eager that Inductor's C++ backend has as well, with the values that this backend has, or
    an exception that it raises, too: either was made before any backend saw the graph. `message` says what differs.
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
        if backend != "cpp" and _fails_alike(program, error):
            return Outcome("inductor", f"{type(error).__name__}: {error}"[:2000])
        lines = traceback.format_exc().strip().splitlines()
        return Outcome("error", f"{type(error).__name__}: {error}"[:2000] + "\n" + "\n".join(lines[-8:]))
    stats = halide_backend.stats()
    left = dict(stats["delegation_reasons"])
    # Nodes that overwrite what others read elsewhere need kernels of their own; any other refusal is a rule's defect.
    left |= {why: n for why, n in stats["unfusing_reasons"].items() if not why.startswith("overwritten-memory-")}
    comparison = compare(program, got, expected)
    kind = "equal"
    if comparison.problems:
        alike = backend != "cpp" and (_differs_alike(program, got) or _is_overwritten(program, backend))
        kind = "inductor" if alike else "mismatch"
    return Outcome(
        kind,
        "\n".join(comparison.problems),
        int(stats["native_kernels"]),
        left,
        comparison.elements,
        comparison.unproved,
    )


def _fails_alike(program: Program, error: Exception) -> bool:
    """Whether Inductor's C++ backend raises what this backend has raised."""
    try:
        _compiled(program, "cpp")
    except Exception as other:
        return type(other) is type(error) and str(other)[:200] == str(error)[:200]
    return False


#: Ways to ask Inductor's C++ backend for its values. With vectors its code fails with an assertion for some of the graphs
#: that are wrong already (seed 351). Without, a sum of 63 numbers has one partial sum: none of it overflows where those
#: of vectors do (seed 7785). And fusion can hide that a node runs too late: Inductor forgets that what was put into a
#: concatenation is changed with it (seed 97138).
_CPP: tuple[dict[str, object], ...] = ({"cpp.simdlen": 1}, {}, {"max_fusion_size": 1})


def _differs_alike(program: Program, got: list[torch.Tensor]) -> bool:
    """Whether Inductor's C++ backend has the values that this backend has, in one of the ways to ask it."""
    return any(_cpp_has(program, got, options) for options in _CPP)


def _is_overwritten(program: Program, backend: str) -> bool:
    """Whether the results are right as soon as torch does not let the backward pass overwrite what the forward pass saved
    for it. A result may lie there (seed 1042868); which memory is reused differs between backends."""
    if not program.gradients:
        return False
    with torch._functorch.config.patch(donated_buffer=False):
        got = _compiled(program, backend)
    expected = outputs(program.function(), [t.make() for t in program.inputs], program.gradients)
    return not compare(program, got, expected).problems


def _cpp_has(program: Program, got: list[torch.Tensor], options: dict[str, object]) -> bool:
    try:
        return not compare(program, got, _compiled(program, "cpp", options)).problems
    except Exception:
        return False


def _compiled(program: Program, backend: str, options: dict[str, object] | None = None) -> list[torch.Tensor]:
    torch._dynamo.reset()
    compiled = compile_for(backend, program.function(), dynamic=program.dynamic, fullgraph=True, options=options)
    guarded = backend == "halide_backend"
    with guarded_memory.of_buffers() if guarded else nullcontext():
        for at_end in (False, True) if guarded else (True,):
            made = [t.make() for t in program.inputs]
            arguments = [guarded_memory.copied(each, at_end=at_end) for each in made] if guarded else made
            results = outputs(compiled.call, arguments, program.gradients)
    if compiled.codes:
        compiled.check_code()
    return results
