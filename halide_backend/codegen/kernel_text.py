"""Kernel text: the readable, self-contained Python module that a kernel is built from."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from halide_backend.codegen.algorithm import CPU_LIBRARY, Algorithm
from halide_backend.schedule.stage import Role
from halide_backend.schedule.steps import Step
from halide_backend.schedule.tiling import Tiling

#: Operations of a kernel that is long enough to let other Python threads run; releasing the GIL costs about 40 ns.
_RELEASE_GIL_WORK = 40_000

_TEMPLATE = """\
import halide as hl

from {library} import {functions}
from halide_backend.kernel_library.arguments import Input, Integer, Output, Size, Status
from halide_backend.schedule.apply import apply
from halide_backend.schedule.stage import Loop, Role, Stage, StageGraph
from halide_backend.schedule.steps import *
from halide_backend.schedule.tiling import TilingKind, Tiling

ARGUMENTS = (
{arguments}
)
RELEASE_GIL = {release_gil}
{gpu}

def algorithm():
{algorithm}
    return {inputs}, {outputs}, {funcs}


STAGES = StageGraph((
{stages}
), outer={outer!r}{ends})
TILING = {tiling!r}

SCHEDULE = (
{steps}
)


def pipeline():
    inputs, outputs, funcs = algorithm()
    apply(SCHEDULE, funcs, STAGES, TILING, inputs)
    return inputs, outputs
"""

_VARIANT = """

#: The same for calls with these sizes.
SIZES = {sizes!r}
VARIANT = r\"\"\"
{text}\"\"\"
"""

_GPU = """\
ALIGNED = {aligned!r}
LOADS = {loads!r}
REGISTERS = {registers!r}
"""


def render(algorithm: Algorithm, steps: Sequence[Step], tiling: Tiling | None = None) -> str:
    """Put both halves into one module, which imports what it calls from the package `algorithm.library`; with what says
    which steps are legal, so that a worker refuses others in an edited text."""
    on_cpu = algorithm.library == CPU_LIBRARY
    order = [argument.name for argument in algorithm.outputs]
    outputs = sorted((stage.name for stage in algorithm.stages.outputs), key=order.index)
    scans = any(stage.role is Role.SCAN for stage in algorithm.stages.stages)
    ends = {"clamped": algorithm.stages.clamped, "narrow": algorithm.stages.narrow}
    return _TEMPLATE.format(
        arguments=_lines((*algorithm.inputs, *algorithm.outputs)),
        library=algorithm.library,
        functions="memory, operations as ops, reductions" + (", scans" if not on_cpu or scans else ""),
        release_gil=on_cpu and algorithm.stages.work >= _RELEASE_GIL_WORK,
        gpu="" if on_cpu else _GPU.format(**vars(algorithm)),
        algorithm=textwrap.indent("\n".join(algorithm.lines), "    "),
        inputs=f"[{', '.join(argument.name for argument in algorithm.inputs)}]",
        outputs=f"[{', '.join(outputs)}]",
        funcs=f"{{{', '.join(f'{name!r}: {name}' for name in algorithm.funcs)}}}",
        stages=_lines(algorithm.stages.stages),
        outer=algorithm.stages.outer,
        ends="".join(f", {name}={value!r}" for name, value in ends.items() if value),
        tiling=tiling,
        steps=_lines(steps),
    )


def with_variant(text: str, sizes: Mapping[str, int], variant: str) -> str:
    """`text` with another one for calls with these `sizes`, by their names; both have the same arguments."""
    return text + _VARIANT.format(sizes=dict(sizes), text=variant)


def _lines(items: Sequence[object]) -> str:
    return "\n".join(f"    {item!r}," for item in items)
