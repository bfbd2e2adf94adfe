"""LoopProgram to kernel text: the readable, self-contained Python module that a kernel is built from."""

from __future__ import annotations

import textwrap

from halide_backend.algorithm.loop_program import LoopProgram
from halide_backend.algorithm.source import Algorithm, write_algorithm
from halide_backend.schedule.cpu import cpu_schedule, total_work
from halide_backend.schedule.schedule import Schedule

#: Operations of a kernel that is long enough to let other Python threads run; releasing the GIL costs about 40 ns.
_RELEASE_GIL_WORK = 40_000

_TEMPLATE = """\
import halide as hl

from halide_backend.algorithm import memory, operations as ops, reductions
from halide_backend.algorithm.arguments import Input, Output, Size, Status
from halide_backend.schedule.apply import apply
from halide_backend.schedule.steps import *

ARGUMENTS = (
{arguments}
)
RELEASE_GIL = {release_gil}


def algorithm():
{algorithm}
    return {inputs}, {outputs}, {funcs}


SCHEDULE = (
{steps}
)


def pipeline():
    inputs, outputs, funcs = algorithm()
    apply(SCHEDULE, funcs)
    return inputs, outputs
"""


def kernel_text(program: LoopProgram, vector_bytes: int) -> str:
    """The text of the kernel that computes `program` on a CPU with registers of `vector_bytes` bytes.

    Raises:
        Unsupported: something in the program has no Halide form, or no legal schedule.
    """
    algorithm = write_algorithm(program)
    return render(algorithm, cpu_schedule(algorithm.stages, vector_bytes))


def render(algorithm: Algorithm, schedule: Schedule) -> str:
    """Put both halves into one module."""
    outputs = [getattr(output, "name", "status") for output in algorithm.outputs]
    return _TEMPLATE.format(
        arguments=_lines((*algorithm.inputs, *algorithm.outputs)),
        release_gil=total_work(algorithm.stages) >= _RELEASE_GIL_WORK,
        algorithm=textwrap.indent("\n".join(algorithm.lines), "    "),
        inputs=f"[{', '.join(argument.name for argument in algorithm.inputs)}]",
        outputs=f"[{', '.join(outputs)}]",
        funcs=f"{{{', '.join(f'{name!r}: {name}' for name in algorithm.funcs)}}}",
        steps=_lines(schedule.steps),
    )


def _lines(items: tuple[object, ...]) -> str:
    return "\n".join(f"    {item!r}," for item in items)
