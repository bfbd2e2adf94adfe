"""The last block of a row that is no multiple of blocks has no vectors beyond the end."""

from __future__ import annotations

import pytest
import torch

from halide_backend.inspection.compiled import compile_for
from halide_backend.schedule.cpu.choose import cpu_steps
from halide_backend.schedule.device import Cpu
from halide_backend.schedule.knobs import Choices
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.stage import Loop, Role, Stage, StageGraph
from halide_backend.schedule.steps import Split


def row(extent: int, *, fixed: bool = True, shared: bool = False) -> StageGraph:
    """Two operations for each of so many elements, one of which may be stored first."""
    loop = Loop("x0", extent, "x0", fixed)
    value = [Stage("value", Role.SHARED, (loop,), work=8, contiguous={"x0": 4 * extent})] * shared
    calls = ("value",) * shared
    out = Stage("out", Role.OUTPUT, (loop,), calls, work=2, contiguous={"x0": 8 * extent}, traffic=8 * extent)
    return StageGraph((*value, out), ("x0",))


@pytest.mark.parametrize(
    ("graph", "factors"),
    [
        (row(31_049), {"x0_o": 16, "x0_b": 500}),
        (row(31_049, fixed=False), {"x0_o": 16, "x0_b": 500}),
        (row(32_000), {"x0_b": 8000, "x0_i_o": 16}),  # Four blocks: there is no end within one.
        (row(1000), {"x0_b": 1008, "x0_i_o": 16}),
        (row(31_049, shared=True), {"x0_b": 1600, "x0_i_o": 16}),  # What is stored has a known size.
    ],
)
def test_vectors_are_cut_first_where_a_block_would_have_some_beyond_the_end(
    graph: StageGraph, factors: dict[str, int]
) -> None:
    steps = cpu_steps(graph, Mapping(), Cpu(64), Choices())
    splits = {step.outer: step.factor for step in steps if isinstance(step, Split) and step.func == "out"}
    assert splits == factors


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("elements", [31_049, 20_001])
def test_values_are_eagers(elements: int, dynamic: bool) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.relu(x) * 2 + y, x - y

    compiled = compile_for("halide_backend", function, dynamic=dynamic)
    for length in (elements, elements + 1, 8_000, 8_001, 17)[: None if dynamic else 1]:
        operands = torch.randn(length), torch.randn(length)
        torch.testing.assert_close(compiled(*operands), function(*operands), rtol=0, atol=0)
    assert not compiled.delegated and set(compiled.kernels()) == {"halide_backend"}
    assert all("'x0_i_v'" in code and "'x0_b', 'x0_i_o'" in code for code in compiled.codes)


ROWS = {
    "bias": lambda x, y, i: torch.relu(x + y[0]),
    "two results": lambda x, y, i: (x * y, x - y),
    "shared": lambda x, y, i: (torch.sigmoid(x) * y, torch.sigmoid(x) + 1),
    "gathered": lambda x, y, i: x[i] * 2,
    "side by side": lambda x, y, i: torch.cat((x, y + 1), -1),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("columns", [17, 37, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_of_a_few_vectors_with_a_tail_are_unrolled(name: str, columns: int, dtype: torch.dtype) -> None:
    function = ROWS[name]
    compiled = compile_for("halide_backend", function)
    x, y = torch.randn(2, 300, columns, dtype=dtype)
    places = torch.randint(0, 300, (77,))
    wanted = function(x.double(), y.double(), places)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(compiled(x, y, places), wanted, rtol=tolerance, atol=tolerance, check_dtype=False)
    assert not compiled.delegated and set(compiled.kernels()) == {"halide_backend"}
    if name in ("bias", "gathered"):
        assert all("'x1_i_u'" in code for code in compiled.codes)
