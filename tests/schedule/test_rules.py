"""What the rules make of typical stages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from halide_backend.schedule.cpu.choose import cpu_steps
from halide_backend.schedule.cpu.kernel import CpuKernel
from halide_backend.schedule.device import Cpu
from halide_backend.schedule.knobs import Choices
from halide_backend.schedule.legality.check import check
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.mapping.transposition import Transposition
from halide_backend.schedule.stage import Loop, Role, Stage, StageGraph
from halide_backend.schedule.steps import (
    AlignStorage,
    Atomic,
    BoundStorage,
    ComputeAt,
    ComputeRoot,
    NeverPartition,
    Parallel,
    Reorder,
    ReorderStorage,
    RFactor,
    Split,
    Step,
    StoreAt,
    Unroll,
    Vectorize,
)


def loops(*extents: tuple[str, int]) -> tuple[Loop, ...]:
    return tuple(Loop(name, extent, name.split("$")[-1].replace("x_", "x")) for name, extent in extents)


def steps_of(graph: StageGraph, vector_bytes: int) -> tuple[Step, ...]:
    return cpu_steps(graph, Mapping(), Cpu(vector_bytes), Choices())


def reduction(contiguous: str) -> StageGraph:
    """Sums of 64 rows of 1000, memory running along `contiguous`."""
    over = Loop("r_0$x", 1000, "x1")
    operand = Stage("operand", Role.INLINE, loops(("x1", 1000), ("x0", 64)), contiguous={contiguous: 256_000})
    total = Stage("total", Role.REDUCTION, loops(("x0", 64)), calls=("operand",), updates=(over,), operator="sum")
    output = Stage("out", Role.OUTPUT, loops(("x0", 64)), calls=("total",), contiguous={"x0": 256})
    return StageGraph((operand, total, output), ("x0",))


def test_a_row_sum_runs_in_lanes_inside_its_row() -> None:
    schedule = steps_of(reduction("x1"), 64)
    assert any(isinstance(s, RFactor) and s.func == "total" for s in schedule)
    assert ComputeAt("total", "out", "x0_r") in schedule
    assert Parallel("out", "x0_t") in schedule


def test_a_column_sum_is_vectorized_along_its_columns() -> None:
    schedule = steps_of(reduction("x0"), 64)
    assert Vectorize("total", "x0_v", update=0) in schedule
    lanes = [s for s in schedule if isinstance(s, RFactor) and s.var == "lane"]
    assert not lanes


def channels(count: int, *, outer: tuple[str, ...]) -> StageGraph:
    """Sums of 1000 adjacent elements for `count` channels of each of 64 groups."""
    over = Loop("r_0$x", 1000, "x2")
    both = (("x1", count), ("x0", 64))
    operand = Stage("operand", Role.INLINE, loops(("x2", 1000), *both), contiguous={"x2": 4000 * 64 * count})
    total = Stage("total", Role.REDUCTION, loops(*both), calls=("operand",), updates=(over,), operator="sum")
    output = Stage("out", Role.OUTPUT, loops(*both), calls=("total",), contiguous={"x1": 256 * count})
    return StageGraph((operand, total, output), outer)


def test_lanes_of_several_results_lie_side_by_side() -> None:
    """They lay `count` elements apart: a vector was stored element by element."""
    schedule = steps_of(channels(4, outer=("x0",)), 64)
    orders = {step.func: step.order for step in schedule if isinstance(step, ReorderStorage)}
    added = {step.into for step in schedule if isinstance(step, RFactor)}
    assert len(added) >= 3 and set(orders) == added
    assert all(order[0].startswith("lane") and {"x0", "x1"} < set(order) for order in orders.values())


def test_lanes_of_one_result_need_no_order() -> None:
    assert not [s for s in steps_of(channels(4, outer=("x0", "x1")), 64) if isinstance(s, ReorderStorage)]


def columns_of(rows: int, columns: int) -> StageGraph:
    """The largest of each column of 64 matrices."""
    over = Loop("r_0$x", rows, "x2")
    both = (("x1", columns), ("x0", 64))
    size = 256 * rows * columns
    operand = Stage("operand", Role.INLINE, loops(both[0], ("x2", rows), both[1]), contiguous={"x1": size})
    total = Stage("total", Role.REDUCTION, loops(*both), calls=("operand",), updates=(over,), operator="max")
    output = Stage("out", Role.OUTPUT, loops(*both), calls=("total",), contiguous={"x1": 256 * columns})
    return StageGraph((operand, total, output), ("x0", "x1"))


@pytest.mark.parametrize(("rows", "columns", "block"), [(24, 1024, 64), (24, 1021, 64), (1000, 1024, 1024)])
def test_accumulators_of_columns_stay_in_registers(rows: int, columns: int, block: int) -> None:
    """Four vectors of them inside the loop over rows; a block has no more where all of its rows fit into L1."""
    schedule = steps_of(columns_of(rows, columns), 64)
    assert Split("total", "x1_o", "x1_o", "x1_u", 4, update=0) in schedule
    assert Unroll("total", "x1_u", update=0) in schedule
    assert Reorder("total", ("x1_v", "x1_u", "r_0$x", "x1_o", "x0"), update=0) in schedule
    tail = "ShiftInwards" if columns % block else Split.tail
    assert Split("out", "x1", "x1_b", "x1_i", block, tail=tail) in schedule
    assert (AlignStorage("total", "x1", 16) in schedule) is (columns % 16 > 0)


@pytest.mark.parametrize(("columns", "vectors"), [(70, 5), (96, 6), (100, 7), (144, 3), (160, 4), (1021, 4)])
def test_blocks_have_few_vectors_too_many(columns: int, vectors: int) -> None:
    """Seven vectors are one block, nine are three blocks of three, not of four."""
    schedule = steps_of(columns_of(24, columns), 64)
    assert [s.factor for s in schedule if isinstance(s, Split) and s.inner == "x1_i"] == [16 * vectors]


@pytest.mark.parametrize(("elements", "work", "along"), [(64, 1, "x2"), (8, 1, "x1"), (24, 1, "x2"), (24, 22, "x1")])
def test_vectors_along_what_is_read_again(elements: int, work: int, along: str) -> None:
    """Sums of rows of one matrix and those of another one: the result is larger than both, but is stored once."""
    over = Loop("r_0$x", elements, "x2")
    both = (("x1", 130), ("x0", 128))
    size = {"x2": 4 * 128 * elements + 4 * 130 * elements}
    operand = Stage("operand", Role.INLINE, loops(("x2", elements), *both), contiguous=size, across={"x1": 4, "x0": 4})
    total = Stage("total", Role.REDUCTION, loops(*both), calls=("operand",), updates=(over,), operator="sum")
    stored = {"x1": 4 * 130 * 128 + 1}
    output = Stage("out", Role.OUTPUT, loops(*both), calls=("total",), contiguous=stored, across={"x0": 4}, work=work)
    graph = StageGraph((operand, total, output), ("x0", "x1"))
    assert CpuKernel(graph, Cpu(64), Choices()).contiguous == along


@pytest.mark.parametrize("partition", [True, False])
def test_the_end_of_a_row_is_apart_as_requested(partition: bool) -> None:
    output = Stage("out", Role.OUTPUT, loops(("x1", 1000), ("x0", 64)), contiguous={"x1": 4000})
    graph = StageGraph((output,), ("x0",))
    schedule = cpu_steps(graph, Mapping(), Cpu(64), Choices({"rows.partition": partition}))
    assert (NeverPartition("out", "x1_o") in schedule) is not partition
    assert partition is True or schedule != steps_of(graph, 64)


def test_little_work_stays_serial() -> None:
    small = Stage("out", Role.OUTPUT, loops(("x0", 64)), contiguous={"x0": 256})
    schedule = steps_of(StageGraph((small,), ("x0",)), 64)
    assert not any(isinstance(s, Parallel) for s in schedule)
    assert any(isinstance(s, Vectorize) for s in schedule)


def test_the_register_decides_the_width() -> None:
    output = Stage("out", Role.OUTPUT, loops(("x0", 4096)), contiguous={"x0": 16_384})
    graph = StageGraph((output,), ("x0",))
    for vector_bytes, lanes in ((64, 16), (32, 8), (16, 4)):
        splits = [s for s in steps_of(graph, vector_bytes) if isinstance(s, Split) and s.inner.endswith("_v")]
        assert [s.factor for s in splits] == [lanes]


def rows_of(extent: int, work: int) -> StageGraph:
    """Sums of 4096 rows of `extent` elements, which `work` operations make, memory running along the rows."""
    over = Loop("r_0$x", extent, "x1")
    size = 4096 * extent * 4
    operand = Stage(
        "operand", Role.INLINE, loops(("x1", extent), ("x0", 4096)), work=work, contiguous={"x1": size}, traffic=size
    )
    total = Stage("total", Role.REDUCTION, loops(("x0", 4096)), calls=("operand",), updates=(over,), operator="sum")
    output = Stage("out", Role.OUTPUT, loops(("x0", 4096)), calls=("total",), contiguous={"x0": 16_384})
    return StageGraph((operand, total, output), ("x0",))


@pytest.mark.parametrize(
    ("extent", "work", "vector_bytes", "side_by_side"),
    [(10, 40, 64, True), (10, 2, 64, False), (16, 40, 64, False), (7, 40, 32, True), (10, 40, 32, False)],
)
def test_vectors_run_across_rows_that_are_short_and_much_is_computed_for(
    extent: int, work: int, vector_bytes: int, side_by_side: bool
) -> None:
    schedule = steps_of(rows_of(extent, work), vector_bytes)
    assert not side_by_side or Vectorize("total", "x0_v", update=0) in schedule
    assert any(isinstance(s, RFactor) for s in schedule) is not side_by_side


@pytest.mark.parametrize(
    ("extent", "vector_bytes", "operator", "together"),
    [
        (64, 64, "sum", True),
        (37, 64, "sum", True),
        (64, 32, "sum", False),  # a tree of 8 lanes has as few instructions
        (65, 64, "sum", False),  # few steps of four rows are a page
        (15, 64, "sum", False),  # a row is no vector
        (32, 64, "max", False),  # one instruction makes a value of a vector
    ],
)
def test_the_last_lanes_of_short_rows_are_added_up_together(
    extent: int, vector_bytes: int, operator: str, together: bool
) -> None:
    graph = rows_of(extent, 2)
    stages = tuple(replace(stage, operator=operator) if stage.name == "total" else stage for stage in graph.stages)
    schedule = steps_of(StageGraph(stages, ("x0",)), vector_bytes)
    assert (Split("total", "x0", "x0_o", "x0_v", 4, update=0) in schedule) is together
    last = max((step.into for step in schedule if isinstance(step, RFactor)), default="")
    assert (ComputeAt(last, "total", "x0_o") in schedule) is together
    check(StageGraph(stages, ("x0",)), schedule)


@pytest.mark.parametrize(("work", "lanes"), [(2, 32), (3, 16)])
def test_what_is_copied_fills_whole_registers(work: int, lanes: int) -> None:
    output = Stage("out", Role.OUTPUT, loops(("x0", 4096)), bits=16, work=work, contiguous={"x0": 16_384})
    steps = steps_of(StageGraph((output,), ("x0",)), 64)
    assert [s.factor for s in steps if isinstance(s, Split) and s.inner.endswith("_v")] == [lanes]


@pytest.mark.parametrize(
    ("rows", "columns", "factors"),
    [
        (8, 255, (8, 8)),
        (48, 255, (16, 8)),
        (512, 255, (16, 8)),
        (255, 8, (8, 8)),
        (8, 8, (8, 8)),
        (24, 8, (8, 8)),
        (48, 8, (16, 8)),
    ],
)
def test_an_axis_of_whole_tiles_is_one_of_whole_steps(rows: int, columns: int, factors: tuple[int, int]) -> None:
    """Its tiles are read without a guard: one that lies beyond its end would read what is not there (a find of the
    guard pages)."""
    tile = (Loop("i", 8, "i"), Loop("j", 8, "j"), Loop("x1", 1, "x1"), Loop("x0", 1, "x0"))
    staged = Stage("staged", Role.STAGED_LOAD, tile)
    out = Stage("out", Role.OUTPUT, loops(("x1", columns), ("x0", rows)), calls=("staged",))
    mapping = Mapping(transposition=Transposition("x1", "x0", 8))
    steps = cpu_steps(StageGraph((staged, out), ("x0", "x1")), mapping, Cpu(64), Choices())
    found = {s.old: s.factor for s in steps if isinstance(s, Split) and s.outer.endswith("_o")}
    assert (found["x0"], found["x1"]) == factors


@pytest.mark.parametrize(
    ("extents", "fixed", "order"),
    [
        # Of a loop that threads share, each iteration has a serial one.
        ({"x1": 255, "x0": 255}, True, ("x1_o", "x0_t", "x0_o")),
        ({"x1": 256, "x0": 256}, False, ("x1_o", "x0_t", "x0_o")),
        ({"x2": 255, "x1": 64, "x0": 255}, True, ("x2_o", "x1", "x0_t", "x0_o")),
        ({"x2": 255, "x1": 255, "x0": 64}, True, ("x2_o", "x1_o", "x0")),
        # Rows of a few tiles are shorter than those across.
        ({"x2": 24, "x1": 255, "x0": 64}, True, ("x1_o", "x2_o", "x0")),
        ({"x2": 32, "x1": 31, "x0": 64}, True, ("x2_o", "x1_o", "x0")),
        ({"x2": 40, "x1": 255, "x0": 64}, True, ("x2_o", "x1_o", "x0")),
        ({"x1": 16, "x0": 255}, False, ("x0_t", "x1_o", "x0_o")),
        # A single tile across.
        ({"x1": 255, "x0": 5}, True, ("x1_o", "x0_o")),
        ({"x2": 16, "x1": 255, "x0": 64}, False, ("x1_o", "x2_o", "x0")),
        # No row of tiles across has a tail: two tiles are a line of the operand.
        ({"x1": 255, "x0": 256}, True, ("x0_t", "x1_o", "x0_o")),
    ],
)
def test_guarded_tiles_lie_in_a_serial_loop(extents: dict[str, int], fixed: bool, order: tuple[str, ...]) -> None:
    tile = (Loop("i", 8, "i"), Loop("j", 8, "j"), *(Loop(axis, 1, axis) for axis in extents))
    axes = tuple(Loop(axis, extent, axis, fixed=fixed) for axis, extent in extents.items())
    out = Stage("out", Role.OUTPUT, axes, calls=("staged",), work=9)
    graph = StageGraph((Stage("staged", Role.STAGED_LOAD, tile), out), tuple(reversed(extents)))
    column = max(extents)
    across = next(name[:2] for name in order if name.endswith("_o") and name[:2] != column)
    steps = cpu_steps(graph, Mapping(transposition=Transposition(column, across, 8)), Cpu(64), Choices())
    (found,) = [step.order[2:] for step in steps if isinstance(step, Reorder)]
    assert found == order


@pytest.mark.parametrize(("extent", "fixed", "tiles"), [(255, True, 4), (48, True, 2), (24, True, 3), (256, False, 4)])
def test_norms_whose_results_are_turned_have_vectors_of_accumulators(extent: int, fixed: bool, tiles: int) -> None:
    """As many columns as their registers hold; the loop around both is not copied, since LLVM then keeps the second
    copy's tiles in memory."""
    across, over = Loop("x1", extent, "x1", fixed=fixed), Loop("r_0$x", 100, "x2")
    tile = (Loop("i", 8, "i"), Loop("j", 8, "j"), Loop("x2", 1, "x2"), Loop("x1", 1, "x1"))
    total = Stage("total", Role.REDUCTION, (across,), updates=(over,), operator="sum", bits=64)
    value = Stage("value", Role.INLINE, (Loop("x2", 100, "x2"), across), calls=("total",))
    staged = Stage("staged", Role.STAGED_LOAD, tile, calls=("value",), bits=64)
    out = Stage("out", Role.OUTPUT, (Loop("x2", 100, "x2"), across), calls=("staged",), bits=64)
    graph = StageGraph((total, value, staged, out), ("x1",))
    mapping = Mapping(transposition=Transposition("x2", "x1", 8, results=True))
    steps = cpu_steps(graph, mapping, Cpu(64), Choices())
    check(graph, steps)
    assert ComputeAt("total", "out", "x1_o") in steps and NeverPartition("out", "x1_o") in steps
    assert [s.factor for s in steps if isinstance(s, Split) and (s.func, s.outer) == ("out", "x1_o")] == [8 * tiles]
    assert (BoundStorage("total", "x1", 8 * tiles) in steps) is not fixed


def test_tiles_of_one_line_of_the_operand_follow_each_other() -> None:
    """Where no edge is guarded. Along the output one tile at a time is written: the operand's rows may share few places
    of a cache."""
    tile = (Loop("i", 8, "i"), Loop("j", 8, "j"), Loop("x1", 1, "x1"), Loop("x0", 1, "x0"))
    out = Stage("out", Role.OUTPUT, loops(("x1", 64), ("x0", 64)), calls=("staged",))
    graph = StageGraph((Stage("staged", Role.STAGED_LOAD, tile), out), ("x0", "x1"))
    steps = cpu_steps(graph, Mapping(transposition=Transposition("x1", "x0", 8)), Cpu(64), Choices())
    found = {s.old: s.factor for s in steps if isinstance(s, Split) and s.outer.endswith("_o")}
    assert (found["x0"], found["x1"]) == (16, 8)


@pytest.mark.parametrize(("apart", "tiles"), [(4096, 2), (16384, 2), (2048, 1), (4352, 1), (0, 2)])
def test_with_few_registers_a_line_is_read_in_parts_unless_it_shares_its_place(apart: int, tiles: int) -> None:
    """Lines that lie pages apart have gone from the cache before the tiles of their second half are turned."""
    tile = (Loop("i", 8, "i"), Loop("j", 8, "j"), Loop("x1", 1, "x1"), Loop("x0", 1, "x0"))
    out = Stage("out", Role.OUTPUT, loops(("x1", 2048), ("x0", 64)), calls=("staged",))
    mapping = Mapping(transposition=Transposition("x1", "x0", 8, apart=apart))
    graph = StageGraph((Stage("staged", Role.STAGED_LOAD, tile), out), ("x0", "x1"))
    steps = cpu_steps(graph, mapping, Cpu(32), Choices())
    assert [s.factor for s in steps if isinstance(s, Split) and s.outer == "x0_o"] == [8 * tiles]
    assert not any(isinstance(s, Split) and s.inner == "x1_p" for s in steps)


@pytest.mark.parametrize(
    ("stride", "vendor", "tiles"),
    [(1024, "amd", 1), (512, "amd", 1), (256, "amd", 2), (1008, "amd", 2), (32, "amd", 2), (1024, "intel", 2)],
)
def test_rows_that_share_places_of_a_cache_are_written_few_at_a_time(stride: int, vendor: str, tiles: int) -> None:
    """16 of 4 KB or 2 KB each; Intel's processors read pairs of lines, which then are worth more."""
    tile = (Loop("i", 16, "i"), Loop("j", 16, "j"), Loop("x1", 1, "x1"), Loop("x0", 1, "x0"))
    staged = Stage("staged", Role.STAGED_LOAD, tile)
    out = Stage("out", Role.OUTPUT, loops(("x1", stride), ("x0", 64)), calls=("staged",))
    mapping = Mapping(transposition=Transposition("x1", "x0", 16))
    steps = cpu_steps(StageGraph((staged, out), ("x0", "x1")), mapping, Cpu(64, vendor=vendor), Choices())
    assert [s.factor for s in steps if isinstance(s, Split) and s.outer == "x0_o"] == [16 * tiles]


@pytest.mark.parametrize(
    ("taps", "cases", "loops_left"), [(3, True, ["x1"]), (3, False, []), (48, True, []), (1, True, [])]
)
def test_loops_over_the_taps_of_a_filter_have_no_cases(taps: int, cases: bool, loops_left: list[str]) -> None:
    """Halide tells the cases of one loop apart, the outermost that has any: of three taps two reach beyond a picture,
    of 48 rows two."""
    axes = loops(("x3", 48), ("x2", 48), ("x1", taps), ("x0", 64))
    output = Stage("out", Role.OUTPUT, axes, contiguous={"x3": 4096}, work=9, cases=cases)
    steps = steps_of(StageGraph((output,), ("x0", "x1", "x2", "x3")), 64)
    assert [step.var for step in steps if isinstance(step, NeverPartition)] == loops_left


def heads(columns: int, work: int = 1, *, fixed: bool = True) -> StageGraph:
    """4 heads x `columns` of 1024 tokens, put side by side: rows of the output are 4 short rows."""
    axes = (Loop("x2", columns, "x2", fixed=fixed), Loop("x1", 4, "x1"), Loop("x0", 1024, "x0"))
    output = Stage("out", Role.OUTPUT, axes, contiguous={"x2": 4096 * columns}, work=work)
    return StageGraph((output,), ("x0", "x1", "x2"))


def unrolled(graph: StageGraph) -> list[str]:
    return [step.var for step in steps_of(graph, 64) if isinstance(step, Unroll)]


def with_strides(graph: StageGraph) -> StageGraph:
    """The same with loads that lie apart: lanes of a masked vector are loaded one by one, behind branches."""
    return replace(graph, stages=tuple(replace(stage, across={"x2": 4}) for stage in graph.stages))


@pytest.mark.parametrize("columns", [64, 61])
def test_few_short_rows_have_no_loop(columns: int) -> None:
    assert unrolled(heads(columns)) == ["x2_i_u", "x1_u"]


@pytest.mark.parametrize(
    ("graph", "left"),
    [
        (heads(128), ["x2_i_u"]),  # 8 vectors x 4 rows
        (heads(64, work=60), ["x2_i_u"]),  # too many operations in 16 vectors
        (heads(64, work=100), []),
        (heads(1024), []),
        (heads(100), ["x2_i_u"]),  # with a tail 7 vectors x 4 rows
        (with_strides(heads(100)), []),
        (with_strides(heads(64)), ["x2_i_u", "x1_u"]),
        (heads(64, fixed=False), []),
    ],
)
def test_others_have_loops(graph: StageGraph, left: list[str]) -> None:
    assert unrolled(graph) == left


@pytest.mark.parametrize("extent", [1_000, 1_000_000, 1_000_000_000])
def test_loops_of_computed_length_have_a_legal_plan_whatever_is_typical(extent: int) -> None:
    """Legality takes them for short; a piece of a thousandth of a long one would be padding to it."""
    long, three = Loop("x0", extent, "x0", fixed=False), Loop("x1", 3, "x1")
    copy = Stage("out", Role.OUTPUT, (long,), contiguous={"x0": 4 * extent})
    rows = Loop("r_0$x", extent, "x0", fixed=False)
    operand = Stage("operand", Role.INLINE, (three, long), contiguous={"x1": 12 * extent})
    total = Stage("total", Role.REDUCTION, (three,), calls=("operand",), updates=(rows,), operator="sum")
    sums = Stage("out", Role.OUTPUT, (three,), calls=("total",), contiguous={"x1": 12})
    for graph in (StageGraph((copy,), ("x0",)), StageGraph((operand, total, sums), ("x1",))):
        check(graph, steps_of(graph, 64))


@pytest.mark.parametrize(("fixed", "block"), [(True, 1000), (False, 16)])
def test_vectors_of_a_row_of_computed_length_are_blocks(fixed: bool, block: int) -> None:
    """Each vector of the last block has a guard."""
    row, rows = Loop("x1", 1000, "x1", fixed=fixed), Loop("x0", 64, "x0")
    copy = Stage("out", Role.OUTPUT, (row, rows), contiguous={"x1": 256_000}, traffic=256_000, work=4)
    steps = steps_of(StageGraph((copy,), ("x0", "x1")), 64)
    assert Split("out", "x1", "x1_b", "x1_i", -(-block // 16) * 16) in steps


@pytest.mark.parametrize(("extent", "width"), [(4, 4), (5, 8), (30, 16)])
def test_a_short_row_of_computed_length_has_short_vectors(extent: int, width: int) -> None:
    """Of the four channels of a group, 28 of 32 lanes were missing, each behind a branch: loads had a stride."""
    row, rows = Loop("x1", extent, "x1", fixed=False), Loop("x0", 640, "x0")
    copy = Stage("out", Role.OUTPUT, (row, rows), contiguous={"x1": 2560 * extent}, traffic=2560 * extent, work=4)
    steps = steps_of(StageGraph((copy,), ("x0", "x1")), 64)
    (block,) = [step.factor for step in steps if isinstance(step, Split) and step.outer == "x1_b"]
    assert block == width


@pytest.mark.parametrize(
    ("changes", "extent", "shifted"),
    [
        ({}, 100, False),  # dense, and quick
        ({"work": 40}, 1000, True),
        ({"traffic": 300_000}, 1000, True),
        ({"cases": True}, 1000, True),
        ({"work": 40}, 15, False),  # mostly shorter than a vector
        ({"work": 40, "overwrites": True}, 1000, False),
        ({"work": 40, "replaces": True}, 1000, False),
    ],
)
def test_the_last_vector_of_a_computed_length_is_shifted(changes: dict[str, Any], extent: int, shifted: bool) -> None:
    """Where lanes beyond its end would be loaded one by one, and nothing is lost by computing the others twice."""
    loops = (Loop("x1", extent, "x1", fixed=False), Loop("x0", 64, "x0"))
    stage = replace(Stage("out", Role.OUTPUT, loops, contiguous={"x1": 256_000}, traffic=256_000, work=4), **changes)
    steps = steps_of(StageGraph((stage,), ("x0", "x1")), 64)
    (tail,) = [step.tail for step in steps if isinstance(step, Split) and step.old == "x1"]
    assert (tail == "ShiftInwards") is shifted
    other = replace(stage, name="other")
    steps = steps_of(StageGraph((stage, other), ("x0", "x1")), 64)
    assert "ShiftInwards" not in [step.tail for step in steps if isinstance(step, Split)]


@pytest.mark.parametrize("fixed", [True, False])
def test_what_a_vector_shares_is_on_the_stack(fixed: bool) -> None:
    """At the end of a loop of computed length less of it is needed: without a fixed size each vector was allocated,
    here of two registers for a long formula."""
    row, rows = Loop("x1", 1000, "x1", fixed=fixed), Loop("x0", 64, "x0")
    value = Stage("value", Role.SHARED, (row, rows), contiguous={"x1": 256_000}, work=40)
    out = Stage("out", Role.OUTPUT, (row, rows), calls=("value",), contiguous={"x1": 256_000}, work=4)
    steps = steps_of(StageGraph((value, out), ("x0", "x1")), 64)
    assert (BoundStorage("value", "x1", 32) in steps) is not fixed


def maximum(elements: int, *, fixed: bool) -> tuple[Step, ...]:
    """Steps of maxima of 64 rows."""
    over = Loop("r_0$x", elements, "x1", fixed=fixed)
    operand = Stage("operand", Role.INLINE, (replace(over, name="x1"), Loop("x0", 64, "x0")), contiguous={"x1": 10**6})
    most = Stage("most", Role.REDUCTION, loops(("x0", 64)), calls=("operand",), updates=(over,), operator="max")
    output = Stage("out", Role.OUTPUT, loops(("x0", 64)), calls=("most",), contiguous={"x0": 256})
    return steps_of(StageGraph((operand, most, output), ("x0",)), 64)


def test_lanes_of_a_computed_length_are_combined_in_vectors() -> None:
    """Behind its end no lane may count: an instruction for all of them is then a loop over those before it."""
    assert any(isinstance(step, Atomic) for step in maximum(100, fixed=True))
    steps = maximum(100, fixed=False)
    assert not any(isinstance(step, Atomic) for step in steps)
    assert [step.into for step in steps if isinstance(step, RFactor)] == ["most_lanes", "most_tree1"]


@pytest.mark.parametrize(("fixed", "size"), [(True, 16_384), (False, 12_544)])
def test_pieces_of_a_computed_length_are_alike(fixed: bool, size: int) -> None:
    """A piece runs all of its steps: of four pieces of 16,384 for 50,000 elements a quarter would be for nothing."""
    (cut,) = [s for s in maximum(50_000, fixed=fixed) if isinstance(s, Split) and s.outer == "r_0$x_c"]
    assert cut.factor == size
    assert 3 * size < 50_000 <= 4 * size


@pytest.mark.parametrize("fixed", [True, False])
def test_rows_of_computed_length_have_one_allocation_in_a_task(fixed: bool) -> None:
    row, rows = Loop("x1", 100, "x1", fixed=fixed), Loop("x0", 1024, "x0")
    shared = Stage("shared", Role.SHARED, (row, rows), contiguous={"x1": 409_600}, work=20)
    over = replace(row, name="r_0$x")
    total = Stage("total", Role.REDUCTION, (rows,), calls=("shared",), updates=(over,), operator="sum")
    output = Stage("out", Role.OUTPUT, (row, rows), calls=("shared", "total"), contiguous={"x1": 409_600})
    graph = StageGraph((shared, total, output), ("x0",))
    steps = steps_of(graph, 64)
    check(graph, steps)
    assert ComputeAt("shared", "out", "x0_r") in steps
    assert (StoreAt("shared", "out", "x0_t") in steps) is not fixed


def test_what_rows_have_in_common_is_computed_before_them() -> None:
    """Of a normalization with channels last, the reciprocal of a standard deviation."""
    columns, both = loops(("x1", 512)), loops(("x1", 512), ("x0", 64))
    deviation = Stage("deviation", Role.SHARED, columns, contiguous={"x1": 2048}, work=20)
    output = Stage("out", Role.OUTPUT, both, calls=("deviation",), contiguous={"x1": 131_072}, work=3)
    steps = steps_of(StageGraph((deviation, output), ("x0", "x1")), 64)
    assert ComputeRoot("deviation") in steps
    assert Vectorize("deviation", "x1_v") in steps


def test_what_that_needs_is_computed_before_them_as_well() -> None:
    """Found by random programs (seed 1103609)."""
    factor = Stage("factor", Role.SHARED, (), work=20)
    deviation = Stage("deviation", Role.SHARED, loops(("x1", 512)), calls=("factor",), contiguous={"x1": 2048}, work=20)
    both = loops(("x1", 512), ("x0", 64))
    output = Stage("out", Role.OUTPUT, both, calls=("deviation", "factor"), contiguous={"x1": 131_072}, work=3)
    graph = StageGraph((factor, deviation, output), ("x0", "x1"))
    steps = steps_of(graph, 64)
    check(graph, steps)
    assert ComputeRoot("deviation") in steps


@pytest.mark.parametrize(("role", "once"), [(Role.INLINE, True), (Role.PRESERVED, False)])
def test_what_needs_old_values_is_computed_beside_what_overwrites_them(role: Role, once: bool) -> None:
    columns, both = loops(("x1", 512)), loops(("x1", 512), ("x0", 64))
    old = Stage("old", role, columns, contiguous={"x1": 2048})
    deviation = Stage("deviation", Role.SHARED, columns, calls=("old",), contiguous={"x1": 2048}, work=20)
    output = Stage("out", Role.OUTPUT, both, calls=("deviation",), contiguous={"x1": 131_072}, work=3)
    graph = StageGraph((old, deviation, output), ("x0", "x1"))
    steps = steps_of(graph, 64)
    check(graph, steps)
    assert (ComputeRoot("deviation") in steps) is once


def test_old_values_of_rows_of_computed_length_are_stored_where_they_are_computed() -> None:
    """Found by random programs (seed 1103423)."""
    axes = (Loop("x1", 100, "x1", fixed=False), Loop("x0", 1024, "x0"))
    old = Stage("old", Role.PRESERVED, axes, contiguous={"x1": 409_600})
    over = replace(axes[0], name="r_0$x")
    total = Stage("total", Role.REDUCTION, axes[1:], calls=("old",), updates=(over,), operator="sum")
    output = Stage("out", Role.OUTPUT, axes, calls=("old", "total"), contiguous={"x1": 409_600}, work=20)
    graph = StageGraph((old, total, output), ("x0",))
    check(graph, steps_of(graph, 64))


def short_row_unrolls(extent: int, work: int, vector_bytes: int) -> list[str]:
    graph = rows_of(extent, work)
    schedule = steps_of(graph, vector_bytes)
    check(graph, schedule)
    return [step.var for step in schedule if isinstance(step, Unroll) and step.var == "r_0$x_o"]


@pytest.mark.parametrize(
    ("extent", "vector_bytes", "count"),
    [(100, 64, 1), (37, 64, 1), (100, 32, 0), (60, 32, 1), (300, 64, 0)],
    ids=["7 of 32 registers", "3 of 32", "13 of 16", "8 of 16", "19 of 32"],
)
def test_a_row_that_half_the_registers_hold_is_added_up_without_a_loop(
    extent: int, vector_bytes: int, count: int
) -> None:
    assert len(short_row_unrolls(extent, 1, vector_bytes)) == count


def test_a_row_of_much_work_has_a_loop() -> None:
    assert not short_row_unrolls(100, 30, 64)


@pytest.mark.parametrize(("rows", "grain"), [(1024, 4), (1023, 3), (1026, 3), (1021, 3)])
def test_a_task_has_rows_that_divide_their_number_if_a_few_more_do(rows: int, grain: int) -> None:
    output = Stage("out", Role.OUTPUT, loops(("x1", 128), ("x0", rows)), work=40, contiguous={"x1": 512})
    schedule = steps_of(StageGraph((output,), ("x0",)), 64)
    assert [s.factor for s in schedule if isinstance(s, Split) and s.outer == "x0_t"] == [grain]


def test_a_long_formula_of_shared_values_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value is used by the next two, so that there are Fibonacci's numbers of ways to the output."""
    names = [f"v{number}" for number in range(64)]
    shared = [
        Stage(name, Role.SHARED, loops(("x0", 4096)), calls=tuple(names[max(0, number - 2) : number]))
        for number, name in enumerate(names)
    ]
    output = Stage("out", Role.OUTPUT, loops(("x0", 4096)), calls=tuple(names[-2:]), contiguous={"x0": 16_384})
    asked, consumers = [], StageGraph.consumers

    def counted(graph: StageGraph, name: str) -> tuple[Stage, ...]:
        asked.append(name)
        assert len(asked) < len(names) ** 3
        return consumers(graph, name)

    monkeypatch.setattr(StageGraph, "consumers", counted)
    schedule = steps_of(StageGraph((*shared, output), ("x0",)), 64)
    assert asked and {step.func for step in schedule if isinstance(step, ComputeAt)} == set(names)


@pytest.mark.parametrize(("work", "unrolled"), [(10, True), (100, False)])
def test_rows_are_unrolled_with_what_is_inlined_into_them_in_mind(work: int, unrolled: bool) -> None:
    inlined = Stage("inlined", Role.INLINE, loops(("x2", 16), ("x1", 16), ("x0", 512)), work=work)
    output = Stage("out", Role.OUTPUT, inlined.loops, calls=("inlined",), contiguous={"x2": 64})
    schedule = steps_of(StageGraph((inlined, output), ("x0", "x1", "x2")), 64)
    assert (Unroll("out", "x1_u") in schedule) is unrolled


@pytest.mark.parametrize(
    ("rows", "work", "across"),
    [
        (64, 40, True),
        (64, 5, False),  # a mean of each row: what is computed is little
        (60, 40, True),  # the last vector of rows begins earlier
        (12, 40, False),
    ],
)
def test_what_short_rows_are_reduced_to_goes_on_in_vectors(rows: int, work: int, across: bool) -> None:
    operand, total, output = (
        replace(stage, loops=stage.loops[:-1] + loops(("x0", rows))) for stage in reduction("x1").stages
    )
    schedule = steps_of(StageGraph((operand, total, replace(output, work=work)), ("x0",)), 64)
    assert (Vectorize("out", "x0_v") in schedule) is across
    inside = {step.consumer for step in schedule if isinstance(step, ComputeAt) and step.func.startswith("total_lanes")}
    assert inside == {"total" if across else "out"}


def test_long_rows_are_reduced_one_by_one() -> None:
    stages = [
        replace(
            stage,
            loops=tuple(replace(loop, extent=5000) if loop.axis == "x1" else loop for loop in stage.loops),
            updates=tuple(replace(loop, extent=5000) for loop in stage.updates),
            work=40,
        )
        for stage in reduction("x1").stages
    ]
    assert Vectorize("out", "x0_v") not in steps_of(StageGraph(tuple(stages), ("x0",)), 64)


@pytest.mark.parametrize(
    ("facts", "extent", "vector_bytes", "lanes"),
    [
        ({"work": 40}, 4096, 64, 32),
        ({"work": 20}, 4096, 64, 16),
        ({"work": 40, "gathers": True}, 4096, 64, 16),
        ({"work": 40, "cases": True}, 4096, 64, 16),
        ({"work": 40}, 128, 64, 16),  # half of the vectors of a short row would be empty
        ({"work": 40}, 4096, 32, 8),  # 16 registers hold one vector of each value
    ],
)
def test_long_formulas_are_computed_for_two_registers(
    facts: dict[str, Any], extent: int, vector_bytes: int, lanes: int
) -> None:
    output = Stage("out", Role.OUTPUT, loops(("x0", extent)), contiguous={"x0": 4 * extent}, **facts)
    schedule = steps_of(StageGraph((output,), ("x0",)), vector_bytes)
    assert [step.factor for step in schedule if isinstance(step, Split) and step.inner == "x0_i_v"] == [lanes]


@pytest.mark.parametrize(
    ("work", "along", "across"),
    [
        (24, False, True),
        (12, False, False),
        (24, True, False),  # each element would be stored by itself
        (45, True, True),
    ],
)
def test_vectors_run_across_short_rows_that_are_worth_it(work: int, along: bool, across: bool) -> None:
    row, rows = loops(("x1", 10), ("x0", 4096))
    operand = Stage("operand", Role.INLINE, (row, rows), work=work, contiguous={"x1": 163_840})
    total = Stage(
        "total", Role.REDUCTION, (rows,), calls=("operand",), updates=(Loop("r_0$x", 10, "x1"),), operator="sum", work=0
    )
    output = Stage("out", Role.OUTPUT, (row, rows) if along else (rows,), calls=("total",), work=0)
    schedule = steps_of(StageGraph((operand, total, output), ("x0",)), 64)
    assert any(isinstance(step, Vectorize) and step.var.startswith("x0") for step in schedule) is across


def test_a_shared_value_of_a_tile_is_computed_for_this_tile() -> None:
    """Vectors of a whole register would be computed for tiles of half of one."""
    tile = (Loop("i", 8, "i"), Loop("j", 8, "j"), Loop("x1", 1, "x1"), Loop("x0", 1, "x0"))
    staged = Stage("staged", Role.STAGED_LOAD, tile)
    value = Stage("value", Role.SHARED, loops(("x1", 64), ("x0", 64)), calls=("staged",))
    outputs = (Stage(name, Role.OUTPUT, loops(("x1", 64), ("x0", 64)), calls=("value",)) for name in ("one", "two"))
    graph = StageGraph((staged, value, *outputs), ("x0", "x1"))
    steps = cpu_steps(graph, Mapping(transposition=Transposition("x1", "x0", 8)), Cpu(64), Choices())
    assert [s.factor for s in steps if isinstance(s, Split) and s.func == "value"] == [8]


def test_a_value_that_is_stored_lies_in_memory_as_its_vectors_do() -> None:
    value = Stage("value", Role.SHARED, loops(("x1", 300), ("x0", 64)), contiguous={"x0": 76_800})
    over = Loop("r_0$x", 300, "x1")
    total = Stage("total", Role.REDUCTION, loops(("x0", 64)), calls=("value",), updates=(over,), operator="sum")
    product = Stage("product", Role.OUTPUT, loops(("x0", 64), ("x1", 300)), calls=("value", "total"))
    graph = StageGraph((value, total, product), ("x0",))
    steps = steps_of(graph, 64)
    check(graph, steps)
    assert ReorderStorage("value", ("x0", "x1")) in steps


@pytest.mark.parametrize(("row", "gathered", "width"), [(8, True, 8), (8, False, 16), (2, True, 16)])
def test_rows_of_some_elements_that_are_gathered_are_vectors(row: int, gathered: bool, width: int) -> None:
    """One load takes a whole row, which vectors across rows would take element by element."""
    place = Stage("place", Role.SHARED, loops(("x0", 640)))
    out = Stage(
        "out",
        Role.OUTPUT,
        loops(("x1", row), ("x0", 640)),
        calls=("place",),
        contiguous={"x1": 9000},
        gathered=("x1",) if gathered else (),
    )
    steps = steps_of(StageGraph((place, out), ("x0", "x1")), 64)
    (axis,) = [s.var[:2] for s in steps if isinstance(s, Vectorize) and s.func == "out"]
    assert axis == ("x1" if width == row else "x0")
    assert width in [s.factor for s in steps if isinstance(s, Split) and s.func == "out"]
