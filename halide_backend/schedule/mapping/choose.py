"""The mapping of a program: the rules of its device choose."""

from __future__ import annotations

from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import Cpu, Device
from halide_backend.schedule.knobs import Choices
from halide_backend.schedule.mapping.mapping import Mapping


def choose_mapping(program: LoopProgram, device: Device, choices: Choices) -> Mapping:
    """The mapping of `program`, which has been prepared for `device`.

    Raises:
        Unsupported: no rule fits it.
        IllegalPlan: a requested knob has no such value, or the program cannot have it.
    """
    # The rules of the device that is used: those of the other one are 30 modules.
    if isinstance(device, Cpu):
        from halide_backend.schedule.mapping.cpu import cpu_mapping

        return cpu_mapping(program, device, choices)
    from halide_backend.schedule.cuda.choose import cuda_mapping

    return cuda_mapping(program, device, choices)
