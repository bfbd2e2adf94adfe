"""Writes docs/design/one-kernel.md: softmax over rows, from the line of a program to machine code.

Every listing is made here, for a fixed processor and a fixed GPU, so that the page is the same on every machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

import halide_backend
from halide_backend.build.artifacts import worker_pool
from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import PlannedKernel, plan_kernel
from halide_backend.inspection.compiled import compile_for
from halide_backend.inspection.excerpts import excerpt, inner_loops, ptx_excerpt
from halide_backend.kernel_records.record import KernelRecord
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import device_of
from halide_backend.schedule.stage import Loop

ROWS, COLUMNS = 16384, 256

#: Every x86-64 runs it, so that the kernel can be captured on any.
_CAPTURED_FOR = "sse41"

#: Of the four accumulators of the maximum the last is shown.
_ACCUMULATORS = 4
#: The instructions at the end of a loop that count.
_COUNTING = 3

#: A paragraph of the page is one line of it, so that its prose can be wrapped here.
_PAGE = """\
# One kernel, from Python to machine code

<!-- Written by `make reference` from halide_backend/inspection/one_kernel_page.py; do not edit. -->

This page follows one kernel from layer to layer, first for a CPU with AVX-512, then for an NVIDIA H200. Every listing
is generated from the example; where one is shortened, the text says what is left out. [system.md](system.md) describes
the layers in general, and the [glossary](../reference/glossary.md) defines the terms.

## The user's line, and its FX nodes

{source_line}

AOTAutograd decomposes the call into five nodes of an FX graph. Inductor lowers them to loops and inlines the
difference into the exponential, so its scheduler has {nodes} nodes, each with a loop body: the maximum, the exponential
of the difference, the sum, and the division. It asks this backend whether they may be one kernel (`capture/fusion.py`).
They may: all iterate over the same rows, and each reads of the others' results only what belongs to its own row. A
record of the kernel keeps the FX nodes, grouped by scheduler node, and with them the lines of the user's program, so
that a kernel can be traced back to them ([records](../reference/records.md)).

{fx_nodes}

## The program

`capture/` runs the loop bodies of the fused nodes under a handler that records instead of computing. The result is a
`LoopProgram`: values over named axes, and stores. `v3`, the exponential, is read by the sum and by the division; the
program says neither whether it is stored in between or computed twice, nor in which order anything is computed. A
reduction removes an axis: `v1` has one value for each `x0`. `outer` names the axes that all stores
and reductions share. The program
is plain data with a digest: equal programs in different models have the same digest, plan and machine code.

{program}

## On a CPU: the mapping

The first half of a plan is the mapping: the decisions that the text of the kernel depends on. On a CPU they are how
transposed operands are read, of which this kernel has none, and which values become Halide Funcs; every other value is
inlined into the expressions that use it. Reductions and outputs are
always Funcs. The difference has a Func because the expression of `exp` contains its argument several times; its role is
*inline*, which says that it is cheap and is computed wherever it is used, unless a rule stores it. The exponential has
the role *shared*: it is expensive and read twice, so it will be stored, and the {row_bytes} bytes of a row stay in the
L1 cache.

{cpu_mapping}

## The algorithm, and its stages

`codegen/` writes the program as Halide statements, in Python. A maximum is encoded as integer keys that order like the
floats, with NaN on top, because a vector unit has an integer maximum and Halide can reorder it ([why.md](why.md)).
`ops.opaque` keeps Halide from conclusions that hold for real numbers and not for floats. Nothing below says in which
order or on which thread anything happens. For each Func the kernel builder adds a stage: its role, its loops, and what
it calls. The rules that choose a schedule look at the stages alone.

{cpu_algorithm}

{cpu_stages}

## The knobs and the steps

The second half of a plan is a list of steps, each one of Halide's scheduling directives
([steps](../reference/schedule-steps.md)). The rules in `schedule/cpu/` choose them. The contiguous axis is the one
along a row, so rows are distributed over threads, everything else is computed inside the loop over rows, and reductions
are split into vector lanes. What a rule decides by a number or a yes or no is a
[knob](../reference/schedule-knobs.md); the value that the knob has in
this plan, and the reason, are a choice. A name after `@` is that of the Func which the choice is for. Left out below
are the steps of `max_0`, which begin as those of `sum_0` do, and the tree that adds up the 64 lanes of `sum_0`: the
same `Split` and `RFactor` with 16 and with 4.

{cpu_choices}

{cpu_steps}

## Halide's loop nest

Algorithm, stages and steps are one text, the kernel text: a Python module that is stored in the wrapper, looked up in
the cache, and executed by a compile worker. Applying the steps gives Halide these loops. `max_0_intm` is what Halide
calls `max_0_lanes`: four vectors of running maxima, whose 64 lanes a horizontal maximum combines. The exponentials of a
row follow, then their sum in four vectors of accumulators and a tree (left out again), then the division. One iteration
of the parallel loop is one row.

{cpu_nest}

## The inner loops on AVX-512

Halide writes LLVM IR, and LLVM makes an object of it; `assembly()` of a record shows the instructions. A row takes
{loops} inner loops. The first is the maximum in four accumulators, of which the last is shown: the floats become keys,
magnitudes or, of what is less than zero, their complements (`vpternlogd`), those of NaN the largest, and `vpmaxsd`
compares. The second is `exp` of 16 elements in {exp_instructions} instructions without a call: clamp, reduce the
argument, evaluate a polynomial in pairs of terms (`vfmadd213ps`), scale by a power of two (`vscalefps`). The third adds
four vectors to four accumulators. The last divides. The exponentials lie on the stack (`%rsp`); the row is read from
memory by the first loop and from the L1 cache by the second.

{assembly}

## On a GPU: the mapping

For CUDA the same program goes the same way, with other rules. The rule `register_lines` applies: a row fits into the
registers of a thread group, here one warp. The tiling maps axes to threads: the 256 elements of a row are 64 chunks of
four adjacent elements, and each thread has two of them; each of the four warps of a block has a row. The mapping also
says that the quotients of a row, `v5`, are products with one reciprocal (`rough_divide_by_sum`), which is more exact
than the exponentials are. Reasons with times are measurements on an H200. Halide keeps a Func in registers only where
its region is a box of constant extents, so the algorithm below is written for the tiling: `x1 = x1_c*4 + x1_e` and
`x1_c = u*32 + t` for thread `t` and its iteration `u` ([cuda.md](cuda.md)).

{gpu_mapping}

{gpu_choices}

## Its algorithm and its steps

A load is a Func of 32-bit words, four to a vector (`k`), which stay in registers: a row is read from memory once. Each
thread reduces its own elements (`max_0`); `across_group` combines the results of the 32 lanes by shuffles, after which
all lanes have the maximum. There is no shared memory and no barrier. Before the store, values become words again. The
statements for the sum are those for the maximum with another operator; they are left out here, and so are its steps.

{gpu_algorithm}

{gpu_steps}

## Its loop nest

`gpu_block` and `gpu_thread` loops are the grid: {blocks} blocks of 4 x 32 threads. What is inside runs in each thread,
and all its loops are unrolled or vectorized. So every array index is a constant, as it must be for arrays in registers,
and both loads of a thread are in flight before the first maximum needs one of them. The exponential is not a Func here:
it is inlined into the sum and into the output, and LLVM computes it once, since both are in one thread.

{gpu_nest}

## PTX

The worker takes the PTX out of Halide's object, completes it (`build/ptx/`) and lets ptxas assemble it for sm_90;
without ptxas the driver does that. There are two loads of 128 bits; seven maxima (in `max.NaN` a NaN wins, as in
torch); five shuffles, of which two are shown. The exponential is `ex2.approx`, as in Inductor's Triton kernels. The
eight quotients are products with one reciprocal. Where instructions repeat for other elements, the excerpt has the
first of them; comments count those that are left out.

{ptx}
"""


def softmax(x: Tensor) -> Tensor:
    """What is compiled."""
    return torch.softmax(x, -1)


def page() -> str:
    """The text of the page; it compiles one kernel, with whatever cache of kernels the environment names."""
    record = _record()
    assert record.program is not None
    (line,) = record.source_lines
    listings = {
        "source_line": _code([f"{line.text}  # x: float32[{ROWS}, {COLUMNS}]"]),
        "nodes": str(len(record.nodes)),
        "fx_nodes": _table(("FX node", "calls"), [(f"`{each.node}`", f"`{each.target}`") for each in record.origins]),
        "program": _code(str(record.program).splitlines()),
        **_on_a_cpu(record.program),
        **_on_a_gpu(record.program),
    }
    paragraphs = (" ".join(paragraph.split("\n")) for paragraph in _PAGE.strip().split("\n\n"))
    return "\n\n".join(paragraphs).format(**listings) + "\n"


def _record() -> KernelRecord:
    compiled = compile_for("halide_backend", softmax, options={"halide_backend.target": _CAPTURED_FOR})
    compiled(torch.zeros(ROWS, COLUMNS))
    return halide_backend.records()[-1]


def _on_a_cpu(program: LoopProgram) -> dict[str, str]:
    target = Target.named("avx512")
    kernel = plan_kernel(program, device_of(target))
    nest = worker_pool().loop_nest(kernel.text, "softmax").splitlines()
    loops = inner_loops(worker_pool().assembly(kernel.text, target, "softmax", "softmax"))
    return {
        "row_bytes": f"{4 * COLUMNS:,}",
        "cpu_mapping": _code(_funcs(program, kernel)),
        "cpu_algorithm": _code(_algorithm(kernel.text)),
        "cpu_stages": _stages(kernel),
        "cpu_choices": _choices(kernel),
        "cpu_steps": _code(step for step in map(repr, kernel.plan.steps) if not _of_the_maximum_or_the_tree(step)),
        "cpu_nest": _code(_without_the_tree(nest)),
        "loops": str(len(loops)),
        # But for the label, and for the three instructions that count.
        "exp_instructions": str(len(loops[1]) - 4),
        "assembly": _code(
            (line.expandtabs(4) for loop in [_of_one_accumulator(loops[0]), *loops[1:]] for line in loop), "asm"
        ),
    }


def _on_a_gpu(program: LoopProgram) -> dict[str, str]:
    target = Target.cuda(9, 0)
    # CUDA's allocator aligns tensors.
    inputs = tuple(replace(buffer, aligned=True) for buffer in program.inputs)
    outputs = tuple(replace(buffer, aligned=True) for buffer in program.outputs)
    kernel = plan_kernel(replace(program, inputs=inputs, outputs=outputs), device_of(target))
    mapping = kernel.plan.mapping
    tiling = [f"rule: {mapping.rule}", repr(mapping.tiling)]
    ptx = worker_pool().assembly(kernel.text, target, "softmax", "softmax")
    return {
        "gpu_mapping": _code([*tiling, *_funcs(program, kernel), *(f"v{v}: {form}" for v, form in mapping.divisions)]),
        "gpu_choices": _choices(kernel),
        "gpu_algorithm": _code(line for line in _algorithm(kernel.text) if not line.startswith(("sum_", "r_1"))),
        "gpu_steps": _code(step for step in map(repr, kernel.plan.steps) if "'sum_" not in step),
        "blocks": f"{ROWS // 4:,}",
        "gpu_nest": _code(worker_pool().loop_nest(kernel.text, "softmax").splitlines()),
        "ptx": _code((line.expandtabs(4) for line in ptx_excerpt(ptx)), "asm"),
    }


def _funcs(program: LoopProgram, kernel: PlannedKernel) -> list[str]:
    return [f"v{value}: {program.values[value].operation}, {role.value}" for value, role in kernel.plan.mapping.funcs]


def _algorithm(text: str) -> list[str]:
    """The statements of `algorithm()` in a kernel text, without its last line."""
    body = text.partition("def algorithm():\n")[2].partition("    return ")[0]
    return [line.removeprefix("    ") for line in body.splitlines()]


def _stages(kernel: PlannedKernel) -> str:
    def loops(of: Sequence[Loop]) -> str:
        return ", ".join(f"`{loop.name}` < {loop.extent}" for loop in of)

    rows = [
        (f"`{s.name}`", s.role.value, loops(s.loops), loops(s.updates), ", ".join(f"`{c}`" for c in s.calls))
        for s in kernel.stages.stages
    ]
    return _table(("Func", "role", "loops, innermost first", "loops of the update", "calls"), rows)


def _choices(kernel: PlannedKernel) -> str:
    rows = [(f"`{choice.key}`", f"`{choice.setting}`", choice.why) for choice in kernel.plan.choices]
    return _table(("knob", "set to", "because"), rows)


def _of_the_maximum_or_the_tree(step: str) -> bool:
    return "'max_0" in step or "_tree" in step or "_l1" in step


def _without_the_tree(nest: list[str]) -> list[str]:
    """The loop nest without what lies between the lanes of the sum and the sum."""
    lines = [line.strip() for line in nest]
    tree = lines.index("produce sum_0_intm:", lines.index("produce sum_0_intm:") + 1)
    return excerpt(nest, [range(tree), range(lines.index("produce sum_0:"), len(nest))], "#")


def _of_one_accumulator(loop: list[str]) -> list[str]:
    """A loop without the first three of its accumulators: the label, their loads, the last, and what counts."""
    loads = 1 + _ACCUMULATORS
    end = len(loop) - _COUNTING - (len(loop) - loads - _COUNTING) // _ACCUMULATORS
    return excerpt(loop, [range(loads), range(end, len(loop))], "\t#")


def _code(lines: Iterable[str], language: str = "") -> str:
    return "\n".join([f"```{language}", *(line.rstrip() for line in lines if line.strip()), "```"])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in [head, *rows]]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
