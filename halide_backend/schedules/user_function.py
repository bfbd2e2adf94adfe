"""The function of a user's that plans kernels: "module:function", called as `function(program, device)`."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import uuid
from collections.abc import Callable
from typing import TypeAlias

from halide_backend.errors import ScheduleError
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import Device
from halide_backend.schedule.plan import Plan

#: What is called for each program; None leaves it to files and rules.
PlanFunction: TypeAlias = Callable[[LoopProgram, Device], "Plan | None"]

_OPTION = "halide_backend.config.schedule_function"

#: In the place of a digest in this process.
_UNKNOWN = f"unknown {uuid.uuid4().hex}"


def plan_by_function(name: str, program: LoopProgram, device: Device) -> Plan | None:
    """What the function called `name` plans for `program` on `device`.

    Raises:
        ScheduleError: there is no such function, it raised an error, or returned neither a `Plan` nor None.
    """
    function = _function(name)
    try:
        plan = function(program, device)
    except Exception as error:
        raise ScheduleError(
            f"it raised {type(error).__name__}: {error}", where=f"schedule function {name}", cure="correct the function"
        ) from error
    if plan is not None and not isinstance(plan, Plan):
        raise ScheduleError(
            f"it returned a {type(plan).__name__}",
            where=f"schedule function {name}",
            cure="return a halide_backend.schedule.plan.Plan, or None to leave the kernel to others",
        )
    return plan


def source_of(name: str) -> str:
    """A digest of the source of the function called `name`: of its module, or in a main program its own.

    Where there is none to be found, another one in every process, so that what it planned is never taken from a cache.
    """
    try:
        function = _function(name)
        module = inspect.getmodule(function)
        source = inspect.getsource(module if module is not None and module.__name__ != "__main__" else function)
    except (ScheduleError, OSError, TypeError):
        return _UNKNOWN
    return hashlib.sha256(source.encode()).hexdigest()


def _function(name: str) -> PlanFunction:
    module, _, attribute = name.partition(":")
    try:
        function: PlanFunction = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ScheduleError(
            f"there is no function {name!r} ({error})",
            where=_OPTION,
            cure='name it as "module:function"; the module has to be importable',
        ) from error
    if not callable(function):
        raise ScheduleError(f"{name!r} is a {type(function).__name__}", where=_OPTION, cure="name a function")
    return function
