"""Writes docs/reference/schedule-steps.md from the steps themselves, with the loop nests that Halide makes of them."""

from __future__ import annotations

import inspect
import sys
from dataclasses import MISSING, fields
from pathlib import Path

from halide_backend.inspection.loop_nests import LoopNests
from halide_backend.inspection.step_examples import EXAMPLES, Example
from halide_backend.schedule import steps
from halide_backend.schedule.steps import Step

HEAD = """\
# Steps of a schedule

<!-- Written by `make reference` from halide_backend/schedule/steps.py and inspection/step_examples.py; do not edit. -->

`SCHEDULE` in the text of a kernel, and "steps" in the JSON of a plan, are lists of these. Each is a directive of
Halide's scheduling language with Halide's name and the order of Halide's arguments; the first argument names the
Func. `update=0` makes a step one for the Func's first update definition, as in Halide's `func.update(0)`. Names of
RVars have a `$`.

Every list is checked before Halide sees it (`halide_backend/schedule/legality/`), whoever made it: a step that could
give another result, or none in bounded time, is an `IllegalPlan`, which names the step and the reason. The check looks
at the `StageGraph` in the text (`STAGES`): the loops of each Func, and what it is in its kernel (its role).

The examples are six small kernels of 24 rows, `x0`, and 32 columns, `x1`, compiled for AVX2:

- a pointwise one: `out_ptr0[x1, x0] = exp(in_ptr0[x1, x0])`;
- one with the Func `exp_0`, which is that exponential: `out_ptr0[x1, x0] = exp_0[x1, x0] + exp_0[x1, x0 + 2]`;
- one of its hyperbolic tangent, with the same Func: `out_ptr0[x1, x0] = tanh(exp_0[x1, x0])`;
- one with the Func `sum_0`, the sum of the exponentials of a row, which is stored as `out_ptr0[x0]`;
- one with the Func `max_0`, the maximum of a row of `in_ptr0`, which is stored as `out_ptr0[x0]`;
- one of two outputs: `out_ptr0` is the exponential of `in_ptr0`, and `out_ptr1` is `-in_ptr0`.
"""

#: When a step is legal, in addition to what every step needs: Funcs and loops that exist when it is its turn.
LEGAL: dict[type[Step], str] = {
    steps.Split: (
        "for a serial loop. RoundUp: for a loop of constant length that no other split has made, of a Func that is no "
        "output, and only where the factor divides the loop. ShiftInwards: on a CPU, for one whole loop of an output, "
        "before its other splits, if nothing reads the output's memory and no other output is computed with it."
    ),
    steps.Fuse: (
        "for two Vars, or two RVars of a reduction. On a GPU with several outputs, not for axes whose points are "
        "divided among blocks."
    ),
    steps.Reorder: "always, but RVars of scans and scatters keep their order.",
    steps.Vectorize: (
        "for a loop of constant length, a power of two up to 256; one for each definition, with no "
        "other loops inside. An RVar: after Atomic. On a GPU: for four adjacent 32-bit words."
    ),
    steps.Unroll: (
        "for a loop of constant length; at most 512 copies of a definition. Never for a Func with the role serial, "
        "which is itself a loop with a data-dependent trip count."
    ),
    steps.Parallel: "for a Var, on a CPU.",
    steps.Atomic: "for sums, products, minima and maxima, on a CPU.",
    steps.RFactor: "for sums, products, minima and maxima, on a CPU, while the RVars are serial.",
    steps.ComputeInline: "for a Func with the role inline or shared, never for a reduction, a scan or an old value.",
    steps.ComputeAt: (
        "once for each Func, inside a loop that is no vector, of a Func that needs it. The old value "
        "of overwritten memory: inside a loop that all outputs share, and outside of those of a reduction. On a "
        "GPU: inside the loops over blocks, and inside those over threads unless the Func has such loops of its own."
    ),
    steps.ComputeRoot: "once for each Func, on a CPU.",
    steps.StoreAt: "on a CPU, with a ComputeAt further inside, and serial loops in between.",
    steps.StoreRoot: "as StoreAt.",
    steps.StoreIn: (
        'on a CPU "Auto", "Heap", or "Stack" for up to 16 KiB; on a GPU "GPUShared" for what the '
        "threads of a block compute together."
    ),
    steps.FoldStorage: (
        "on a CPU, with a StoreAt or StoreRoot, where Halide can prove that so many positions are enough."
    ),
    steps.In: "on a CPU, before other steps for the Func, if the consumer calls it.",
    steps.CloneIn: "as In.",
    steps.Prefetch: "on a CPU, up to 1,024 iterations ahead.",
    steps.ComputeWith: (
        "for outputs whose loops from the outermost one down to this are the same; on a CPU also for a Func that is "
        "stored whole, if the parent is the only output, does not need it, and overwrites nothing."
    ),
    steps.Bound: "with the number of points that the dimension has anyway.",
    steps.BoundExtent: (
        "with an extent of 1 for an outer axis, if all loops along this axis are outside of the Func; on a GPU also "
        "with as many points as a block has of what its threads share."
    ),
    steps.BoundStorage: (
        "on a CPU, for a Func inside of a loop of an output, if all that needs it is there, and what is needed of it "
        "at a time is known and not more."
    ),
    steps.GpuBlocks: "on a GPU, for every output; at most three loops, outermost.",
    steps.GpuThreads: (
        "on a GPU, for loops of constant length just inside the blocks: at most 1,024 threads in all. "
        "Where threads exchange values, the loops have to be those that the mapping's tiling gives to threads."
    ),
    steps.NeverPartition: "always.",
    steps.Specialize: (
        "for an output on a CPU that is not computed together with another one, before other steps for its loops."
    ),
    steps.AlignStorage: "for a dimension of a Func that is no output, up to 1,024 elements.",
    steps.ReorderStorage: "for all dimensions of a Func that is no output, on a CPU.",
    steps.AllowRaceConditions: (
        "for scatters on a GPU, and for those on a CPU that store side by side along an axis, at places that are no "
        "data: loops along that axis may then become vectors."
    ),
}


def page() -> str:
    """The text of the page."""
    with LoopNests() as nests:
        return HEAD + "".join(_section(kind, nests) for kind in Step.kinds.values())


def _section(kind: type[Step], nests: LoopNests) -> str:
    arguments = [f.name if f.default is MISSING else f"{f.name}={f.default!r}" for f in fields(kind)]
    text = " ".join((inspect.getdoc(kind) or "").split())
    parts = [f"\n## {kind.__name__}", f"`{kind.__name__}({', '.join(arguments)})`", text, f"Legal {LEGAL[kind]}"]
    if kind in EXAMPLES:
        parts += _example(EXAMPLES[kind], nests)
    return "\n\n".join(parts) + "\n"


def _example(example: Example, nests: LoopNests) -> list[str]:
    before, after = nests.of(example.text(example.before)), nests.of(example.text())
    told = [f"    {step!r}" for step in example.steps[: example.before]] or ["    no steps"]
    parts = ["Before:\n\n" + "\n".join([*told, "", *_indented(before)])]
    shown = [f"    {step!r}" for step in example.steps[example.before :]]
    if after != before:
        return [*parts, "With it:\n\n" + "\n".join([*shown, "", *_indented(after)])]
    return [*parts, "With it, which Halide's loop nest does not show:\n\n" + "\n".join(shown)]


def _indented(nest: str) -> list[str]:
    return [f"    {line}" for line in nest.rstrip().splitlines()]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
