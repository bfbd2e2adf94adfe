"""Checks on a CPU: an output of their own says which of them failed anywhere."""

from __future__ import annotations

from halide_backend.codegen.axes import Axes
from halide_backend.codegen.kernel_builder import KernelBuilder
from halide_backend.codegen.reductions import reduce_alone
from halide_backend.kernel_library.arguments import Status
from halide_backend.program.func_cost import define
from halide_backend.program.loop_program import Reduction, Value
from halide_backend.schedule.stage import Loop, Role, Stage


def write_status(builder: KernelBuilder[Axes]) -> Status:
    """One int32 per check: whether its condition is true anywhere, 0 where there are no points."""
    program = builder.program
    axes = {axis.name: axis for axis in program.axes}
    totals: list[str] = []
    calls: list[str] = []
    for check in program.checks:
        text = f"hl.cast(hl.Int(32), {builder.reference(check.condition)})"
        loops = builder.axes.loops(program.values[check.condition].axes)
        if loops:
            name = builder.unique_name("check")
            builder.func(name, Role.INLINE, loops, text, [check.condition])
            over = Reduction("any", tuple(axes[loop.name] for loop in loops))
            total, func = reduce_alone(builder, "failed", "any", name, loops, over, Value("", "int32"))
            totals.append(total)
            calls.append(func)
        else:
            totals.append(text)
            calls += define(program, [check.condition], builder.calls).calls
    result = totals[0]
    for number, total in enumerate(totals[1:], start=1):
        result = f"hl.select(k == {number}, {total}, {result})"
    builder.lines += [
        'k = hl.Var("k")',
        'status = hl.Func("status")',
        f"status[k] = {result}",
        f"status.bound(k, 0, {len(totals)})",
        f"status.output_buffer().dim(0).set_bounds(0, {len(totals)})",
    ]
    builder.stages.append(Stage("status", Role.OUTPUT, (Loop("k", len(totals), "k"),), calls=tuple(calls)))
    return Status(tuple((check.error, check.message) for check in program.checks))
