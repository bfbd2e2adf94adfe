"""The rules for CUDA, the first of which that applies lays a program on blocks and threads and chooses its steps.

All outputs of a kernel share one grid: the others are computed with the first one, down to the thread. What a thread
needs lies in registers, which takes loops that unroll to constants; what threads of a block share lies in shared
memory. The numbers are explained in docs/design/cuda.md.
"""

from __future__ import annotations

from functools import lru_cache

from halide_backend.errors import IllegalPlan, Unsupported
from halide_backend.program.aliasing import old_values, overwriting
from halide_backend.program.applications import without_applications
from halide_backend.program.dtypes import FLOAT8
from halide_backend.program.flattening import flattened
from halide_backend.program.loop_program import Load, LoopProgram, Reduction
from halide_backend.program.uses import sinks_of
from halide_backend.schedule.cuda import (
    block_lines,
    column_groups,
    column_reductions,
    column_scans,
    interleaved_lines,
    pointwise,
    register_lines,
    register_transposes,
    scans,
    scatters,
    shared_transposes,
    warp_lines,
)
from halide_backend.schedule.cuda.facts import Facts
from halide_backend.schedule.cuda.rule import Rule
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel
from halide_backend.schedule.device import Gpu
from halide_backend.schedule.knobs import Choices
from halide_backend.schedule.mapping.cache_hints import load_cache_hint
from halide_backend.schedule.mapping.cuda_funcs import cuda_funcs
from halide_backend.schedule.mapping.division import division_forms
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.mapping.registers import register_limit
from halide_backend.schedule.mapping.tuples import gpu_tuples
from halide_backend.schedule.stage import StageGraph
from halide_backend.schedule.steps import Step
from halide_backend.schedule.tiling import Tiling

#: In the order in which they are asked.
RULES: tuple[Rule, ...] = (
    scans.RULE,
    column_scans.RULE,
    interleaved_lines.RULE,
    column_groups.RULE,
    register_lines.RULE,
    warp_lines.RULE,
    block_lines.RULE,
    column_reductions.RULE,
    scatters.RULE,
    register_transposes.RULE,
    shared_transposes.RULE,
    pointwise.RULE,
)


def cuda_mapping(program: LoopProgram, device: Gpu, choices: Choices) -> Mapping:
    """The mapping that the rules choose for `program`, which has been prepared for a GPU.

    Raises:
        Unsupported: its loops fit no tiling, or an old value of what it overwrites would have to be kept.
        IllegalPlan: a requested knob has no such value, or the program cannot have it.
    """
    dtypes = {buffer.dtype for buffer in (*program.inputs, *program.outputs)} | {v.dtype for v in program.values}
    if dtypes & FLOAT8:
        raise Unsupported("float8-on-gpu", f"a tensor of {min(dtypes & FLOAT8)} on a GPU")
    rule, tiling = _first_rule(Facts(program, device), choices)
    if lost := _lost(program, rule, tiling):
        raise Unsupported("overwritten-memory-read-by-outputs", f"{lost} is needed by several stores")
    return Mapping(
        cuda_funcs(program, tiling),
        tiling,
        load_cache_hint(program, tiling, device, choices),
        division_forms(program, tiling, choices),
        register_limit(tiling, choices),
        rule.name,
        tuples=gpu_tuples(program, tiling.kind, choices),
    )


def cuda_steps(graph: StageGraph, mapping: Mapping, device: Gpu, choices: Choices) -> tuple[Step, ...]:
    """The steps that the rule of `mapping` chooses for `graph`, whose Funcs are written for it, on `device`.

    Raises:
        Unsupported: its outer axes fit no grid.
        IllegalPlan: there is no such rule, or a requested knob has no such value.
    """
    rules = {rule.name: rule for rule in RULES}
    if mapping.rule not in rules or mapping.tiling is None:
        raise IllegalPlan(
            f"there is no rule {mapping.rule!r} for CUDA", where="mapping", cure=f"use one of {', '.join(rules)}"
        )
    return rules[mapping.rule].steps(TiledKernel(graph, mapping.tiling, device, choices))


def one_tiling(program: LoopProgram, device: Gpu) -> Tiling:
    """The tiling of a program as it was captured, if one kernel computes it no slower than several would.

    Sums of the sums of lines would leave each thread, or each group, a long way to go; and what threads that reduce
    across memory store along what they reduce would go to as many places as there are threads.

    Raises:
        Unsupported: it reduces lines of several kinds, stores across the memory that it reduces or along a part of a
            line, or fits no tiling.
    """
    reductions = [value.attribute for value in program.values if isinstance(value.attribute, Reduction)]
    kinds = {frozenset(axis.name for axis in reduction.axes) for reduction in reductions}
    if len(kinds) > 1:
        raise Unsupported("reductions-over-different-axes", f"reductions over {sorted(map(sorted, kinds))}")
    facts, rule, tiling = _tiled(program, device)
    if rule is column_reductions.RULE and (stored := column_reductions.stored_across(facts, tiling)):
        raise Unsupported("reduction-stored-across-memory", f"{stored} is contiguous along what the kernel reduces")
    if rule is column_reductions.RULE and (stored := column_reductions.stored_along_part(facts, tiling)):
        raise Unsupported("reduction-stored-along-part", f"{stored} is stored along a part of what the kernel reduces")
    return tiling


def has_tiling(program: LoopProgram, device: Gpu) -> bool:
    """Whether the loops of a captured program fit one."""
    try:
        return bool(_tiled(program, device))
    except Unsupported:
        return False


def stored_by_few(program: LoopProgram, device: Gpu) -> str:
    """An output along which too few threads would store one point after another; "" if none.

    Raises:
        Unsupported: the program's loops fit no tiling.
    """
    facts, rule, tiling = _tiled(program, device)
    return column_reductions.stored_by_few(facts, tiling) if rule is column_reductions.RULE else ""


def stored_crosswise(program: LoopProgram, device: Gpu) -> str:
    """An output of a pointwise kernel that its threads would store across its memory; "" if none.

    Raises:
        Unsupported: the program's loops fit no tiling.
    """
    facts, rule, _ = _tiled(program, device)
    return pointwise.stored_crosswise(facts) if rule is pointwise.RULE else ""


def old_value_lost(program: LoopProgram, device: Gpu) -> str:
    """An old value of overwritten memory that one kernel of the captured `program` would lose; "" if none.

    Raises:
        Unsupported: the program's loops fit no tiling.
    """
    facts, rule, tiling = _tiled(program, device)
    return _lost(facts.program, rule, tiling)


def _lost(program: LoopProgram, rule: Rule, tiling: Tiling) -> str:
    """The same of a program whose tiling is known.

    A thread of a pointwise kernel loads an old value once, for all outputs, as a Func of its own. Nothing tells LLVM
    that the memory is written as well: the value is certain to be loaded first where it is part of what overwrites it.
    """
    preserved, snapshots = old_values(program)
    if not preserved | snapshots:
        return ""
    sinks = sinks_of(program)
    for position in sorted(preserved | snapshots):
        load = program.values[position].attribute
        assert isinstance(load, Load)
        own = f"store {overwriting(program, load.buffer)[0]}"
        alone = rule is pointwise.RULE and not tiling.across
        if position in snapshots or not alone or own not in sinks[position]:
            return f"an old value of {load.buffer}"
    return ""


@lru_cache(maxsize=8)
def _tiled(program: LoopProgram, device: Gpu) -> tuple[Facts, Rule, Tiling]:
    """A captured `program` as the rules see it, with the first one that applies and its tiling; kept, since whoever
    asks whether two nodes fuse asks several questions about one program.

    Raises:
        Unsupported: its loops fit no tiling.
    """
    facts = Facts(flattened(without_applications(program)), device)
    return facts, *_first_rule(facts, Choices())


def _first_rule(facts: Facts, choices: Choices) -> tuple[Rule, Tiling]:
    """The first rule that applies, and the tiling that it gives.

    Raises:
        Unsupported: the program's loops fit no tiling, or one that would leave the GPU idle.
    """
    if not facts.scans:
        _check(facts)
    tilings = ((rule, rule.tile(facts, choices)) for rule in RULES)
    return next((rule, tiling) for rule, tiling in tilings if tiling is not None)


def _check(facts: Facts) -> None:
    """Refuse loops that no rule without a scan is for."""
    if facts.reductions:
        if facts.recurs:
            raise Unsupported("data-dependent-loop-in-reduction", "a loop as long as data say beside a reduction")
        if facts.scatters:
            raise Unsupported("scatter-of-reduction", "a scatter beside a reduction")
        return
    nests = {frozenset(axis.name for axis in store.nest.axes) for store in facts.program.stores}
    if len(nests) != 1:
        raise Unsupported("stores-over-different-loops", f"stores over {sorted(map(sorted, nests))}")
    if facts.scatters and len(facts.program.stores) > 1:
        raise Unsupported("scatter-mixed-with-stores", f"{len(facts.program.stores)} stores, one of them a scatter")
