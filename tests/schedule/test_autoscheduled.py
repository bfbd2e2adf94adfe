"""Steps from the text of Halide's autoschedulers: every form in which one of them prints a schedule."""

from __future__ import annotations

import pytest

from halide_backend.errors import IllegalPlan
from halide_backend.schedule.autoscheduled import imported
from halide_backend.schedule.legality.check import check
from halide_backend.schedule.stage import Loop, Role, Stage, StageGraph
from halide_backend.schedule.steps import (
    Atomic,
    ComputeAt,
    ComputeRoot,
    Fuse,
    Parallel,
    Reorder,
    ReorderStorage,
    RFactor,
    Split,
    StoreAt,
    Unroll,
    Vectorize,
)

ROWS, COLUMNS = Loop("x0", 64, "x0"), Loop("x1", 1024, "x1")

#: Sums of rows of `value`, and an output that needs both.
GRAPH = StageGraph(
    (
        Stage("value", Role.SHARED, (COLUMNS, ROWS)),
        Stage("total", Role.REDUCTION, (ROWS,), ("value",), (Loop("r$x", 1024, "x1"),), "sum"),
        Stage("out", Role.OUTPUT, (COLUMNS, ROWS), ("value", "total")),
    ),
    ("x0",),
)

ADAMS = """\
Func out = pipeline.get_func(3);
Var x0(out.get_schedule().dims()[1].var);
Var x0i("x0i");
Var x1(out.get_schedule().dims()[0].var);
Var x1i("x1i");
RVar r_x(total.update(0).get_schedule().dims()[0].var);
RVar r_xi("r$xi");
out
    .split(x0, x0, x0i, 16, TailStrategy::ShiftInwards)
    .split(x1, x1, x1i, 8, TailStrategy::ShiftInwards)
    .unroll(x0i)
    .vectorize(x1i)
    .compute_root()
    .reorder({x1i, x1, x0i, x0})
    .parallel(x0);
value
    .store_in(MemoryType::Stack)
    .compute_at(total, r_x)
    .store_at(total, x0)
    .reorder_storage(x0, x1);
total
    .compute_at(out, x0);
total.update(0)
    .split(r_x, r_x, r_xi, 4, TailStrategy::GuardWithIf)
    .reorder({r_xi, r_x, x0});
"""

MULLAPUDI = """\
Var x0_vi("x0_vi");
Var x0_vo("x0_vo");

Func total = pipeline.get_func(2);

{
    Var x0 = total.args()[0];
    total
        .compute_root()
        .split(x0, x0_vo, x0_vi, 16)
        .vectorize(x0_vi)
        .parallel(x0_vo);
    RVar r$x(total.update(0).get_schedule().rvars()[0].var);
    total.update(0)
        .split(x0, x0_vo, x0_vi, 16, TailStrategy::GuardWithIf)
        .vectorize(x0_vi)
        .parallel(x0_vo);
    out.compute_root();
    value.unscheduled();
}
"""

LI = """\
out.compute_root()
    .fuse(x1,x0,v2)
    .parallel(v2,504,ShiftInwards)
;
total.compute_root()
;
total.update(0)
    .split(r$x,r6,r7,200,GuardWithIf)
;
total_intm = total.update(0)
    .rfactor({{r6,v4}})
    .compute_root()
    .vectorize(v4,8)
;
total_intm.update()
    .parallel(x0)
in_ptr0_im.compute_root()
    .vectorize(_0,8)
total.update(0)
    .atomic()
    .vectorize(r6,2)
    .atomic()
;
"""


def test_adams2019() -> None:
    assert imported(ADAMS, GRAPH) == (
        Split("out", "x0", "x0", "x0i", 16),
        Split("out", "x1", "x1", "x1i", 8),
        Unroll("out", "x0i"),
        Vectorize("out", "x1i"),
        Reorder("out", ("x1i", "x1", "x0i", "x0")),
        Parallel("out", "x0"),
        ComputeAt("value", "total", "r$x"),
        StoreAt("value", "total", "x0"),
        ReorderStorage("value", ("x0", "x1")),
        ComputeAt("total", "out", "x0"),
        Split("total", "r$x", "r$x", "r$xi", 4, update=0),
        Reorder("total", ("r$xi", "r$x", "x0"), update=0),
    )


def test_mullapudi2016_and_a_vector_around_another_loop() -> None:
    steps = imported(MULLAPUDI, GRAPH)
    assert steps == (
        ComputeRoot("total"),
        Split("total", "x0", "x0_vo", "x0_vi", 16),
        Vectorize("total", "x0_vi"),
        Parallel("total", "x0_vo"),
        Split("total", "x0", "x0_vo", "x0_vi", 16, update=0),
        Vectorize("total", "x0_vi", update=0),
        Parallel("total", "x0_vo", update=0),
        # What Halide makes of it, and what legality wants to be said.
        Reorder("total", ("x0_vi", "r$x"), update=0),
    )
    check(GRAPH, steps)


def test_li2018() -> None:
    assert imported(LI, GRAPH) == (
        Fuse("out", "x1", "x0", "v2"),
        Split("out", "v2", "v2", "v2_t", 504),
        Parallel("out", "v2"),
        ComputeRoot("total"),
        Split("total", "r$x", "r6$r", "r7$r", 200, update=0),
        RFactor("total", ("r6$r",), ("v4",), "total_intm"),
        ComputeRoot("total_intm"),
        Split("total_intm", "v4", "v4", "v4_v", 8),
        Vectorize("total_intm", "v4_v"),
        Parallel("total_intm", "x0", update=0),
        Atomic("total"),
        Split("total", "r6$r", "r6$r", "r6$r_v", 2, update=0),
        Vectorize("total", "r6$r_v", update=0),
        Reorder("total_intm", ("v4_v", "x0")),
    )


@pytest.mark.parametrize(
    ("source", "place", "why"),
    [
        ("out.gpu_tile(x0, x1, 8);", "out.gpu_tile(x0, x1, 8)", "the directive 'gpu_tile' is unknown"),
        ("out.split(x0, 8);", "out.split(x0, 8)", "expected at least 4"),
        ("out.vectorize(x0, wide);", "out.vectorize(x0, wide)", "invalid literal for int()"),
        ("out.unroll();", "out.unroll()", "index out of range"),
        ("value.store_in(MemoryType::Register);", "value.store_in(MemoryType::Register)", "no such memory"),
        ("Var x7 = out.args()[7];", "Var x7 = out.args()[7]", "there is no loop 7 of out"),
        ("Var x(other.get_schedule().dims()[0].var);", "Var x(other.get", "there is no loop 0 of other"),
        ("out.in(total).compute_root(", "out.in(total).compute_root(", "unknown"),
        ("if (x) out.compute_root();", "if (x) out.compute_root()", "no chain of directives"),
    ],
)
def test_what_means_nothing_is_refused(source: str, place: str, why: str) -> None:
    with pytest.raises(IllegalPlan) as refused:
        imported(source, GRAPH)
    assert refused.value.where.startswith(place) and why in refused.value.what
