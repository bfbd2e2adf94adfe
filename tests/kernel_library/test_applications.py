"""A producer that is read at other coordinates than its own stays a value, with a domain of its own."""

from __future__ import annotations

import json

import pytest
import sympy
import torch
from kernel import Builder

from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.errors import Unsupported
from halide_backend.program.applications import without_applications
from halide_backend.program.loop_program import Apply, Buffer, Load, LoopProgram, Reduction
from halide_backend.program.serialization import digest, from_json, to_json
from halide_backend.schedule.device import device_of

N, M = 37, 20


def shifted(builder: Builder, value: int, **places: sympy.Expr | int) -> int:
    at = tuple((axis, sympy.sympify(index)) for axis, index in places.items())
    return builder.value("apply", torch.float32, (value,), Apply(at))


def source(builder: Builder, rows: int, columns: int) -> int:
    """exp of an input of `rows` x `columns`, of which the loops see the first part."""
    x0, x1 = (axis.symbol for axis in builder.axes)
    buffer = Buffer("in_ptr0", "float32", rows * columns, 0)
    builder.inputs.append(buffer)
    load = builder.value("load", torch.float32, (), Load("in_ptr0", columns * x0 + x1))
    return builder.value("exp", torch.float32, (load,))


def blur(builder: Builder) -> None:
    """out[x0, x1] = s[x0 + 1, x1 + 2] - s[x0, x1] of the row sums s[x0, x1] = e[x0, x1] + e[x0, x1 + 1]."""
    x0, x1 = (axis.symbol for axis in builder.axes)
    e = source(builder, N + 1, M + 3)
    s = builder.value("add", torch.float32, (e, shifted(builder, e, x1=x1 + 1)))
    last = shifted(builder, s, x0=x0 + 1, x1=x1 + 2)
    builder.store(builder.value("sub", torch.float32, (last, s)), torch.float32)


def expected(x: torch.Tensor) -> torch.Tensor:
    e = x.double().exp()
    s = e[:, :-1] + e[:, 1:]
    return s[1:, 2:] - s[:N, :M]


@pytest.fixture
def blurred() -> Builder:
    builder = Builder((N, M))
    blur(builder)
    return builder


@pytest.mark.parametrize("inlined", [False, True])
def test_values_are_those_of_the_shifted_producer(blurred: Builder, inlined: bool) -> None:
    if inlined:
        program = without_applications(blurred.program())
        assert not any(isinstance(value.attribute, Apply) for value in program.values)
        blurred.values, blurred.stores = list(program.values), list(program.stores)
    x = torch.randn(N + 1, M + 3)
    (found,) = blurred.run(x)
    torch.testing.assert_close(found.double(), expected(x), rtol=1e-5, atol=1e-5)


def test_a_producer_is_one_func_however_often_it_is_read(blurred: Builder) -> None:
    text = blurred.text()
    assert text.count("ops.exp(") == 1
    assert "exp_0[(x1 + 1), x0]" in text


def test_it_is_printed_written_as_json_and_read_again(blurred: Builder) -> None:
    program = blurred.program()
    assert "v4 = apply v3 at (x0 = (x0 + 1), x1 = (x1 + 2)) : float32" in str(program)
    again = from_json(json.loads(json.dumps(to_json(program))))
    assert again == program
    assert [value.axes for value in again.values] == [value.axes for value in program.values]
    assert digest(again) == digest(program) != digest(without_applications(program))


def test_on_cuda_it_is_computed_again_where_it_is_read(blurred: Builder) -> None:
    pytest.importorskip("halide_backend.kernel_library.cuda._intrinsics")
    text = plan_kernel(blurred.program(), device_of(Target.cuda(9, 0))).text
    assert text.count("ops.exp(") == 4


def test_one_coordinate_takes_an_axis_away() -> None:
    builder = Builder((N, M))
    e = source(builder, N, M)
    first = shifted(builder, e, x1=0)
    assert builder.values[first].axes == {"x0"}
    builder.store(builder.value("sub", torch.float32, (e, first)), torch.float32)
    x = torch.randn(N, M)
    (found,) = builder.run(x)
    torch.testing.assert_close(found.double(), x.double().exp() - x.double().exp()[:, :1], rtol=1e-5, atol=1e-5)


def test_a_reduction_read_along_its_own_axis_is_refused() -> None:
    builder = Builder((N, M))
    x1 = builder.axes[1].symbol
    e = source(builder, N, M)
    total = builder.value("reduction", torch.float32, (e,), Reduction("sum", (builder.axes[1],)))
    moved = shifted(builder, total, x0=x1)
    builder.store(builder.value("add", torch.float32, (moved, e)), torch.float32)
    with pytest.raises(Unsupported, match="along its own axis"):
        without_applications(builder.program())


def test_a_program_without_applications_stays_the_same_object() -> None:
    builder = Builder((N, M))
    builder.store(source(builder, N, M), torch.float32)
    program: LoopProgram = builder.program()
    assert without_applications(program) is program
