"""What holds of the rules for CUDA together: who plans a kernel, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sympy

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.errors import IllegalPlan
from halide_backend.program.loop_program import Axis, Buffer, Load, LoopProgram, Nest, Reduction, Store, Value
from halide_backend.schedule.cuda.choose import RULES, cuda_steps
from halide_backend.schedule.device import Gpu
from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.plan import Plan
from halide_backend.schedule.steps import AlignStorage

H200 = Gpu("sm_90", 132, 2048, 228 << 10, 60 << 20, 4.8e12)
SIDE = Knob("rule.side", (4, 8, "whole"), "for this test")


def row_sums(rows: int, columns: int, *, kept: bool = False) -> LoopProgram:
    """Sums of rows of floats; with `kept` each row is divided by its own."""
    x0, x1 = axes = Axis("x0", rows, rows), Axis("x1", columns, columns)
    index = columns * x0.symbol + x1.symbol
    values = [
        Value("load", "float32", (), Load("in_ptr0", index), frozenset({"x0", "x1"})),
        Value("reduction", "float32", (0,), Reduction("sum", (x1,)), frozenset({"x0"})),
        Value("truediv", "float32", (0, 1), None, frozenset({"x0", "x1"})),
    ]
    stored = (
        Store("out_ptr0", index, 2, Nest(axes)) if kept else Store("out_ptr0", sympy.expand(x0.symbol), 1, Nest((x0,)))
    )
    return LoopProgram(
        inputs=(Buffer("in_ptr0", "float32", rows * columns, 0, aligned=True),),
        sizes=(),
        outputs=(Buffer("out_ptr0", "float32", rows * columns if kept else rows, 1, aligned=True),),
        values=tuple(values if kept else values[:2]),
        stores=(stored,),
        checks=(),
        outer=(x0,),
    )


def rule_of(program: LoopProgram, device: Gpu = H200, **knobs: bool) -> str:
    return plan_kernel(program, device, {key.replace("__", "."): v for key, v in knobs.items()}).plan.mapping.rule


def test_a_plan_names_its_rule() -> None:
    planned = plan_kernel(row_sums(64, 512), H200)
    assert planned.plan.mapping.rule == "register_lines"
    assert Plan.from_json(planned.plan.to_json()).mapping == planned.plan.mapping
    prefixes = {choice.knob.name.partition(".")[0] for choice in planned.plan.choices}
    assert prefixes == {"register_lines", "loads", "registers"}


def test_a_knob_hands_a_kernel_to_the_next_rule() -> None:
    assert rule_of(row_sums(64, 512), register_lines__applies=False) == "block_lines"
    # A line of 131,072 numbers has no place in registers.
    assert rule_of(row_sums(64, 131_072)) == "block_lines"
    with pytest.raises(IllegalPlan, match="no rule of this kernel asks"):
        rule_of(row_sums(64, 131_072), register_lines__applies=True)


def test_the_device_decides_how_many_threads_have_a_line() -> None:
    """Where lines are fewer than SMs each gets more threads."""
    program = row_sums(120, 4096)
    few, many = (plan_kernel(program, replace(H200, sms=sms)).plan.mapping.tiling for sms in (132, 108))
    assert few is not None and many is not None
    assert (few.threads, many.threads) == (512, 256)


@pytest.mark.parametrize(
    ("lines", "columns", "threads"),
    [(1, 4096, 256), (512, 512, 128), (512, 768, 192), (2048, 768, 96), (4096, 512, 64), (8192, 512, 32)],
)
def test_a_line_among_few_has_more_threads_if_it_is_used_twice(lines: int, columns: int, threads: int) -> None:
    """As many as SMs have room for, 2,048 each, up to a vector for each and 256; of what is used once a warp has 24
    words a lane."""
    kept = plan_kernel(row_sums(lines, columns, kept=True), H200).plan.mapping.tiling
    passing = plan_kernel(row_sums(lines, columns), H200).plan.mapping.tiling
    assert kept is not None and passing is not None
    assert kept.threads == (threads if columns < 4096 else 512)
    assert passing.threads == (32 if columns < 4096 else 512)


def test_the_device_decides_what_a_cache_holds() -> None:
    program = row_sums(4096, 4096, kept=True)
    assert plan_kernel(program, H200).plan.mapping.loads == "L2::evict_last"
    assert plan_kernel(program, replace(H200, l2_bytes=126 << 20)).plan.mapping.loads == ""


@pytest.mark.parametrize(("columns", "sms", "threads"), [(131_001, 132, 32), (262_145, 132, 64), (262_145, 264, 32)])
def test_blocks_have_two_warps_where_blocks_of_one_do_not_fill_a_gpu(columns: int, sms: int, threads: int) -> None:
    """An SM runs 32 blocks at most, and up to 2,048 threads."""
    x0, x1 = Axis("x0", columns, columns), Axis("x1", 64, 64)
    program = replace(
        row_sums(columns, 64),
        inputs=(Buffer("in_ptr0", "float32", 64 * columns, 0, aligned=False),),
        values=(
            Value("load", "float32", (), Load("in_ptr0", columns * x1.symbol + x0.symbol), frozenset({"x0", "x1"})),
            Value("reduction", "float32", (0,), Reduction("sum", (x1,)), frozenset({"x0"})),
        ),
    )
    plan = plan_kernel(program, replace(H200, sms=sms)).plan
    assert plan.mapping.rule == "column_reductions"
    assert {c.key: c.rule for c in plan.choices}["column_reductions.threads"] == threads


def test_a_rule_that_does_not_exist_is_refused() -> None:
    planned = plan_kernel(row_sums(64, 512), H200)
    mapping = replace(planned.plan.mapping, rule="lines")
    for each in (mapping, Mapping(rule="pointwise")):
        with pytest.raises(IllegalPlan, match="there is no rule") as caught:
            cuda_steps(planned.stages, each, H200, Choices())
        assert all(rule.name in caught.value.cure for rule in RULES)


def test_only_what_was_requested_is_refused() -> None:
    usual = Choices()
    usual.number(SIDE, 4, "a reason")
    usual.require(SIDE, False, "it does not fit")
    asked = Choices({"rule.side": 8})
    asked.number(SIDE, 4, "a reason")
    with pytest.raises(IllegalPlan, match="it does not fit") as caught:
        asked.require(SIDE, False, "it does not fit")
    assert caught.value.where == "rule.side" and "rule.side = 8" in caught.value.cure


def test_a_value_has_its_type() -> None:
    assert Choices({"rule.side": "whole"}).choose(SIDE, 4, "") == "whole"
    with pytest.raises(IllegalPlan, match="is no value of this knob"):
        Choices({"rule.side": True}).choose(Knob("rule.side", (1, 2), ""), 2, "")


@pytest.mark.parametrize("padding", [0, 1, 4])
def test_lines_in_shared_memory_are_padded_as_requested(padding: int) -> None:
    x0, x1 = axes = Axis("x0", 128, 128), Axis("x1", 64, 64)
    program = LoopProgram(
        inputs=(Buffer("in_ptr0", "float32", 8192, 0, aligned=True),),
        sizes=(),
        outputs=(Buffer("out_ptr0", "float32", 8192, 1, aligned=True),),
        values=(Value("load", "float32", (), Load("in_ptr0", 128 * x1.symbol + x0.symbol), frozenset({"x0", "x1"})),),
        stores=(Store("out_ptr0", 64 * x0.symbol + x1.symbol, 0, Nest(axes)),),
        checks=(),
        outer=axes,
    )
    plan = plan_kernel(program, H200, {"shared_transposes.padding": padding}).plan
    assert plan.mapping.rule == "shared_transposes"
    assert [step.alignment - plan.mapping.tiling.side for step in plan.steps if isinstance(step, AlignStorage)] == [
        padding
    ]
