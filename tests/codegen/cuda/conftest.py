"""Kernels for a GPU as fixtures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cuda_programs import Ptx, programs_of, ptx_of

from halide_backend.build.ptx import ptxas
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
        result = ptx_of(program)
        assert result.kernels == 1
        assert ".local" not in result.code, "something lies in memory instead of in registers"
        assert result.image[:4] == b"\x7fELF" if ptxas.find() else result.image.endswith(b"\0")
        return result

    return compiled
