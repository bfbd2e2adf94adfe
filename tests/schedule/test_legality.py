"""What legality refuses: each trap by itself, in a plan that is legal without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from halide_backend.errors import IllegalPlan
from halide_backend.schedule.cpu.choose import cpu_steps
from halide_backend.schedule.device import Cpu
from halide_backend.schedule.knobs import Choices
from halide_backend.schedule.legality.check import check
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.stage import Loop, Role, Stage, StageGraph
from halide_backend.schedule.steps import (
    AlignStorage,
    AllowRaceConditions,
    Atomic,
    Bound,
    BoundExtent,
    BoundStorage,
    CloneIn,
    ComputeAt,
    ComputeInline,
    ComputeRoot,
    ComputeWith,
    FoldStorage,
    Fuse,
    GpuBlocks,
    GpuThreads,
    In,
    Parallel,
    Prefetch,
    Reorder,
    ReorderStorage,
    RFactor,
    Specialize,
    Split,
    Step,
    StoreAt,
    StoreIn,
    StoreRoot,
    Unroll,
    Vectorize,
)
from halide_backend.schedule.tiling import Tiling, TilingKind

ROWS, COLUMNS = Loop("x0", 64, "x0"), Loop("x1", 1000, "x1")
LOOPS = (COLUMNS, ROWS)


def pair() -> StageGraph:
    """Two outputs that need the old value of memory that one of them overwrites."""
    old = Stage("old", Role.PRESERVED, LOOPS, contiguous={"x1": 256_000})
    first = Stage("first", Role.OUTPUT, LOOPS, calls=("old",), contiguous={"x1": 256_000})
    second = Stage("second", Role.OUTPUT, LOOPS, calls=("old",), contiguous={"x1": 256_000})
    return StageGraph((old, first, second), ("x0", "x1"))


def kernel(**changes: object) -> StageGraph:
    """A row's total of `value`, and an output that needs both; `changes` are those of `value`."""
    value = replace(Stage("value", Role.SHARED, LOOPS), **changes)  # type: ignore[arg-type]
    total = Stage("total", Role.REDUCTION, (ROWS,), ("value",), (Loop("r$x", 1000, "x1"),), "sum")
    return StageGraph((value, total, Stage("out", Role.OUTPUT, LOOPS, ("value", "total"))), ("x0",))


def checked(**changes: object) -> StageGraph:
    """An output, to which `changes` are made, and what a check says of each of its elements."""
    out = replace(Stage("out", Role.OUTPUT, LOOPS), **changes)  # type: ignore[arg-type]
    check = Stage("check", Role.INLINE, LOOPS)
    failed = Stage("failed", Role.REDUCTION, (), ("check",), (replace(COLUMNS, name="r$x"), ROWS), "max")
    status = Stage("status", Role.OUTPUT, (Loop("k", 1, "k"),), ("failed",))
    return StageGraph((out, check, failed, status), ("x0", "x1"))


def checked_old() -> StageGraph:
    return checked(overwrites=True)


def shared(shifted: tuple[str, ...] = ()) -> StageGraph:
    """An output that needs a value at its own place, and at others along the axes `shifted`."""
    value = Stage("value", Role.SHARED, LOOPS, shifted=shifted)
    return StageGraph((value, Stage("out", Role.OUTPUT, LOOPS, ("value",))), ("x0", "x1"))


def stencil() -> StageGraph:
    return shared(("x1",))


def scatter() -> StageGraph:
    loops = (Loop("x1", 64, "x1"), Loop("p", 1, "p"))
    updates = (Loop("r$x", 100, "x0"), Loop("r$y", 8, "x2"))
    return StageGraph((Stage("out", Role.SCATTER, loops, updates=updates),), ())


def folded() -> StageGraph:
    """A scatter whose steps along one of two loops store side by side."""
    updates = (Loop("r$x", 100, "x0"), Loop("r$y", 8, "x2"))
    return StageGraph((Stage("out", Role.SCATTER, (Loop("p", 1, "p"),), updates=updates, distinct=("x0",)),), ())


def overwriting() -> StageGraph:
    """An output whose memory is read, too."""
    return StageGraph((Stage("out", Role.OUTPUT, LOOPS, overwrites=True),), ("x0", "x1"))


TILING = Tiling(TilingKind.REGISTERS, outer=("x0",), inner=("x1",), chunk="x1", elements=4, chunks=250, threads=32)


def group() -> StageGraph:
    """A maximum that the 32 threads of a warp find together."""
    words, thread, step = Loop("k", 4, "k"), Loop("t", 32, "t"), Loop("u", 8, "u")
    load = Stage("load", Role.STAGED_LOAD, (words, thread, step, ROWS))
    updates = (Loop("r$x", 4, "e"), Loop("r$y", 8, "u"))
    part = Stage("part", Role.REDUCTION, (thread, ROWS), ("load",), updates, "max")
    whole = Stage("whole", Role.GROUP_REDUCTION, (thread, ROWS), ("part",))
    out = Stage("out", Role.OUTPUT, (words, thread, step, ROWS), ("whole", "load"))
    return StageGraph((load, part, whole, out), ("x0",))


GROUP_STEPS: tuple[Step, ...] = (
    Vectorize("out", "k"),
    Unroll("out", "u"),
    Reorder("out", ("k", "u", "t", "x0")),
    Split("out", "x0", "block", "y", 4),
    GpuThreads("out", ("t", "y")),
    GpuBlocks("out", ("block",)),
    ComputeAt("load", "out", "t"),
    Bound("load", "k", 0, 4),
    Vectorize("load", "k"),
    Bound("load", "u", 0, 8),
    Unroll("load", "u"),
    ComputeAt("part", "out", "t"),
    Unroll("part", "r$x", update=0),
    Unroll("part", "r$y", update=0),
    ComputeAt("whole", "out", "t"),
)

ROOT = ComputeRoot("total")
AT = ComputeAt("total", "out", "x0")
INSIDE = ComputeAt("value", "out", "x0")


def refusal(graph: StageGraph, steps: Sequence[Step], tiling: Tiling | None = None) -> IllegalPlan | None:
    try:
        check(graph, steps, tiling)
    except IllegalPlan as found:
        assert found.where and found.cure
        return found
    return None


def test_a_loop_around_all_users_is_legal() -> None:
    assert refusal(kernel(), (AT, ComputeAt("value", "out", "x0"))) is None
    assert refusal(kernel(), (AT, ComputeAt("value", "total", "r$x"))) is not None


def test_a_func_that_is_needed_outside_of_its_loop_is_refused() -> None:
    # Halide refuses it as well, but in a worker and without the step: seed 300486 of the random programs.
    found = refusal(kernel(), (ROOT, ComputeAt("value", "out", "x0")))
    assert found is not None and found.what == "total needs it too, outside of the loop 'x0' of out"
    through_inlined = replace(Stage("twice", Role.INLINE, LOOPS), calls=("value",))
    value, total, out = kernel().stages
    graph = StageGraph((value, through_inlined, replace(total, calls=("twice",)), out), ("x0",))
    found = refusal(graph, (ROOT, ComputeAt("value", "out", "x0")))
    assert found is not None and found.what.startswith("total needs it too")
    assert refusal(graph, (AT, ComputeAt("value", "out", "x0"))) is None


@pytest.mark.parametrize(("var", "legal"), [("x0", True), ("x1", False)])
def test_outputs_computed_together_have_their_common_loops(var: str, legal: bool) -> None:
    shared = Stage("value", Role.SHARED, LOOPS)
    outputs = [Stage(name, Role.OUTPUT, LOOPS, ("value",)) for name in ("first", "second")]
    steps = (ComputeWith("second", "first", "x0"), ComputeAt("value", "first", var))
    found = refusal(StageGraph((shared, *outputs), ("x0", "x1")), steps)
    assert (found is None) is legal
    if found is not None:
        assert found.what == "second needs it too, outside of the loop 'x1' of first"


@pytest.mark.parametrize("output", ["first", "second"])
def test_loops_that_are_written_twice_are_shared_with_none(output: str) -> None:
    outputs = [Stage(name, Role.OUTPUT, LOOPS) for name in ("first", "second")]
    steps = (Specialize(output, "n0", 8), ComputeWith("second", "first", "x0"))
    found = refusal(StageGraph(tuple(outputs), ("x0", "x1")), steps)
    assert found is not None and found.what == "one has other loops where its loops are short"
    assert refusal(StageGraph(tuple(outputs), ("x0", "x1")), steps[1:]) is None


def test_old_values_in_a_shared_loop_are_legal() -> None:
    steps = (ComputeAt("old", "first", "x0"), ComputeWith("second", "first", "x0"))
    assert refusal(pair(), steps) is None


@pytest.mark.parametrize(
    "steps",
    [
        (),
        (ComputeWith("second", "first", "x0"),),
        (ComputeAt("old", "first", "x0"),),
        (ComputeAt("old", "first", "x1"), ComputeWith("second", "first", "x0")),
        (ComputeAt("old", "second", "x0"), ComputeWith("second", "first", "x0")),
        (ComputeRoot("old"),),
    ],
    ids=["nothing", "inlined", "separate loops", "below the shared loop", "inside the child", "before one of them"],
)
def test_old_values_anywhere_else_are_refused(steps: tuple[Step, ...]) -> None:
    found = refusal(pair(), steps)
    assert found is not None and found.what.startswith("overwritten memory is read outside")


def test_old_values_of_a_row_lie_around_its_loop() -> None:
    row = Loop("x1", 40, "x1")
    value, total, out = kernel(role=Role.PRESERVED).stages
    graph = StageGraph(
        (
            replace(value, loops=(row, ROWS)),
            replace(total, updates=(Loop("r$x", 40, "x1"),)),
            replace(out, loops=(row, ROWS)),
        ),
        ("x0",),
    )
    assert refusal(graph, (AT, ComputeAt("value", "out", "x0"))) is None
    steps = (ComputeAt("total", "out", "x1"), ComputeAt("value", "out", "x1"))
    found = refusal(graph, steps)
    assert found is not None and "each step of 'x1' needs what others write" in found.what


def test_the_rules_are_legal() -> None:
    schedule = cpu_steps(pair(), Mapping(), Cpu(64), Choices())
    assert refusal(pair(), schedule) is None
    assert len([step for step in schedule if isinstance(step, ComputeAt) and step.func == "old"]) == 1


@pytest.mark.parametrize(
    ("graph", "steps", "why"),
    [
        # what a step names
        (kernel, [AT, Vectorize("none", "x1")], "there is no Func 'none'"),
        (kernel, [AT, Vectorize("out", "x2")], "no loop 'x2'"),
        (kernel, [AT, Split("out", "x1", "o", "i", 8), Unroll("out", "x1")], "no loop 'x1'"),
        (kernel, [AT, Reorder("out", ("x1", "x1"))], "named twice"),
        (kernel, [AT, Unroll("out", "x1", update=0)], "there is no update 0"),
        (kernel, [AT, Unroll("total", "r$x", update=True)], "update is True"),
        (kernel, [AT, ROOT], "an earlier step has said this"),
        (kernel, [AT, Parallel("out", "x0"), Parallel("out", "x0")], "is parallel already"),
        (kernel, [AT, Split("out", "x1", "s", "i", 8)], "whose loop is called s"),
        (kernel, [AT, Split("out", "x1", "o", "o", 8)], "has a loop 'o' already"),
        (kernel, [AT, Split("out", "x1", "o", "i", 0)], "the factor is 0"),
        (kernel, [AT, Split("out", "x1", "o", "i", 1 << 30)], "the factor is"),
        (kernel, [AT, Split("total", "r$x", "o", "i", 8, update=0)], "cannot be the name"),
        (kernel, [ComputeAt("total", "out", "x9")], "has no loop 'x9'"),
        (kernel, [ComputeAt("total", "value", "x0")], "does not need it"),
        # tails
        (kernel, [AT, INSIDE, Split("value", "x1", "o", "i", 8, tail="ShiftInwards")], "that is for outputs"),
        (kernel, [AT, Split("total", "r$x", "r$o", "r$i", 8, 0, "ShiftInwards")], "that is for outputs"),
        (scatter, [Split("out", "x1", "o", "i", 8, tail="ShiftInwards")], "that is for outputs"),
        (overwriting, [Split("out", "x1", "o", "i", 8, tail="ShiftInwards")], "has been overwritten by then"),
        (
            kernel,
            [AT, Split("out", "x1", "o", "i", 64), Split("out", "i", "io", "iv", 8, tail="ShiftInwards")],
            "only a whole loop",
        ),
        (
            kernel,
            [ROOT, Fuse("out", "x1", "x0", "x1"), Split("out", "x1", "o", "i", 8, tail="ShiftInwards")],
            "only a whole loop",
        ),
        (
            kernel,
            [
                ROOT,
                Split("out", "x1", "o", "i", 8, tail="ShiftInwards"),
                Split("out", "x0", "ro", "ri", 8, tail="ShiftInwards"),
            ],
            "only a whole loop",
        ),
        (
            kernel,
            [
                ROOT,
                Split("out", "x1", "o", "i", 8, tail="ShiftInwards"),
                CloneIn("value", "out", "again"),
                ComputeAt("again", "out", "o"),
                StoreAt("again", "out", "x0"),
            ],
            "shifted inwards",
        ),
        (kernel, [AT, Split("out", "x1", "o", "i", 8, tail="PredicateStores")], "out of bounds"),
        (kernel, [AT, Split("out", "x1", "o", "i", 8, tail="RoundUp")], "what the user sees"),
        (kernel, [AT, ComputeAt("value", "out", "x0"), Split("value", "x1", "o", "i", 16, tail="RoundUp")], "beyond"),
        (kernel, [AT, Specialize("total", "n0", 8)], "only the loops of an output"),
        (kernel, [AT, Split("out", "x1", "o", "i", 8), Specialize("out", "n0", 8)], "have been changed"),
        (kernel, [AT, Specialize("out", "n0", 8), Specialize("out", "n0", 8)], "specialized, before"),
        (kernel, [AT, Specialize("out", "n0", 0)], "the size is 0"),
        (
            kernel,
            [AT, Specialize("out", "n0", 8), Split("out", "x1", "o", "i", 8, tail="ShiftInwards")],
            "written twice already",
        ),
        # vectors, copies and threads
        (kernel, [AT, Vectorize("out", "x1")], "a vector of 1000 lanes"),
        (kernel, [AT, Split("out", "x1", "o", "i", 17), Vectorize("out", "i")], "a vector of 17 lanes"),
        (kernel, [AT, Vectorize("total", "r$x", update=0)], "a vector of 1000 lanes"),
        (
            kernel,
            [AT, Split("total", "r$x", "r$o", "r$i", 8, 0), Vectorize("total", "r$i", 0)],
            "depend on one another",
        ),
        (kernel, [AT, Split("out", "x1", "o", "i", 8), Vectorize("out", "o")], "a vector of 125 lanes"),
        (kernel, [ROOT, Vectorize("out", "x0")], "is a vector around the loop 'x1'"),
        (kernel, [AT, Unroll("out", "x1")], "would be written 1000 times"),
        (kernel, [AT, Parallel("total", "r$x", update=0)], "write one place at the same time"),
        (kernel, [AT, Unroll("value", "x1")], "has no loops of its own"),
        (kernel, [AT, AllowRaceConditions("total")], "lose what another one has written"),
        (scatter, [AllowRaceConditions("out")], "lose what another one has written"),
        (folded, [Split("out", "r$x", "r$o", "r$i", 4, 0), Vectorize("out", "r$i", 0)], "depend on one another"),
        (folded, [AllowRaceConditions("out"), Vectorize("out", "r$y", 0)], "depend on one another"),
        (scatter, [Atomic("out")], "order of the steps"),
        (scatter, [RFactor("out", "r$x", "v", "part")], "order of the steps"),
        (scatter, [Fuse("out", "r$x", "r$y", "r$f", update=0)], "order of these steps"),
        (scatter, [Reorder("out", ("r$y", "r$x"), update=0)], "order of these steps"),
        # places
        (kernel, [], "computed anew for every use"),
        (kernel, [ComputeInline("total")], "computed once"),
        (kernel, [ROOT, ComputeRoot("out")], "an output is computed by itself"),
        (kernel, [AT, StoreRoot("value")], "not computed inside a loop"),
        (kernel, [AT, ComputeAt("value", "out", "x0"), StoreAt("value", "out", "x1")], "outside of this loop"),
        (
            kernel,
            [AT, ComputeAt("value", "out", "x0"), StoreRoot("value"), Parallel("out", "x0")],
            "would share the storage",
        ),
        (kernel, [AT, ComputeAt("value", "out", "x0"), FoldStorage("value", "x0", 2)], "take turns only"),
        (kernel, [AT, ComputeAt("value", "out", "x0"), StoreIn("value", "Stack")], "on a thread's stack"),
        (kernel, [AT, BoundStorage("value", "x1", 1000)], "inside of a loop"),
        (kernel, [AT, BoundStorage("out", "x1", 1000)], "or it is an output"),
        (kernel, [AT, INSIDE, BoundStorage("value", "x1", 1000)], "total needs it, too"),
        (shared, [ComputeAt("value", "out", "x0"), BoundStorage("value", "x1", 999)], "out needs 1000 points"),
        (
            shared,
            [Split("out", "x1", "o", "i", 16), ComputeAt("value", "out", "o"), BoundStorage("value", "x1", 8)],
            "out needs 16 points",
        ),
        (
            shared,
            [
                Fuse("out", "x1", "x0", "f"),
                Split("out", "f", "o", "i", 16),
                ComputeAt("value", "out", "o"),
                BoundStorage("value", "x1", 16),
            ],
            "out needs 16 points at a time, or more",
        ),
        (
            shared,
            [ComputeAt("value", "out", "x0"), StoreRoot("value"), BoundStorage("value", "x1", 1000)],
            "where it is computed",
        ),
        (stencil, [ComputeAt("value", "out", "x0"), BoundStorage("value", "x1", 1000)], "is not known"),
        (kernel, [AT, StoreIn("value", "GPUShared")], "may not use this memory"),
        (
            kernel,
            [AT, Split("out", "x1", "o", "i", 8), Vectorize("out", "i"), ComputeAt("value", "out", "i")],
            "vector",
        ),
        (kernel, [AT, In("value", "total", "out")], "name of a new Func"),
        (kernel, [AT, CloneIn("total", "out", "again")], "before other steps"),
        (kernel, [AT, Prefetch("out", "value", "x0", "x0", 2)], "is not stored"),
        (kernel, [AT, ComputeWith("value", "out", "x0")], "only outputs"),
        (checked, [ComputeRoot("failed"), ComputeWith("check", "out", "x0")], "only outputs"),
        (
            checked_old,
            [*map(ComputeRoot, ("check", "failed")), ComputeWith("check", "out", "x0")],
            "only outputs",
        ),
        (
            checked,
            [
                *map(ComputeRoot, ("check", "failed")),
                Split("out", "x0", "o", "i", 8),
                ComputeWith("check", "out", "o"),
            ],
            "differ",
        ),
        (kernel, [AT, GpuBlocks("out", ("x0",))], "this step is for a GPU"),
        (kernel, [AT, Bound("value", "x1", 0, 10)], "known to have the 1000 points"),
    ],
)
def test_a_trap_is_refused(graph: Callable[[], StageGraph], steps: list[Step], why: str) -> None:
    found = refusal(graph(), steps)
    assert found is not None and why in found.what


def test_the_last_steps_of_an_output_may_be_computed_twice() -> None:
    shifted = Split("out", "x1", "o", "i", 16, tail="ShiftInwards")
    steps = [AT, shifted, Vectorize("out", "i"), Reorder("out", ("i", "o", "x0")), Parallel("out", "x0")]
    assert refusal(kernel(), steps) is None
    # What is stored for a whole row does not move with the vectors of it.
    assert refusal(kernel(), [*steps[:-1], INSIDE, StoreRoot("value")]) is None


def test_room_for_what_a_vector_needs() -> None:
    cut = Split("out", "x1", "o", "i", 16)
    steps = [cut, Vectorize("out", "i"), ComputeAt("value", "out", "o"), BoundStorage("value", "x1", 16)]
    assert refusal(shared(), steps) is None
    # What else is computed there needs no more.
    graph = shared()
    other = Stage("other", Role.SHARED, LOOPS, ("value",))
    both = StageGraph((graph.stages[0], other, replace(graph.stages[1], calls=("value", "other"))), graph.outer)
    assert refusal(both, [*steps, ComputeAt("other", "out", "o")]) is None
    found = refusal(both, [*steps, ComputeAt("other", "out", "x0")])
    assert found is not None


def columns() -> StageGraph:
    """Two sums of the rows of each column, of which the second needs the first, and an output that needs both."""
    first = Stage("first", Role.REDUCTION, (COLUMNS,), updates=(Loop("r$x", 64, "x2"),), operator="sum")
    second = Stage("second", Role.REDUCTION, (COLUMNS,), ("first",), (Loop("q$x", 64, "x2"),), "sum")
    out = Stage("out", Role.OUTPUT, LOOPS, ("first", "second"))
    return StageGraph((first, second, out), ("x0", "x1"))


BLOCKS: tuple[Step, ...] = (
    Split("out", "x1", "o", "i", 16),
    Reorder("out", ("i", "x0", "o")),
    ComputeAt("first", "out", "o"),
    ComputeAt("second", "out", "o"),
    Split("second", "q$x", "q$x_o", "q$x_i", 8, update=0),
    RFactor("second", "q$x_o", "part", "parts"),
    ComputeAt("parts", "second", "q$x_o"),
)


@pytest.mark.parametrize(
    ("first", "second", "parts", "why"),
    [
        (16, 16, 16, ""),
        (16, 32, 32, ""),
        (8, 16, 16, "out needs 16 points"),
        (16, 8, 8, "out needs 16 points"),
        (16, 32, 16, "second has another room"),
        (16, 0, 16, "second has another room, or none"),
    ],
)
def test_room_for_the_accumulators_of_a_block(first: int, second: int, parts: int, why: str) -> None:
    rooms = (("first", first), ("second", second), ("parts", parts))
    steps = (*BLOCKS, *(BoundStorage(func, "x1", room) for func, room in rooms if room))
    found = refusal(columns(), steps)
    assert (found is None) if not why else (found is not None and why in found.what)


def test_room_for_what_outputs_of_other_loops_share() -> None:
    """One output has a loop less inside of the common ones (seed 1108451 of the random programs)."""
    first, _, out = columns().stages
    each = Stage("each", Role.OUTPUT, (COLUMNS,), ("first",))
    graph = StageGraph((first, each, replace(out, calls=("first",))), ("x1",))
    steps = (
        *BLOCKS[:3],
        Split("each", "x1", "o", "i", 16),
        ComputeWith("each", "out", "o"),
        BoundStorage("first", "x1", 16),
    )
    assert refusal(graph, steps) is None
    found = refusal(graph, (*steps[:-1], BoundStorage("first", "x1", 8)))
    assert found is not None and "needs 16 points" in found.what


def test_no_room_for_what_is_reduced_along_the_block() -> None:
    """A sum over all columns needs all of them, wherever it is computed."""
    first, second, out = columns().stages
    over = replace(second, loops=(ROWS,), updates=(Loop("q$x", 1000, "x1"),))
    steps = (*BLOCKS[:4], BoundStorage("first", "x1", 16))
    found = refusal(StageGraph((first, over, out), ("x0", "x1")), steps)
    assert found is not None and "second needs it, too" in found.what


def test_outputs_together_are_not_shifted() -> None:
    shifted = Split("first", "x1", "o", "i", 16, tail="ShiftInwards")
    steps = [ComputeAt("old", "first", "x0"), shifted, ComputeWith("second", "first", "x0")]
    found = refusal(pair(), steps)
    assert found is not None and "where its loops are short" in found.what


def test_turned_tiles_are_not_shifted() -> None:
    """A tile begins at a multiple of its side, and a vector that begins earlier needs two of them."""
    tile = (Loop("i", 8, "i"), Loop("j", 8, "j"), Loop("x1", 1, "x1"), Loop("x0", 1, "x0"))
    out = Stage("out", Role.OUTPUT, (Loop("x1", 255, "x1"), Loop("x0", 64, "x0")), ("staged",))
    graph = StageGraph((Stage("staged", Role.STAGED_LOAD, tile), out), ("x0", "x1"))
    for tail, legal in (("GuardWithIf", True), ("ShiftInwards", False)):
        found = refusal(
            graph,
            [
                Split("out", "x1", "x1_o", "x1_v", 8, tail=tail),
                Split("out", "x0", "x0_t", "x0_u", 8),
                Reorder("out", ("x1_v", "x0_u", "x0_t", "x1_o")),
                ComputeAt("staged", "out", "x0_t"),
                Bound("staged", "i", 0, 8),
                Bound("staged", "j", 0, 8),
                BoundExtent("staged", "x1", 1),
                BoundExtent("staged", "x0", 1),
            ],
        )
        assert (found is None) is legal, found
        assert legal or "they need other points" in str(found)


@pytest.mark.parametrize(("length", "factor", "legal"), [(8, 16, False), (24, 16, False), (8, 8, True), (63, 16, True)])
def test_turned_tiles_beyond_the_end_are_refused(length: int, factor: int, legal: bool) -> None:
    """Of 8 elements the second of two tiles is not there, and read without a guard; of 63 it is guarded."""
    tile = (Loop("i", 8, "i"), Loop("j", 8, "j"), Loop("x1", 1, "x1"), Loop("x0", 1, "x0"))
    staged = Stage("staged", Role.STAGED_LOAD, tile)
    out = Stage("out", Role.OUTPUT, (Loop("x1", 255, "x1"), Loop("x0", length, "x0")), ("staged",))
    steps: list[Step] = [
        Split("out", "x1", "x1_o", "x1_v", 8),
        Split("out", "x0", "x0_o", "x0_i", factor),
        Split("out", "x0_i", "x0_t", "x0_u", 8),
        Reorder("out", ("x1_v", "x0_u", "x0_t", "x1_o", "x0_o")),
        ComputeAt("staged", "out", "x0_t"),
        Bound("staged", "i", 0, 8),
        Bound("staged", "j", 0, 8),
        BoundExtent("staged", "x1", 1),
        BoundExtent("staged", "x0", 1),
    ]
    found = refusal(StageGraph((staged, out), ("x0", "x1")), steps)
    assert (found is None) is legal, found
    assert legal or f"along x0, which is {length} long" in str(found)


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("clamped", [(), ("x0",)])
def test_one_point_beyond_the_end_is_computed_only_of_loads_that_are_clamped(
    clamped: tuple[str, ...], fixed: bool
) -> None:
    """Of 60 rows in pieces of 16 the last four are not there."""
    value = Stage("value", Role.SHARED, LOOPS)
    out = Stage("out", Role.OUTPUT, (Loop("x1", 255, "x1"), Loop("x0", 60, "x0", fixed)), ("value",))
    steps: list[Step] = [
        Split("out", "x0", "x0_o", "x0_s", 16),
        Reorder("out", ("x1", "x0_s", "x0_o")),
        ComputeAt("value", "out", "x0_s"),
        BoundExtent("value", "x0", 1),
    ]
    found = refusal(StageGraph((value, out), ("x0",), clamped), steps)
    assert (found is None) is bool(clamped), found


@pytest.mark.parametrize(("factor", "legal"), [(16, False), (8, False), (4, True), (2, True)])
def test_a_window_has_no_guarded_steps(factor: int, legal: bool) -> None:
    """Four points of `value` are needed at a time; with a guard Halide left some out."""
    value = Stage("value", Role.SHARED, (COLUMNS,))
    out = Stage("out", Role.OUTPUT, LOOPS, ("value",))
    steps: list[Step] = [
        Split("out", "x1", "x1_o", "x1_i", 4),
        Reorder("out", ("x1_i", "x0", "x1_o")),
        Split("value", "x1", "x1", "x1_v", factor),
        Vectorize("value", "x1_v"),
        ComputeAt("value", "out", "x0"),
        StoreAt("value", "out", "x1_o"),
    ]
    found = refusal(StageGraph((value, out), ("x0", "x1")), steps)
    assert (found is None) is legal, found
    assert legal or "4 points are needed at a time" in str(found)
    assert refusal(StageGraph((value, out), ("x0", "x1")), steps[:-1]) is None


def test_a_computed_length_is_no_constant() -> None:
    graph = kernel(loops=(Loop("x1", 4, "x1", fixed=False), ROWS))
    found = refusal(graph, [AT, ComputeRoot("value"), Unroll("value", "x1")])
    assert found is not None and "no constant" in found.what


def test_a_loop_as_long_as_data_say_is_no_vector() -> None:
    graph = kernel(role=Role.SERIAL)
    assert refusal(graph, [AT, ComputeRoot("value")]) is None
    for steps in ([AT], [AT, ComputeAt("value", "out", "x0")], [AT, ComputeRoot("value"), Unroll("value", "x1")]):
        assert refusal(graph, steps) is not None


def test_a_snapshot_comes_first() -> None:
    graph = kernel(role=Role.SNAPSHOT)
    assert refusal(graph, [AT, ComputeRoot("value")]) is None
    assert refusal(graph, [AT]) is not None
    assert refusal(graph, [AT, ComputeAt("value", "out", "x0")]) is not None


def test_a_reduction_is_not_computed_for_every_element() -> None:
    long = replace(kernel().stages[0], loops=(Loop("x1", 100_000, "x1"), ROWS))
    total = replace(kernel().stages[1], updates=(Loop("r$x", 100_000, "x1"),))
    graph = StageGraph((long, total, replace(kernel().stages[2], loops=long.loops)), ("x0",))
    assert refusal(graph, [AT]) is None
    found = refusal(graph, [ComputeAt("total", "out", "x1")])
    assert found is not None and "would be computed 100000 times" in found.what


def test_outputs_together_have_the_same_loops() -> None:
    steps = [ComputeAt("old", "first", "x0"), ComputeWith("second", "first", "x0"), Parallel("first", "x0")]
    found = refusal(pair(), steps)
    assert found is not None and "differ" in found.what


def test_a_warp_that_reduces_is_legal() -> None:
    assert refusal(group(), GROUP_STEPS, TILING) is None


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (GpuBlocks("out", ("block",)), None, "outside of blocks has no memory"),
        (GpuThreads("out", ("t", "y")), GpuThreads("out", ("y",)), "exchange values as t (32)"),
        (Split("out", "x0", "block", "y", 4), Split("out", "x0", "block", "y", 64), "is larger than 1024"),
        (ComputeAt("whole", "out", "t"), ComputeAt("whole", "out", "u"), "once, side by side"),
        (ComputeAt("whole", "out", "t"), None, "computed anew for every use"),
        (ComputeAt("part", "out", "t"), ComputeAt("part", "out", "block"), "each thread computes its own"),
        (ComputeAt("load", "out", "t"), ComputeAt("load", "out", "block"), "each thread computes its own"),
        (Vectorize("load", "k"), None, "of adjacent elements"),
        (Bound("load", "u", 0, 8), Bound("load", "u", 0, 4), "known to have the 8 points"),
        (Bound("load", "u", 0, 8), BoundExtent("load", "u", 1), "one point of the axes"),
        (Bound("load", "u", 0, 8), StoreIn("load", "GPUShared"), "keep in one place"),
        (Bound("load", "u", 0, 8), ComputeRoot("load"), "for a CPU"),
        (Reorder("out", ("k", "u", "t", "x0")), Reorder("out", ("k", "t", "u", "x0")), "not blocks around threads"),
        (Bound("load", "u", 0, 8), RFactor("part", "r$y", "v", "more"), "for a CPU"),
    ],
)
def test_a_trap_of_a_gpu_is_refused(old: Step, new: Step | None, why: str) -> None:
    steps = [new if step == old else step for step in GROUP_STEPS]
    found = refusal(group(), [step for step in steps if step is not None], TILING)
    assert found is not None
    assert why in found.what or why in found.cure


def test_a_warp_of_which_some_lanes_are_missing_is_refused() -> None:
    tiling = replace(TILING, threads=8)
    stages = [
        replace(stage, loops=tuple(replace(loop, extent=8) if loop.name == "t" else loop for loop in stage.loops))
        for stage in group().stages
    ]
    graph = StageGraph(tuple(stages), ("x0",))
    assert refusal(graph, GROUP_STEPS, tiling) is None
    split = Split("out", "x0", "block", "y", 3)
    found = refusal(graph, [split if isinstance(step, Split) else step for step in GROUP_STEPS], tiling)
    assert found is not None and "only some threads" in found.what


def test_fused_loops_beside_another_output_are_refused_on_a_gpu() -> None:
    loops = (Loop("x1", 40, "x1"), Loop("x0", 64, "x0"))
    first, second = (Stage(name, Role.OUTPUT, loops) for name in ("first", "second"))
    tiling = Tiling(TilingKind.THREAD, outer=("x0", "x1"))

    def steps(name: str) -> list[Step]:
        return [
            Fuse(name, "x1", "x0", "i"),
            Split(name, "i", "block", "thread", 128),
            GpuThreads(name, ("thread",)),
            GpuBlocks(name, ("block",)),
        ]

    assert refusal(StageGraph((first,), ("x0", "x1")), steps("first"), tiling) is None
    both = StageGraph((first, second), ("x0", "x1"))
    together = [*steps("first"), *steps("second"), ComputeWith("second", "first", "thread")]
    found = refusal(both, together, tiling)
    assert found is not None and "loses the bounds" in found.what


def test_a_vector_of_a_gpu_is_four_words() -> None:
    out = Stage("out", Role.OUTPUT, (Loop("x1", 4, "x1"), ROWS))
    found = refusal(StageGraph((out,), ("x0",)), [Vectorize("out", "x1")], Tiling(TilingKind.THREAD, outer=("x0",)))
    assert found is not None and "adjacent words" in found.what


def test_what_has_no_blocks_would_run_on_the_processor() -> None:
    out = Stage("out", Role.OUTPUT, LOOPS)
    found = refusal(StageGraph((out,), ("x0", "x1")), [], Tiling(TilingKind.THREAD, outer=("x0", "x1")))
    assert found is not None and "the processor would compute it" in found.what


def test_a_step_that_legality_does_not_know_is_refused() -> None:
    class Unheard(Step):
        pass

    try:
        with pytest.raises(IllegalPlan, match="nothing is known of what this step may do"):
            check(kernel(), [Unheard("out")])
    finally:
        del Step.kinds["Unheard"]


TILE = StageGraph(
    (
        Stage("a", Role.SHARED_TILE, (Loop("x1", 4096, "x1"), Loop("x0", 4096, "x0"))),
        Stage("out", Role.OUTPUT, (Loop("x1", 4096, "x1"), Loop("x0", 4096, "x0")), calls=("a",)),
    ),
    ("x0", "x1"),
)


@pytest.mark.parametrize("order", [("x1",), ("x0", "x1", "x1"), ("x0", "y"), ()])
def test_storage_is_reordered_by_all_dimensions(order: tuple[str, ...]) -> None:
    stored: list[Step] = [ComputeRoot("value"), ComputeRoot("total")]
    assert refusal(kernel(), [*stored, ReorderStorage("value", ("x0", "x1"))]) is None
    for func in ("value", "out"):
        found = refusal(kernel(), [*stored, ReorderStorage(func, order if func == "value" else ("x0", "x1"))])
        assert found is not None and "not all dimensions of the Func" in found.what


def tile_steps(lines: int) -> list[Step]:
    """A tile of 32 x `lines` elements in shared memory, of 32 x 8 threads."""
    return [
        Split("out", "x1", "along", "i", 32),
        Split("out", "x0", "down", "part", lines),
        Split("out", "part", "line", "y", 8),
        Reorder("out", ("line", "i", "y", "along", "down")),
        GpuThreads("out", ("i", "y")),
        GpuBlocks("out", ("along", "down")),
        ComputeAt("a", "out", "along"),
        StoreIn("a", "GPUShared"),
        AlignStorage("a", "x1", 33),
        Split("a", "x1", "part", "y", 8),
        Split("a", "x0", "half", "i", 32),
        Reorder("a", ("half", "part", "i", "y")),
        GpuThreads("a", ("i", "y")),
    ]


@pytest.mark.parametrize(("lines", "stored"), [(32, 4224), (256, 33792), (512, 67584)])
def test_a_tile_fits_into_shared_memory(lines: int, stored: int) -> None:
    tiling = Tiling(TilingKind.SHARED_TRANSPOSE, ("x0", "x1"), ("x0", "x1"), side=32, lines=lines)
    found = refusal(TILE, tile_steps(lines), tiling)
    if stored <= 48 << 10:
        assert found is None
    else:
        assert found is not None and f"{stored} bytes of a" in found.what
        assert found.where == "step 6, ComputeAt('a', 'out', 'along')"


@pytest.mark.parametrize("columns", [4, 8, 16])
def test_a_fused_loop_needs_the_points_of_each_axis(columns: int) -> None:
    """Threads of one dimension for `columns` x 32 elements of a tile of 8 x 32."""
    tiling = Tiling(TilingKind.SHARED_TRANSPOSE, ("x0", "x1"), ("x0", "x1"), side=8, lines=32)
    steps: list[Step] = [
        Split("out", "x1", "along", "i", columns),
        Split("out", "x0", "down", "y", 32),
        Reorder("out", ("i", "y", "along", "down")),
        Fuse("out", "i", "y", "thread"),
        GpuThreads("out", ("thread",)),
        GpuBlocks("out", ("along", "down")),
        ComputeAt("a", "out", "along"),
        BoundExtent("a", "x1", 8),
        BoundExtent("a", "x0", 32),
        StoreIn("a", "GPUShared"),
        Fuse("a", "x0", "x1", "thread"),
        GpuThreads("a", ("thread",)),
    ]
    found = refusal(TILE, steps, tiling)
    if columns == 8:
        assert found is None
    else:
        assert found is not None and f"{columns} points are needed where it is computed" in found.what
