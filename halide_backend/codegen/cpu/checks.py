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
    """One int32 per check: whether its condition is true anywhere, 0 where there are no points. Of checks over the same
    loops, which are one walk over what they look at, only the first that failed says so: no other is reported."""
    program, status = builder.program, "0"
    axes = {axis.name: axis for axis in program.axes}
    together: dict[frozenset[str], list[int]] = {}
    for number, check in enumerate(program.checks):
        together.setdefault(program.values[check.condition].axes, []).append(number)
    calls: list[str] = []
    for over, numbers in together.items():
        conditions = [program.checks[number].condition for number in numbers]
        # The largest code is that of the first check.
        codes = range(len(numbers), 0, -1)
        cases = ", ".join(f"{builder.reference(c)}, hl.u8({code})" for c, code in zip(conditions, codes))
        failed = f"hl.select({cases}, hl.u8(0))"
        if over:
            name, loops = builder.unique_name("check"), builder.axes.loops(over)
            builder.func(name, Role.INLINE, loops, failed, conditions)
            reduction = Reduction("any", tuple(axes[loop.name] for loop in loops))
            failed, func = reduce_alone(builder, "failed", "any", name, loops, reduction, Value("", "uint8"))
            calls.append(func)
        else:
            calls += define(program, conditions, builder.calls).calls
        for number, code in zip(numbers, codes):
            status = f"hl.select((k == {number}) & ({failed} == {code}), 1, {status})"
    count = len(program.checks)
    builder.lines += [
        'k = hl.Var("k")',
        'status = hl.Func("status")',
        f"status[k] = {status}",
        f"status.bound(k, 0, {count})",
        f"status.output_buffer().dim(0).set_bounds(0, {count})",
    ]
    builder.stages.append(Stage("status", Role.OUTPUT, (Loop("k", count, "k"),), calls=tuple(dict.fromkeys(calls))))
    return Status(tuple((check.error, check.message) for check in program.checks))
