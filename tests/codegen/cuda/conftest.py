"""Kernels for a GPU as fixtures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cuda_programs import Ptx, checked, programs_of, ptx_of
from torch import Tensor

from halide_backend.capture import recording
from halide_backend.program.loop_program import LoopProgram


def _need_intrinsics() -> None:
    # It needs Halide's library loaded, which the import of halide does.
    pytest.importorskip("halide")
    pytest.importorskip("halide_backend.kernel_library.cuda._intrinsics")


@pytest.fixture
def programs() -> Callable[..., list[LoopProgram]]:
    """programs(function, *arguments, dynamic=False): the captured programs."""
    return lambda function, *arguments, dynamic=False: programs_of(function, arguments, dynamic)


@pytest.fixture
def needs_intrinsics() -> None:
    """What compiles kernels for CUDA is there."""
    _need_intrinsics()


@pytest.fixture
def to_ptx() -> Callable[[LoopProgram], Ptx]:
    """to_ptx(program): its PTX, whatever it contains."""
    _need_intrinsics()
    return ptx_of


@pytest.fixture
def compiled_ptx() -> Callable[..., Ptx]:
    """compiled_ptx(function, *arguments): the PTX of the one kernel that the function makes."""
    _need_intrinsics()

    def compiled(function: Callable[..., Any], *arguments: Any) -> Ptx:
        (program,) = programs_of(function, arguments)
        return checked(ptx_of(program))

    return compiled


@pytest.fixture
def dynamic(monkeypatch: pytest.MonkeyPatch, programs: Callable[..., Any]) -> Callable[..., Any]:
    """dynamic(function, *operands): the programs for all sizes of the operands, as a GPU gets them."""
    record = recording._record
    monkeypatch.setattr(recording, "_record", lambda group, *, on_cpu: record(group, on_cpu=False))

    def captured(function: Callable[..., Any], *operands: Tensor, sizes: bool = True) -> list[LoopProgram]:
        return [program for program in programs(function, *operands, dynamic=True) if program.sizes or not sizes]

    return captured


@pytest.fixture
def kernel(dynamic: Callable[..., Any], to_ptx: Callable[..., Any]) -> Callable[..., Any]:
    """kernel(function, *operands): the PTX of its one kernel."""

    def compiled(function: Callable[..., Any], *operands: Tensor) -> Any:
        (program,) = dynamic(function, *operands)
        return checked(to_ptx(program))

    return compiled
