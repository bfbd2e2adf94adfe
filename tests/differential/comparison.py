"""What counts as equal to eager: torch.testing's tolerance of each dtype, integers and bools exactly.

A random program can subtract two rounded values that are nearly equal: there the result of eager itself is as wrong as
any other. So every element is also computed with all floating-point types widened to float64. An element of which eager
misses that truth by more than the tolerance proves nothing, nor does an error that eager itself makes elsewhere in the
same tensor or one that roundings inside the program explain (see `rounding`); such elements are counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from . import rounding
from .program import Program

#: dtype -> (rtol, atol), the defaults of torch.testing.assert_close.
TOLERANCES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
}


@dataclass
class Comparison:
    """`problems` are the mismatches in words; `unproved` counts elements where eager is no reference."""

    problems: list[str] = field(default_factory=list)
    elements: int = 0
    unproved: int = 0


def compare(program: Program, got: list[torch.Tensor], expected: list[torch.Tensor]) -> Comparison:
    comparison = Comparison()
    truth: list[torch.Tensor] | None = None
    unresolved: dict[int, list[torch.Tensor]] = {}
    if len(got) != len(expected):
        comparison.problems.append(f"{len(got)} results instead of {len(expected)}")
        return comparison
    for number, (mine, eager) in enumerate(zip(got, expected)):
        name = (
            program.outputs[number]
            if number < len(program.outputs)
            else f"input or gradient {number - len(program.outputs)}"
        )
        facts = [(t.shape, t.dtype) for t in (mine, eager)]
        if facts[0] != facts[1]:
            comparison.problems.append(f"{name}: {facts[0]} instead of {facts[1]}")
            continue
        comparison.elements += mine.numel()
        wrong = ~close(mine, eager)
        if mine.is_floating_point() and bool(wrong.any()):
            truth = rounding.exact(program) if truth is None else truth
            wide = truth[number].to(eager.dtype)
            right = wrong & close(mine, wide)
            doubtful = wrong & ~right & (~close(eager, wide) | _no_worse(mine, eager, wide))
            for draws in rounding.DRAWS:
                if not bool((wrong & ~right & ~doubtful).any()):
                    break
                if draws not in unresolved:
                    unresolved[draws] = rounding.resolution(program, truth, draws)
                doubtful |= wrong & ~right & ((mine.double() - truth[number]).abs() <= unresolved[draws][number])
            comparison.unproved += int(doubtful.sum())
            wrong = wrong & ~doubtful & ~right
        if bool(wrong.any()):
            where = tuple(wrong.nonzero()[0].tolist())
            comparison.problems.append(
                f"{name} {tuple(mine.shape)} {str(mine.dtype)[6:]}: {int(wrong.sum())} of {wrong.numel()} wrong, first at"
                f" {where}: {mine[where].item()!r} instead of {eager[where].item()!r}"
            )
    return comparison


def close(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Element by element, NaN equal to NaN, a zero equal to a zero of the same sign alone."""
    if not expected.is_floating_point():
        return got == expected
    rtol, atol = TOLERANCES[expected.dtype]
    wide_got, wide_expected = got.to(torch.float64), expected.to(torch.float64)
    opposite_zeros = (got == 0) & (expected == 0) & (got.signbit() != expected.signbit())
    return torch.isclose(wide_got, wide_expected, rtol=rtol, atol=atol, equal_nan=True) & ~opposite_zeros


def _no_worse(got: torch.Tensor, eager: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Where `got` is not farther from the truth than eager is somewhere in the same tensor."""
    errors = (eager.double() - truth.double()).abs()
    finite = errors[torch.isfinite(errors)]
    worst = finite.max() if finite.numel() else torch.zeros(())
    return (got.double() - truth.double()).abs() <= worst
