"""LoopProgram to kernel text: the readable, self-contained Python module that a kernel is built from."""

from __future__ import annotations

import textwrap

from halide_backend.codegen.cuda import source as cuda_source
from halide_backend.codegen.source import Algorithm, write_algorithm
from halide_backend.errors import Unsupported
from halide_backend.program.dtypes import FLOAT8
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.cpu import cpu_schedule, total_work
from halide_backend.schedule.cuda import cuda_schedule
from halide_backend.schedule.schedule import Schedule

#: Operations of a kernel that is long enough to let other Python threads run; releasing the GIL costs about 40 ns.
_RELEASE_GIL_WORK = 40_000

#: Where a text takes its functions from.
_CPU, _CUDA = "halide_backend.kernel_library", "halide_backend.kernel_library.cuda"

_TEMPLATE = """\
import halide as hl

from {vocabulary} import {functions}
from halide_backend.kernel_library.arguments import Input, Integer, Output, Size, Status
from halide_backend.schedule.apply import apply
from halide_backend.schedule.steps import *

ARGUMENTS = (
{arguments}
)
RELEASE_GIL = {release_gil}
{gpu}

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

_GPU = """\
ALIGNED = {aligned!r}
LOADS = {loads!r}
REGISTERS = {registers!r}
"""


def kernel_text(program: LoopProgram, vector_bytes: int) -> str:
    """The text of the kernel that computes `program` on a CPU with registers of `vector_bytes` bytes.

    Raises:
        Unsupported: something in the program has no Halide form, or no legal schedule.
    """
    algorithm = write_algorithm(program)
    return render(algorithm, cpu_schedule(algorithm.stages, vector_bytes))


def cuda_kernel_text(program: LoopProgram) -> str:
    """The text of the kernel that computes `program` on a GPU.

    Raises:
        Unsupported: something in the program has no form on CUDA.
    """
    dtypes = {buffer.dtype for buffer in (*program.inputs, *program.outputs)} | {v.dtype for v in program.values}
    if dtypes & FLOAT8:
        raise Unsupported(f"{min(dtypes & FLOAT8)} on a GPU")
    algorithm, tiling = cuda_source.write_algorithm(program)
    return render(algorithm, cuda_schedule(algorithm.stages, tiling), vocabulary=_CUDA)


def render(algorithm: Algorithm, schedule: Schedule, vocabulary: str = _CPU) -> str:
    """Put both halves into one module that takes its functions from the package `vocabulary`."""
    on_cpu = vocabulary == _CPU
    outputs = [getattr(output, "name", "status") for output in algorithm.outputs]
    return _TEMPLATE.format(
        arguments=_lines((*algorithm.inputs, *algorithm.outputs)),
        vocabulary=vocabulary,
        functions="memory, operations as ops, reductions" + ("" if on_cpu else ", scans"),
        release_gil=on_cpu and total_work(algorithm.stages) >= _RELEASE_GIL_WORK,
        gpu="" if on_cpu else _GPU.format(**vars(algorithm)),
        algorithm=textwrap.indent("\n".join(algorithm.lines), "    "),
        inputs=f"[{', '.join(argument.name for argument in algorithm.inputs)}]",
        outputs=f"[{', '.join(outputs)}]",
        funcs=f"{{{', '.join(f'{name!r}: {name}' for name in algorithm.funcs)}}}",
        steps=_lines(schedule.steps),
    )


def _lines(items: tuple[object, ...]) -> str:
    return "\n".join(f"    {item!r}," for item in items)
