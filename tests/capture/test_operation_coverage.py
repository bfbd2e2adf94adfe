"""The page of operations against the handler of the installed torch: all are on it, the native ones are recorded."""

from __future__ import annotations

import inspect

import pytest
import torch
import torch._inductor.lowering  # states the dtype rules that the recorder asks for
from torch._inductor.ops_handler import OpsHandler, list_ops

from halide_backend.capture.program_builder import ProgramBuilder
from halide_backend.capture.recorded import Recorded
from halide_backend.capture.recorder import Recorder
from halide_backend.inspection.operations_page import NEVER_HANDED, STRUCTURE, elementwise, status
from halide_backend.kernel_library import operations
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.index import AxisSymbol
from halide_backend.program.loop_program import Axis, Nest
from halide_backend.program.operation_names import RENAMED

HANDLER = set(list_ops(OpsHandler))
X = AxisSymbol("x0")


def record(name: str, dtype: torch.dtype) -> Recorded:
    """The operation over values that depend on a loop, through the recorder itself."""
    axis = Axis("x0", 8, 8)
    recorder = Recorder(ProgramBuilder((axis,)), Nest((axis,)))
    operands: list[object] = []
    for position, parameter in enumerate(list(inspect.signature(getattr(OpsHandler, name)).parameters)[1:]):
        if parameter == "dtype":
            operands.append(torch.int64)
        else:
            kind = torch.bool if parameter == "condition" else torch.int32 if parameter == "n" else dtype
            operands.append(recorder.value("index", kind, attribute=X + position))
    result = getattr(recorder, name)(*operands)
    assert isinstance(result, Recorded)
    return result


def test_every_operation_of_the_handler_is_on_the_page() -> None:
    assert set(elementwise()) | set(STRUCTURE) | set(NEVER_HANDED) >= HANDLER


def test_the_page_names_no_operation_twice() -> None:
    assert not set(NEVER_HANDED) & (set(elementwise()) | set(STRUCTURE))
    assert set(STRUCTURE) <= HANDLER | {"value_expr", "rand_eager"}
    assert {name for name in STRUCTURE if not hasattr(Recorder, name)} == set()


@pytest.mark.parametrize("name", sorted(HANDLER & set(elementwise())))
def test_native_is_recorded(name: str) -> None:
    for dtype in ELEMENT:
        said = status(name, dtype)
        if said == "native":
            record(name, getattr(torch, dtype))
            operation = RENAMED.get(name, name)
            assert operation.endswith("_to_int") or hasattr(operations, operation)
