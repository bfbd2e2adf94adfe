"""Knobs: each setting of each knob gives the same result, or is refused by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sympy
import torch
from captured_kernels import captured_kernels
from kernel import Builder

from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.errors import IllegalPlan
from halide_backend.inspection.knobs_page import declared
from halide_backend.program.index import FloorDiv, SizeSymbol, ValueSymbol
from halide_backend.program.loop_program import (
    Axis,
    Buffer,
    Indirect,
    Load,
    LoopProgram,
    Nest,
    Reduction,
    Size,
    Store,
    Value,
)
from halide_backend.schedule import cpu
from halide_backend.schedule.device import device_of
from halide_backend.schedule.knobs import Choice, Choices, Knob
from halide_backend.schedule.steps import Parallel, Split, Vectorize

Made = tuple[Builder, list[torch.Tensor], Callable[..., torch.Tensor]]

SIDE = Knob("rule.side", (4, 8, 16), "for this test")


def row_sums(extents: tuple[int, int], axis: int = 1) -> Made:
    builder = Builder(extents)
    x = builder.load(torch.float32)
    total = builder.value("reduction", torch.float32, [x], Reduction("sum", (builder.axes[axis],)))
    builder.store(total, torch.float32)
    return builder, [torch.randn(extents)], lambda x: x.sum(axis)


def column_sums(extents: tuple[int, int]) -> Made:
    return row_sums(extents, axis=0)


def middle_sums(extents: tuple[int, int]) -> Made:
    """Sums of rows of nine elements: an addition waits for the one before it."""
    builder = Builder((5, extents[1], 9))
    x = builder.load(torch.float32)
    total = builder.value("reduction", torch.float32, [x], Reduction("sum", (builder.axes[1],)))
    builder.store(total, torch.float32)
    return builder, [torch.randn(5, extents[1], 9)], lambda x: x.sum(1)


def below_column_maxima(extents: tuple[int, int]) -> Made:
    builder = Builder(extents)
    x = builder.load(torch.float32)
    top = builder.value("reduction", torch.float32, [x], Reduction("max", (builder.axes[0],)))
    builder.store(builder.value("sub", torch.float32, [x, top]), torch.float32)
    return builder, [torch.randn(extents)], lambda x: x - x.amax(0)


def full_maximum(extents: tuple[int, int]) -> Made:
    builder = Builder(extents)
    top = builder.value("reduction", torch.float32, [builder.load(torch.float32)], Reduction("max", builder.axes))
    builder.store(top, torch.float32)
    return builder, [torch.randn(extents)], lambda x: x.amax()


def full_sum(extents: tuple[int, int]) -> Made:
    builder = Builder(extents)
    total = builder.value("reduction", torch.float32, [builder.load(torch.float32)], Reduction("sum", builder.axes))
    builder.store(total, torch.float32)
    return builder, [torch.randn(extents)], lambda x: x.sum()


def pointwise(extents: tuple[int, int]) -> Made:
    builder = Builder(extents)
    x = builder.load(torch.float32)
    builder.store(builder.value("exp", torch.float32, [x]), torch.float32)
    return builder, [torch.randn(extents)], torch.exp


def transpose(extents: tuple[int, int]) -> Made:
    rows, columns = extents
    builder = Builder(extents)
    x0, x1 = (axis.symbol for axis in builder.axes)
    plain = builder.load(torch.float32)
    builder.inputs.append(Buffer("in_ptr1", "float32", rows * columns, 1))
    turned = builder.value("load", torch.float32, [], Load("in_ptr1", sympy.expand(rows * x1 + x0)))
    builder.store(builder.value("add", torch.float32, [plain, turned]), torch.float32)
    return builder, [torch.randn(extents), torch.randn(columns, rows)], lambda x, y: x + y.t()


def turned_copy(extents: tuple[int, int]) -> Made:
    """Of 16-bit elements, whose tiles are larger than those of others."""
    rows, columns = extents
    builder = Builder(extents)
    x0, x1 = (axis.symbol for axis in builder.axes)
    builder.inputs.append(Buffer("in_ptr0", "int16", rows * columns, 0))
    load = builder.value("load", torch.int16, [], Load("in_ptr0", sympy.expand(rows * x1 + x0)))
    builder.store(load, torch.int16)
    return builder, [torch.randint(-9999, 9999, (columns, rows), dtype=torch.int16)], lambda x: x.t()


def sums_of_both_layouts(extents: tuple[int, int], across: int = 1) -> Made:
    """Sums of rows of three operands: one lies as the loops do, `across` lie across them, the others as they do."""
    rows, columns = extents
    builder = Builder(extents)
    x0, x1 = (axis.symbol for axis in builder.axes)
    loads = [builder.load(torch.float32)]
    for number in (1, 2):
        builder.inputs.append(Buffer(f"in_ptr{number}", "float32", rows * columns, number))
        index = rows * x1 + x0 if number <= across else columns * x0 + x1
        loads.append(builder.value("load", torch.float32, [], Load(f"in_ptr{number}", sympy.expand(index))))
    both = builder.value("add", torch.float32, [builder.value("add", torch.float32, loads[:2]), loads[2]])
    total = builder.value("reduction", torch.float32, [both], Reduction("sum", (builder.axes[1],)))
    builder.store(total, torch.float32)
    shapes = [extents, *((columns, rows) if number <= across else extents for number in (1, 2))]

    def function(*found: torch.Tensor) -> torch.Tensor:
        x, y, z = (each.t() if 0 < number <= across else each for number, each in enumerate(found))
        return (x + y + z).sum(1)

    return builder, [torch.randn(shape) for shape in shapes], function


def column_sums_of_both_layouts(extents: tuple[int, int]) -> Made:
    """The columns are the outer loop; two operands of three are contiguous along them."""
    return sums_of_both_layouts(extents[::-1], across=2)


def shared_exponentials(extents: tuple[int, int]) -> Made:
    """Sums of rows, and rows over them: what is summed is stored, or computed twice."""
    builder = Builder(extents)
    exponentials = builder.value("exp", torch.float32, [builder.load(torch.float32)])
    reduction = Reduction("sum", (builder.axes[1],))
    total = builder.value("reduction", torch.float32, [exponentials], reduction)
    builder.store(total, torch.float32)
    builder.store(builder.value("truediv", torch.float32, [exponentials, total]), torch.float32)
    return builder, [torch.randn(extents)], lambda x: x.exp() / x.exp().sum(1, keepdim=True)


def stencil(extents: tuple[int, int]) -> Made:
    """A row and the next one."""
    rows, columns = extents
    builder = Builder(extents)
    x0, x1 = (axis.symbol for axis in builder.axes)
    builder.inputs.append(Buffer("in_ptr0", "float32", (rows + 1) * columns, 0))
    loads = [
        builder.value("load", torch.float32, [], Load("in_ptr0", sympy.expand(columns * (x0 + k) + x1))) for k in (0, 1)
    ]
    builder.store(builder.value("add", torch.float32, loads), torch.float32)
    return builder, [torch.randn(rows + 1, columns)], lambda x: x[1:] + x[:-1]


def interpolation(extents: tuple[int, int]) -> Made:
    """Of two pictures, whose elements become four, in each row and the next one: a * 0.25 + next a * 0.75."""
    rows, columns = extents
    height, width = rows // 2 + 2, columns // 2 + 2
    builder = Builder((2, rows, columns))
    x0, x1, x2 = (axis.symbol for axis in builder.axes)
    builder.inputs.append(Buffer("in_ptr0", "float32", 2 * height * width, 0))

    def place(axis: sympy.Symbol, offset: int, size: int) -> int:
        at = builder.value("index", torch.int64, (), FloorDiv(axis, sympy.Integer(2)) + offset)
        return builder.value("indirect", torch.int32, (at,), Indirect(size, False))

    quarter, most = (builder.constant(number, torch.float32) for number in (0.25, 0.75))
    across = [place(x2, offset, width) for offset in (0, 1)]
    found = []
    for offset in (0, 1):
        row = place(x1, offset, height)
        loads = [
            builder.value(
                "load",
                torch.float32,
                sorted((row, column)),
                Load("in_ptr0", height * width * x0 + width * ValueSymbol.of(row) + ValueSymbol.of(column)),
            )
            for column in across
        ]
        parts = [builder.value("mul", torch.float32, pair) for pair in zip(loads, (quarter, most))]
        found.append(builder.value("add", torch.float32, parts))
    builder.store(builder.value("add", torch.float32, found), torch.float32)

    def wanted(x: torch.Tensor) -> torch.Tensor:
        y = x[..., :-1] * 0.25 + x[..., 1:] * 0.75
        y = y[:, :-1] + y[:, 1:]
        return y.repeat_interleave(2, 1).repeat_interleave(2, 2)[:, :rows, :columns]

    return builder, [torch.randn(2, height, width)], wanted


def scatter(extents: tuple[int, int]) -> Made:
    """All elements in the opposite order, by computed positions."""
    count = extents[0] * extents[1]
    builder = Builder(extents)
    load = builder.load(torch.float32)
    at = builder.value("index", torch.int64, (), count - 1 - builder.index(builder.axes))
    where = builder.value("indirect", torch.int32, (at,), Indirect(count, False))
    builder.outputs.append(Buffer("out_ptr0", "float32", count, 1000))
    builder.stores.append(Store("out_ptr0", ValueSymbol.of(where), load, Nest(builder.axes)))
    builder.results.append(torch.empty(count))
    return builder, [torch.randn(extents)], lambda x: x.flatten().flip(0)


def repetition(extents: tuple[int, int]) -> Made:
    """Three times each element."""
    count = extents[0] * extents[1]
    builder = Builder((count, 3))
    builder.inputs.append(Buffer("in_ptr0", "float32", count, 0))
    load = builder.value("load", torch.float32, (), Load("in_ptr0", builder.axes[0].symbol))
    builder.outputs.append(Buffer("out_ptr0", "float32", 3 * count, 1000))
    builder.stores.append(Store("out_ptr0", builder.index(builder.axes), load, Nest(builder.axes)))
    builder.results.append(torch.empty(3 * count))
    return builder, [torch.randn(count)], lambda x: x.repeat_interleave(3)


def groups(extents: tuple[int, int]) -> Made:
    """Of two pictures, for each group of four adjacent columns: the sum of squared distances from its mean."""
    rows = extents[1]
    builder = Builder((2, 6, rows, 4))
    x0, x1, x2, x3 = builder.axes
    builder.inputs.append(Buffer("in_ptr0", "float32", 2 * rows * 24, 0))
    index = 24 * rows * x0.symbol + 24 * x2.symbol + 4 * x1.symbol + x3.symbol
    load = builder.value("load", torch.float32, (), Load("in_ptr0", index))
    mean = builder.value("mul", torch.float32, (load, builder.constant(1 / (4 * rows), torch.float32)))
    total = builder.value("reduction", torch.float32, (mean,), Reduction("sum", (x2, x3)))
    centred = builder.value("sub", torch.float32, (load, total))
    square = builder.value("mul", torch.float32, (centred, centred))
    squares = builder.value("reduction", torch.float32, (square,), Reduction("sum", (x2, x3)))
    builder.store(squares, torch.float32)
    builder.store(builder.value("neg", torch.float32, (squares,)), torch.float32)

    def wanted(x: torch.Tensor) -> torch.Tensor:
        grouped = x.view(2, rows, 6, 4).transpose(1, 2).flatten(2)
        return -(grouped - grouped.mean(-1, keepdim=True)).square().sum(-1)

    return builder, [torch.randn(2, rows, 24)], wanted


MADE = (
    row_sums,
    column_sums,
    middle_sums,
    below_column_maxima,
    full_maximum,
    full_sum,
    pointwise,
    transpose,
    turned_copy,
    sums_of_both_layouts,
    column_sums_of_both_layouts,
    shared_exponentials,
    stencil,
    interpolation,
    scatter,
    repetition,
    groups,
)
#: The last two have rows of a few vectors, of 16 and of 8 elements, the one before rows that are no vector.
EXTENTS = ((67, 300), (64, 512), (5, 40_001), (1031, 10), (1031, 97), (130, 60))


def choices_of(builder: Builder, target: Target | None = None) -> tuple[Choice, ...]:
    return plan_kernel(builder.program(), device_of(target or Target.host())).plan.choices


@pytest.mark.parametrize("extents", EXTENTS, ids=str)
@pytest.mark.parametrize("made", MADE, ids=lambda made: made.__name__)
def test_every_setting_of_every_knob_is_right(made: Callable[..., Made], extents: tuple[int, int]) -> None:
    builder, arguments, function = made(extents)
    wanted = function(*(argument.double() for argument in arguments))
    choices = choices_of(builder)
    assert choices
    for choice in choices:
        for setting in choice.knob.values:
            found = builder.run(*arguments, knobs={choice.key: setting})[-1]
            what = f"{choice.key} = {setting}"
            torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-3, msg=f"{what} is wrong")


def test_a_setting_changes_the_steps() -> None:
    builder, _, _ = transpose((64, 512))
    program, device = builder.program(), device_of(Target.host())
    factors = {
        side: {
            step.factor
            for step in plan_kernel(program, device, {"transposes.side": side, "transposes.tiles": 1}).plan.steps
            if isinstance(step, Split)
        }
        for side in (4, 8, 16)
    }
    assert factors == {4: {4}, 8: {8}, 16: {16}}
    serial = plan_kernel(program, device, {"parallel.threads": False}).plan.steps
    assert any(isinstance(step, Parallel) for step in plan_kernel(program, device).plan.steps)
    assert not any(isinstance(step, Parallel) for step in serial)


def test_columns_that_are_less_than_half_a_vector() -> None:
    """No loop over vectors is left, in which tiles of the operand that is turned could be computed."""
    builder, operands, function = column_sums_of_both_layouts((97, 17))
    planned = plan_kernel(builder.program(), device_of(Target.host())).plan.mapping.transposition
    assert planned is not None and planned.reduced == "columns"
    wanted = function(*(operand.double() for operand in operands))
    found = builder.run(*operands, knobs={"vectors.bytes": 256})[-1]
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-3)


def test_a_row_of_a_tile_may_be_longer_than_a_line_of_memory() -> None:
    """Of 16 elements of 64 bits: there are no lines of several rows, of which a number was divided by."""
    builder = Builder((64, 512))
    x0, x1 = (axis.symbol for axis in builder.axes)
    builder.inputs.append(Buffer("in_ptr0", "float64", 64 * 512, 0))
    load = builder.value("load", torch.float64, [], Load("in_ptr0", 64 * x1 + x0))
    builder.store(load, torch.float64)
    x = torch.randn(512, 64, dtype=torch.float64)
    assert torch.equal(builder.run(x, knobs={"transposes.side": 16})[-1], x.t())


@pytest.mark.parametrize("across", [False, True])
def test_vectors_across_short_rows(across: bool) -> None:
    builder, _, _ = row_sums((1031, 3))
    steps = plan_kernel(builder.program(), device_of(Target.host()), {"vectors.across_rows": across}).plan.steps
    # The columns of the output are the rows.
    assert any(isinstance(step, Vectorize) and step.func == "out_ptr0" for step in steps) is across


class EveryOther(Builder):
    """Every other element of a row of unknown length, of which there are typically as many as the extent says."""

    def program(self) -> LoopProgram:
        length = SizeSymbol("n0", nonnegative=True)
        axis = Axis("x0", length, self.extents[0])
        load = Value.of("load", "float32", (), Load("in_ptr0", 2 * axis.symbol), [])
        return LoopProgram(
            inputs=(Buffer("in_ptr0", "float32", 2 * length, 0),),
            outputs=(Buffer("out_ptr0", "float32", length, 1000),),
            values=(load, Value.of("neg", "float32", (0,), None, [load])),
            stores=(Store("out_ptr0", axis.symbol, 1, Nest((axis,))),),
            checks=(),
            outer=(axis,),
            sizes=(Size("n0", length, hint=self.extents[0]),),
        )


@pytest.mark.parametrize("setting", [False, True])
@pytest.mark.parametrize("length", [0, 1, 5, 15, 16, 17, 33, 300])
def test_settings_of_rows_of_unknown_length(length: int, setting: bool) -> None:
    builder, x = EveryOther((300,)), torch.randn(2 * length)
    builder.results.append(torch.empty(length))
    knobs = {"vectors.shifted": setting}
    (found,) = builder.run(x, length, knobs=knobs)
    torch.testing.assert_close(found, -x[::2], rtol=0, atol=0)
    assert ("ShiftInwards" in builder.text(knobs=knobs)) is setting


class RowSums(Builder):
    """The sums of rows whose length is a number that is known when the kernel is called, typically 40."""

    def program(self) -> LoopProgram:
        length, rows = SizeSymbol("n0", nonnegative=True), Axis("x0", self.extents[0], self.extents[0])
        columns = Axis("x1", length, 40)
        load = Value.of("load", "float32", (), Load("in_ptr0", rows.symbol * length + columns.symbol), [])
        return LoopProgram(
            inputs=(Buffer("in_ptr0", "float32", self.extents[0] * length, 0),),
            outputs=(Buffer("out_ptr0", "float32", sympy.Integer(self.extents[0]), 1000),),
            values=(load, Value.of("reduction", "float32", (0,), Reduction("sum", (columns,)), [load])),
            stores=(Store("out_ptr0", rows.symbol, 1, Nest((rows,))),),
            checks=(),
            outer=(rows,),
            sizes=(Size("n0", length, hint=40),),
        )


@pytest.mark.parametrize("setting", [False, True])
@pytest.mark.parametrize("length", [0, 1, 3, 7, 8, 9, 15, 16, 17, 40, 333])
def test_settings_of_reductions_of_unknown_length(length: int, setting: bool) -> None:
    builder, x = RowSums((30,)), torch.randn(30, length)
    builder.results.append(torch.empty(30))
    knobs = {"rows.specialized": setting}
    (found,) = builder.run(x.reshape(-1), length, knobs=knobs)
    torch.testing.assert_close(found, x.double().sum(1).float(), rtol=1e-5, atol=1e-5)
    assert ("Specialize(" in builder.text(knobs=knobs)) is setting


def test_the_kernels_here_ask_for_every_knob_of_a_cpu() -> None:
    """Of a CPU with AVX-512, whatever this machine has: rows of up to 16 elements are short ones there."""
    target = Target.named("avx512")
    builders = [made(extents)[0] for made in MADE for extents in EXTENTS]
    dynamic = (EveryOther((300,)), RowSums((30,)))
    # Rows of the copy lie a page apart; `tests/capture/test_tiles_of_lines.py` has the values of both settings.
    others = (*dynamic, turned_copy((512, 2048))[0])
    names = {choice.knob.name for builder in (*builders, *others) for choice in choices_of(builder, target)}
    # As torch.compile captures them.
    picture = torch.empty(2, 30, 8, 33).to(memory_format=torch.channels_last)
    functions: tuple[tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]], ...] = (
        (lambda x, i: x.gather(1, i), (torch.empty(40, 60), torch.zeros(40, 50, dtype=torch.int64))),
        (lambda x: x.flip(1).clone(memory_format=torch.contiguous_format), (picture,)),
        (lambda x: x.cumsum(0), (torch.empty(40, 60),)),
        (lambda x: x.cumsum(1), (torch.empty(40, 60),)),
    )
    for function, operands in functions:
        for kernel in captured_kernels(function, operands, target):
            names |= {choice.knob.name for choice in plan_kernel(kernel.program, device_of(kernel.target)).plan.choices}
    assert {knob.name for _, knob in declared(cpu)} - names == set()
    assert {"parallel.threads", "column_blocks.rows", "functions.stores", "scatters.block", "transposes.side"} <= names


def test_a_choice_says_what_the_rule_wanted_and_why() -> None:
    choices = Choices({"rule.side": 16})
    assert choices.number(SIDE, 8, "a reason") == 16
    (choice,) = choices.made
    assert (choice.key, choice.setting, choice.rule, choice.why) == ("rule.side", 16, 8, "a reason")


def test_a_request_for_one_place_wins() -> None:
    choices = Choices({"rule.side": 16, "rule.side@sum_0": 4})
    assert choices.number(SIDE, 8, "", at="sum_0") == 4
    assert choices.number(SIDE, 8, "", at="sum_1") == 16
    choices.check_all_used()


@pytest.mark.parametrize("wanted", [5, True, "8", 8.0])
def test_another_value_is_refused(wanted: object) -> None:
    with pytest.raises(IllegalPlan, match="is no value of this knob") as caught:
        Choices({"rule.side": wanted}).number(SIDE, 4, "")  # type: ignore[dict-item]
    assert caught.value.where == "rule.side" and "4, 8, 16" in caught.value.cure


def test_a_knob_that_no_rule_asks_for_is_refused() -> None:
    builder, _, _ = pointwise((64, 512))
    with pytest.raises(IllegalPlan, match="no rule of this kernel asks for this knob") as caught:
        plan_kernel(builder.program(), device_of(Target.host()), {"transposes.side": 16})
    assert caught.value.where == "transposes.side"
