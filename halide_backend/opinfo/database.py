"""torch's operator database: its operators, their data types, and sample inputs."""

from __future__ import annotations

import fnmatch
import importlib
import random
import zlib
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy
import torch

from halide_backend.errors import HalideBackendError
from halide_backend.opinfo.case import Case, Request


def operators() -> dict[str, Any]:
    """Every `OpInfo` of torch's `op_db` by its name, ".variant" included.

    Raises:
        HalideBackendError: the database cannot be imported; it needs the package expecttest.
    """
    try:
        module: Any = importlib.import_module("torch.testing._internal.common_methods_invocations")
    except ModuleNotFoundError as error:
        raise HalideBackendError(
            f"torch's operator database cannot be imported: {error}",
            where="opinfo",
            cure=f"pip install {error.name}",
        ) from None
    # Dynamo would have to break the graph at its seeding, and this comparison seeds for itself.
    module.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    return {_name(info): info for info in module.op_db}


def cases(request: Request) -> list[Case]:
    """Operators and data types of `request`: one type after the other, in the database's order.

    Raises:
        HalideBackendError: a name or pattern that fits no operator.
    """
    infos = operators()
    chosen = _chosen(list(infos), request.ops)
    return [
        Case(
            op=name,
            dtype=dtype,
            device=request.device,
            gradients=request.gradients,
            samples=None if request.all_samples else (0,),
        )
        for dtype in request.dtypes
        for name in chosen
        if getattr(torch, dtype) in infos[name].supported_dtypes(request.device)
    ]


def ranges(patterns: Sequence[str], size: int) -> list[tuple[int, int]]:
    """First and last + 1 number, in the database, of `size` operators, or of each chosen one."""
    names = list(operators())
    if not patterns:
        return [(first, min(first + size, len(names))) for first in range(0, len(names), size)]
    return [(names.index(name), names.index(name) + 1) for name in _chosen(names, patterns)]


def _chosen(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    if not patterns:
        return list(names)
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise HalideBackendError(
                f"no operator of torch's database is called {pattern!r}",
                where="opinfo --ops",
                cure="`halide-backend opinfo --list` shows all names.",
            )
    return [n for n in names if any(fnmatch.fnmatchcase(n, pattern) for pattern in patterns)]


def _name(info: Any) -> str:
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name


def differentiable(info: Any, dtype: torch.dtype, device: str) -> bool:
    """Whether eager has gradients of the operator."""
    return info.supports_autograd and dtype in info.supported_backward_dtypes(device)


def sample_inputs(info: Any, case: Case) -> list[tuple[int, Any]]:
    """The sample inputs of `case` with their numbers: the same values in every run and process."""
    dtype = getattr(torch, case.dtype)
    seed(zlib.crc32(str(case).encode()))
    gradients = case.gradients and differentiable(info, dtype, case.device)
    samples = info.sample_inputs(case.device, dtype, requires_grad=gradients)
    if case.samples is None:
        return list(enumerate(samples))
    # In turn up to the last one: each draws its values after those of the one before.
    wanted = islice(enumerate(samples), max(case.samples) + 1)
    return [(number, sample) for number, sample in wanted if number in case.samples]


def seed(number: int) -> None:
    """Seed every random generator that samples or operators draw from."""
    torch.manual_seed(number)
    random.seed(number)
    numpy.random.seed(number)


def least_tolerance(info: Any, case: Case) -> tuple[float, float]:
    """Relative and absolute tolerance that the database itself grants this operator."""
    from torch.testing._internal.common_device_type import toleranceOverride

    dtype = getattr(torch, case.dtype)
    for decorator in info.get_decorators("TestInductorOpInfo", "test_comprehensive", case.device, dtype, {}):
        if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
            return decorator.d[dtype].rtol, decorator.d[dtype].atol
    return 0.0, 0.0
