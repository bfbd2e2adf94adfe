"""What capture makes of Inductor's scans."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import sympy
import torch
from torch._inductor.scheduler import SchedulerNode

from halide_backend.capture.recording import node_loops
from halide_backend.errors import Unsupported
from halide_backend.program.loop_program import LoopProgram, Scan
from halide_backend.program.uses import sinks_of

Programs = Callable[..., list[LoopProgram]]


def scans(program: LoopProgram) -> list[Scan]:
    return [value.attribute for value in program.values if isinstance(value.attribute, Scan)]


def test_a_cumulative_sum_adds_an_earlier_and_a_later_element(scan_programs: Programs) -> None:
    (program,) = scan_programs(lambda x: x.cumsum(-1), torch.rand(6, 40))
    (scan,) = scans(program)
    assert [axis.extent for axis in scan.axes] == [40]
    values = scan.combination.program.values
    assert [value.operation for value in values] == ["earlier", "later", "add"]
    assert (values[2].operands, scan.combination.results) == ((0, 1), (2,))
    # One value for each point, stored at each.
    (store,) = program.stores
    assert not store.nest.reduction
    assert program.values[store.value].axes == {axis.name for axis in store.nest.iteration}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_low_precisions_are_accumulated_in_float32(scan_programs: Programs, dtype: torch.dtype) -> None:
    (program,) = scan_programs(lambda x: x.cumsum(-1), torch.rand(6, 40).to(dtype))
    assert [value.dtype for value in program.values if value.operation == "scan"] == ["float32"]


def test_values_and_indices_of_a_maximum_are_components_of_one_scan(scan_programs: Programs) -> None:
    (program,) = scan_programs(lambda x: x.cummax(-1), torch.rand(6, 40))
    first, second = (value for value in program.values if isinstance(value.attribute, Scan))
    assert first.operands == second.operands and len(first.operands) == 2
    assert [first.dtype, second.dtype] == ["float32", "int64"]
    assert [scan.result for scan in scans(program)] == [0, 1]
    assert scans(program)[0].combination == scans(program)[1].combination
    # What both are made of goes to one place, so that no registers are kept for a second use.
    assert [len(sinks) for sinks in sinks_of(program)[: first.operands[0] + 1]] == [1] * (first.operands[0] + 1)


def test_operations_before_and_after_are_in_the_same_program(scan_programs: Programs) -> None:
    (program,) = scan_programs(lambda x: (torch.relu(x).cumsum(-1) + x) * 2, torch.rand(6, 40))
    assert len(scans(program)) == len(program.stores) == 1
    assert str(scans(program)[0]) == "(x1<40) by earlier0, later0, add[0, 1] -> [2] component 0"


def test_different_combinations_are_different_programs(scan_programs: Programs) -> None:
    (added,) = scan_programs(lambda x: x.cumsum(-1), torch.rand(6, 40))
    (multiplied,) = scan_programs(lambda x: x.cumprod(-1), torch.rand(6, 40))
    assert added != multiplied


def test_split_scans_are_left_alone_unless_they_run_across_memory(scan_programs: Programs) -> None:
    """Inductor splits few lines, or columns, of many elements."""
    row, column = sympy.symbols("row column")
    node = SchedulerNode.__new__(SchedulerNode)
    node._body = SimpleNamespace(get_write_exprs=lambda: [40 * row + column], reduce_vars=[column])  # type: ignore[assignment]
    node.is_split_scan = lambda: True  # type: ignore[method-assign]
    node.get_device = lambda: torch.device("cuda")  # type: ignore[method-assign]
    with pytest.raises(Unsupported, match="few long rows"):
        node_loops(node)
    (program,) = scan_programs(lambda x: x.cumsum(0), torch.rand(300, 64))
    assert [axis.extent for scan in scans(program) for axis in scan.axes] == [300]
