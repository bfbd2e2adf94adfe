"""Which reductions are values of one Func."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.errors import IllegalPlan
from halide_backend.program.loop_program import Axis, Buffer, Load, LoopProgram, Nest, Reduction, Store, Value
from halide_backend.schedule.device import Cpu, device_of
from halide_backend.schedule.knobs import Choices
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.mapping.tuples import gpu_tuples, is_one_tuple, tuples
from halide_backend.schedule.plan import Plan
from halide_backend.schedule.steps import Atomic, ComputeRoot
from halide_backend.schedule.tiling import TilingKind

DEVICE = Cpu(64)


def program(
    kinds: Sequence[str], elements: int, *, across: bool = False, columns: int = 8, dtypes: Sequence[str] = ()
) -> LoopProgram:
    """A reduction of each of `kinds` over all of `elements`, adjacent or (`across`) a row of `columns` apart."""
    along, beside = Axis("x1", elements, elements), Axis("x0", columns, columns)
    index = along.symbol * columns + beside.symbol if across else along.symbol
    outer = (beside,) if across else ()
    size = elements * (columns if across else 1)
    values: list[Value] = []
    stores, outputs = [], []

    def add(operation: str, dtype: str, operands: tuple[int, ...] = (), attribute: object = None) -> int:
        values.append(Value.of(operation, dtype, operands, attribute, values))
        return len(values) - 1

    load = add("load", "float32", (), Load("in_ptr0", index))
    for number, kind in enumerate(kinds):
        dtype = dtypes[number] if dtypes else "float32"
        operand = load if dtype == "float32" else add("to_dtype", dtype, (load,))
        found = add("reduction", dtype, (operand,), Reduction(kind, (along,), along.symbol if "arg" in kind else None))
        outputs.append(Buffer(f"out_ptr{number}", dtype, columns if across else 1, 1 + number))
        stores.append(Store(f"out_ptr{number}", beside.symbol if across else index * 0, found, Nest(outer)))
    source = Buffer("in_ptr0", "float32", size, 0)
    return LoopProgram(
        inputs=(source,),
        outputs=tuple(outputs),
        values=tuple(values),
        stores=tuple(stores),
        checks=(),
        outer=outer,
        sizes=(),
    )


def chosen(made: LoopProgram, **knobs: bool) -> tuple[tuple[int, ...], ...]:
    return tuples(made, DEVICE, Choices({name.replace("__", "."): setting for name, setting in knobs.items()}))


def test_long_rows_and_all_columns_are_together() -> None:
    """A second pass over 16 KB of a row finds them in L1, of 32 KB; across memory it loads each vector again."""
    assert chosen(program(["sum", "max"], 4096)) == ()
    assert chosen(program(["sum", "max"], 4097)) == ((1, 2),)
    assert chosen(program(["sum", "max"], 32, across=True)) == ((1, 2),)
    assert chosen(program(["sum", "max"], 4096, across=True, columns=500)) == ((1, 2),)


def test_operands_that_only_one_of_them_loads_count() -> None:
    made = program(["sum", "max"], 2049)
    values = [*made.values[:1]]
    for operation, operands, attribute in (
        ("load", (), replace(made.values[0].attribute, buffer="in_ptr1")),  # type: ignore[type-var]
        ("mul", (0, 1), None),
        ("reduction", (2,), made.values[1].attribute),
        ("reduction", (0,), made.values[2].attribute),
    ):
        values.append(Value.of(operation, "float32", operands, attribute, values))
    made = replace(
        made,
        inputs=(*made.inputs, replace(made.inputs[0], name="in_ptr1", memory=3)),
        values=tuple(values),
        stores=tuple(replace(store, value=value) for store, value in zip(made.stores, (3, 4), strict=True)),
    )
    assert chosen(made) == ((3, 4),)
    assert chosen(program(["sum", "max"], 2049)) == ()


def test_as_requested() -> None:
    assert chosen(program(["sum", "max"], 8), reductions__tuples=True) == ((1, 2),)
    assert chosen(program(["sum", "max"], 100_000), reductions__tuples=False) == ()


def test_accumulators_of_one_width_with_one_pass() -> None:
    """argmax has a second pass, and the lanes of a vector are of one width."""
    assert chosen(program(["max", "argmax", "min"], 100_000)) == ((1, 3),)
    mixed = program(["sum", "sum", "max"], 100_000, dtypes=["float32", "float64", "float32"])
    assert chosen(mixed) == ((1, 4),)


def test_as_many_as_registers_hold() -> None:
    made = program(["sum", "max", "min", "prod", "sum"], 100_000)
    assert chosen(made) == ((1, 2, 3, 4),)
    assert tuples(made, Cpu(32), Choices()) == ((1, 2), (3, 4))


def test_a_reduction_of_another_comes_later() -> None:
    """The sum of differences from a mean is no part of the mean's loop; with the sum of their squares it is."""
    made = program(["sum"], 100_000)
    (load, total), over = made.values, made.values[1].attribute
    assert isinstance(over, Reduction)
    values = [load, total]
    for operation, operands, attribute in (
        ("sub", (0, 1), None), ("mul", (2, 2), None), ("reduction", (2,), over), ("reduction", (3,), over),
    ):  # fmt: skip
        values.append(Value.of(operation, "float32", operands, attribute, values))
    store = made.stores[0]
    made = replace(
        made,
        values=tuple(values),
        outputs=tuple(Buffer(f"out_ptr{k}", "float32", 1, 1 + k) for k in range(3)),
        stores=tuple(replace(store, buffer=f"out_ptr{k}", value=value) for k, value in enumerate((1, 4, 5))),
    )
    assert chosen(made) == ((4, 5),)
    assert not is_one_tuple(made, DEVICE)


def test_kernels_of_one_tuple() -> None:
    assert is_one_tuple(program(["min", "max"], 100_000), DEVICE)
    assert not is_one_tuple(program(["min", "max"], 100), DEVICE)
    assert not is_one_tuple(program(["max"], 100_000), DEVICE)


def test_columns_of_a_gpu() -> None:
    """Its threads hold nothing of a column: they would load it again, unless their whole loop is unrolled."""
    long, short = program(["sum", "max"], 1024, across=True), program(["sum", "max"], 32, across=True)
    assert gpu_tuples(long, TilingKind.COLUMNS, Choices()) == ((1, 2),)
    assert gpu_tuples(long, TilingKind.THREAD, Choices()) == ((1, 2),)
    assert gpu_tuples(long, TilingKind.REGISTERS, Choices()) == ()
    assert gpu_tuples(short, TilingKind.THREAD, Choices()) == ()
    assert gpu_tuples(long, TilingKind.THREAD, Choices({"reductions.tuples": False})) == ()
    assert gpu_tuples(short, TilingKind.THREAD, Choices({"reductions.tuples": True})) == ((1, 2),)


def test_a_plan_for_a_gpu_keeps_them() -> None:
    made = program(["sum", "max"], 1024, across=True)
    planned = plan_kernel(made, device_of(Target.cuda(9, 0)))
    assert planned.plan.mapping.tuples == ((1, 2),)
    assert Plan.from_json(planned.plan.to_json()).mapping == planned.plan.mapping
    assert "reductions_0_group[t, x0] = hl.Tuple(" in planned.text


def test_a_plan_keeps_them() -> None:
    made = program(["min", "max"], 100_000)
    plan = plan_kernel(made, DEVICE).plan
    assert plan.mapping.tuples == ((1, 2),)
    assert Plan.from_json(plan.to_json()).mapping == plan.mapping
    assert Mapping.from_json(Mapping().to_json()) == Mapping()
    with pytest.raises(IllegalPlan, match="not those of this program"):
        plan_kernel(made, DEVICE, plan=replace(plan, mapping=replace(plan.mapping, tuples=())))


def test_no_horizontal_instruction_reduces_them() -> None:
    """Halide has none for a Tuple."""
    made = program(["min", "max"], 100_000)
    plan = plan_kernel(made, DEVICE).plan
    steps = (ComputeRoot("reductions_0"), Atomic("reductions_0"))
    with pytest.raises(IllegalPlan, match="order of the steps"):
        plan_kernel(made, DEVICE, plan=replace(plan, steps=steps))


def test_sums_that_share_loads_in_a_chain() -> None:
    """Gradients of two norms with the same statistics: products with a third operand, and sums without it."""
    rows, columns = Axis("x1", 1000, 1000), Axis("x0", 64, 64)
    index = 64 * rows.symbol + columns.symbol
    values: list[Value] = []

    def add(operation: str, operands: tuple[int, ...] = (), attribute: object = None) -> int:
        values.append(Value.of(operation, "float32", operands, attribute, values))
        return len(values) - 1

    one, both, other = (add("load", (), Load(f"in_ptr{number}", index)) for number in range(3))
    operands = add("mul", (one, both)), add("mul", (other, both)), one, other
    sums = [add("reduction", (operand,), Reduction("sum", (rows,), None)) for operand in operands]
    made = LoopProgram(
        inputs=tuple(Buffer(f"in_ptr{number}", "float32", 64_000, number) for number in range(3)),
        outputs=tuple(Buffer(f"out_ptr{number}", "float32", 64, 3 + number) for number in range(4)),
        values=tuple(values),
        stores=tuple(
            Store(f"out_ptr{number}", columns.symbol, each, Nest((columns,))) for number, each in enumerate(sums)
        ),
        checks=(),
        outer=(columns,),
        sizes=(),
    )
    assert chosen(made) == (tuple(sums),)
    # A thread of a GPU would have to hold the operands of all of them.
    assert gpu_tuples(made, TilingKind.COLUMNS, Choices()) == ((sums[0], sums[1]),)
