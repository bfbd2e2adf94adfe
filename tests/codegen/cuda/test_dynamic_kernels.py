"""Each class of kernel takes its sizes as arguments: one CUDA kernel, nothing in local memory, sizes in no constant."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
import torch.nn.functional as F
from cuda_programs import checked, cuda_kernel_text
from torch import Tensor

from halide_backend.program.flattening import flattened

Compile = Callable[..., Any]

FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "pointwise": lambda x, y: torch.where(x > y, x.exp(), y) * x.shape[0] / (x.shape[1] + 0.5),
    "several outputs": lambda x, y: (x * 2 + y, x > y, (x - y).bfloat16()),
    "broadcast": lambda x, y: x[:, :1] * y + x[:1],
    "rows": lambda x, y: torch.softmax(x, -1) + y.sum(-1, keepdim=True),
    "columns": lambda x, y: (x.var(0), y.amax(0), (x * y).mean(0)),
    "layer norm": lambda x, y: F.layer_norm(x, x.shape[1:]) * y,
    "everything": lambda x, y: (x * y).sum() / x.numel(),
    "argmax": lambda x, y: (x.argmax(1), y.argmin(0), (x + y).argmax()),
    "transpose": lambda x, y: (x.t().contiguous(), (x + y).t().contiguous() * 3),
    "reshape": lambda x, y: ((x > y).reshape(x.shape[1], x.shape[0]), x.t().reshape(x.shape)),
    "concatenation": lambda x, y: torch.cat([x, y * 2, x[:, 1:]], 1),
    "padding": lambda x, y: F.pad(x, (1, 2, 0, 1)) * 2,
    "gather": lambda x, y: x[torch.arange(x.shape[0] - 1, -1, -1)] + y.roll(1, 1),
    "scatter": lambda x, y: x.index_add(0, torch.zeros(x.shape[0], dtype=torch.int64), y),
    "positions": lambda x, y: x + torch.arange(x.shape[1]) * y.shape[0],
    "quotients of sizes": lambda x, y: x * (x.shape[1] // 2) + y * (x.shape[0] % 5),
    "random numbers": lambda x, y: F.dropout(x, 0.3) + y,
}


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(*shape, dtype=dtype)


def batch(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor of which only the first size is dynamic."""
    x = rand(*shape, dtype=dtype)
    torch._dynamo.mark_dynamic(x, 0)
    for dimension in range(1, len(shape)):
        torch._dynamo.mark_static(x, dimension)
    return x


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_class_of_kernel_takes_sizes(dynamic: Compile, to_ptx: Compile, name: str) -> None:
    found = dynamic(FUNCTIONS[name], rand(300, 1003), rand(300, 1003))
    assert found
    for program in found:
        # Neither 300 nor 1003 is known to the kernel.
        assert not re.search(r"\b(300|1003|300900)\b", checked(to_ptx(program)).text)


@pytest.mark.parametrize(("dtype", "elements"), [(torch.float32, 4), (torch.bfloat16, 8)], ids=str)
def test_contiguous_memory_of_any_length_is_moved_in_vectors(
    kernel: Compile, dtype: torch.dtype, elements: int
) -> None:
    code = kernel(lambda x, y: torch.relu(x + y), rand(64, 65, dtype=dtype), rand(64, 65, dtype=dtype))
    assert (code.loads, code.wide_loads) == (2, 2)
    assert code.wide_stores == 1
    # The last vector may be short, and how much of it there is depends on sizes.
    assert code.count(r"@some st\.global") == elements - 1


def test_a_dynamic_number_of_rows_leaves_rows_in_registers(kernel: Compile) -> None:
    code = kernel(lambda x: torch.softmax(x, -1), batch(8192, 1024))
    assert (code.loads, code.wide_loads) == (8, 8)
    assert (code.stores, code.wide_stores) == (8, 8)
    assert code.count(r"bar\.sync") == 0
    long = kernel(lambda x: torch.softmax(x, -1), batch(16, 8192))
    assert (long.wide_loads, long.count(r"bar\.sync")) == (4, 2)


def test_outputs_of_a_dynamic_batch_are_stored_in_vectors(kernel: Compile) -> None:
    code = kernel(lambda x, w: (F.relu(x) * w, x - w), batch(16, 128), rand(128))
    assert code.wide_loads == code.loads == 2
    assert code.wide_stores == code.stores == 2


def test_a_dynamic_row_has_loads_under_way_without_guards(kernel: Compile) -> None:
    code = kernel(lambda x: x.sum(-1), rand(300, 1003))
    assert max(block.count("ld.global") for block in re.split(r"\bbra\b|\$L", code.code)) == 8
    assert code.count(r"bar\.sync") == 1


def test_columns_of_dynamic_rows_have_loads_under_way(kernel: Compile) -> None:
    # Of fewer columns several threads have each.
    code = kernel(lambda x: x.sum(0), rand(300, 80003))
    assert code.count(r"shfl") == 0
    assert code.loads == 2 * 16


def test_the_number_of_elements_divides_on_the_host(kernel: Compile) -> None:
    code = kernel(lambda x: x.mean(0), rand(300, 1003))
    # A product in float64 for one result, its reciprocal comes as an argument.
    assert code.count(r"\bdiv\.\S*f(32|64)|\brcp\.\S*f64") == 0


@pytest.mark.parametrize("make", ["kernel", "compiled_ptx"])
@pytest.mark.parametrize("columns", [3, 8, 40, 1003])
def test_steps_that_real_numbers_would_make_idle_are_there(
    make: str, columns: int, request: pytest.FixtureRequest
) -> None:
    """The static kernel and the dynamic one."""
    assert request.getfixturevalue(make)(lambda x: (x != x).any(-1), rand(300, columns)).loads > 0


def test_least_positions_are_not_solved_for(dynamic: Compile) -> None:
    """Halide ends a loop at the least position so far: 2**31 - 1 and the threads of a block are no int32."""
    (least,) = dynamic(
        lambda x: torch.where(x > 0, torch.arange(x.shape[1], dtype=torch.int32), 9).amin(1), rand(9, 70)
    )
    (first,) = dynamic(lambda x: x.argmax(1), rand(9, 70))
    steps = re.findall(r"reductions.combine\(.*", cuda_kernel_text(least) + cuda_kernel_text(first))
    assert len(steps) == 3
    assert all("ops.opaque(" in step for step in steps)


def test_a_row_of_several_axes_is_one_axis_beside_other_outputs(dynamic: Compile) -> None:
    def scores(q: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        s = q + bias[:, None]
        return torch.softmax(s, -1), s.amax(-1)

    programs = dynamic(scores, rand(4, 3, 20, 21), rand(4, 20, 21))
    together = [p for p in programs if len(p.stores) > 1 and len(p.outer) > 1]
    assert together
    for program in together:
        assert len(flattened(program).outer) == 1
        # The row's second axis is a remainder in the algorithm, and no loop of the schedule.
        assert "Fuse(" not in cuda_kernel_text(program)


def test_points_that_int32_cannot_count_are_an_argument(dynamic: Compile) -> None:
    """The launcher refuses a number that does not fit; blocks round up, so some more have to."""
    (program,) = dynamic(lambda x, y: (x[:, None] - y).abs().sum(-1), rand(30, 70), rand(40, 70))
    points = sympy.prod([sympy.sympify(axis.extent) for axis in program.axes])
    assert any(sympy.expand(size.value - points) == 65536 for size in program.sizes)
