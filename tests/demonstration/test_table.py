from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from halide_backend.demonstration import table
from halide_backend.demonstration.figures import (
    BackendFigures,
    Check,
    DemoFigures,
    RowFigures,
    Start,
    Times,
)

STATS: dict[str, object] = {
    "native_kernels": 12,
    "delegated_kernels": 1,
    "kernels_compiled": 12,
    "median_compile_seconds": 0.0614,
    "delegation_reasons": {"split-scan": 1},
}
CHECKS = (Check("logits", 1e-6, True), Check("loss", 2.5e-6, True))
ROW = RowFigures(
    "gpt",
    "a model",
    {
        "eager": BackendFigures(run=Times(30.0, 29.0, 32.0, 9)),
        "halide_backend": BackendFigures(
            Start(1.25, STATS),
            Start(0.5, {**STATS, "kernels_compiled": 0}),
            Times(15.0, 14.0, 15.0, 9),
            CHECKS,
        ),
        "cpp": BackendFigures(Start(9.0, {}), Start(0.75, {}), Times(22.5, 22.5, 22.5, 9), CHECKS),
    },
)
FIGURES = DemoFigures({"machine": "two cores"}, (ROW,), 60.0)


def rendered(*rows: RowFigures, processes: dict[str, object] | None = None) -> str:
    return table.render(replace(FIGURES, rows=rows, processes=processes or {}))


def with_ours(**changes: object) -> RowFigures:
    ours = replace(ROW.backends["halide_backend"], **changes)  # type: ignore[arg-type]
    return replace(ROW, backends={**ROW.backends, "halide_backend": ours})


def test_a_row_of_the_table() -> None:
    lines = rendered(ROW).splitlines()
    (row,) = [line for line in lines if line.startswith("gpt  ")]
    assert " ".join(row.split()) == ("gpt yes 2.5e-06 12/1 1.2 9.0 61 0.5 0.8 30.0 ±5% 22.5 ±0% 15.0 ±3% 2.00 1.50")
    assert lines[1] == "machine: two cores"
    assert "gpt: a model" in lines
    assert "gpt: delegated 1x: split-scan" in lines
    assert max(map(len, lines)) <= 140


def test_the_optimizer_is_told_apart() -> None:
    own = with_ours(cold=Start(25.0, STATS, 14.75))
    both = replace(own, backends={**own.backends, "cpp": BackendFigures(Start(49.0, {}, 19.0))})
    text = rendered(both)
    assert (
        "gpt: cold compilation of model + optimizer: halide_backend 25.0 = 10.2 + 14.8, cpp 49.0 = 30.0 + 19.0" in text
    )
    assert "optimizer" not in rendered(ROW)


def test_columns_stand_under_their_headings() -> None:
    lines = rendered(ROW).splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("model"))
    heading, row = lines[first], lines[first + 2]
    for title, value in (("error", "2.5e-06"), ("delegated", "12/1")):
        assert heading.index(title) + len(title) == row.index(value) + len(value)


def test_the_readme_has_the_table_that_is_printed() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    pasted = readme.partition("ratios are of medians")[0].rpartition("\n\n  ")[2].splitlines()
    printed = rendered(ROW).partition("gpt  ")[0].splitlines()[-4:]
    assert [line.split() for line in pasted[:3]] == [line.split() for line in printed[:3]]
    assert set(pasted[3]) == set(printed[3]) == {"─"}
    assert all(len(row) == len(pasted[3]) for row in pasted[4:8]) and pasted[8] == ""


def test_without_a_compiler_its_columns_are_empty() -> None:
    ours_only = {name: ROW.backends[name] for name in ("eager", "halide_backend")}
    (row,) = [line for line in rendered(replace(ROW, backends=ours_only)).splitlines() if line.startswith("gpt  ")]
    assert " ".join(row.split()) == ("gpt yes 2.5e-06 12/1 1.2 - 61 0.5 - 30.0 ±5% - 15.0 ±3% 2.00 -")


def test_a_wrong_value_is_named() -> None:
    row = with_ours(checks=(Check("logits", 0.5, False), Check("loss", 0.0, True)))
    text = rendered(row)
    assert not row.passed("halide_backend")
    (line,) = [line for line in text.splitlines() if line.startswith("gpt  ")]
    assert line.split()[:3] == ["gpt", "NO", "5.0e-01"]
    assert "gpt: halide_backend differs from eager in logits: 5.0e-01" in text
    assert "in loss" not in text


def test_nothing_compared_is_not_passed() -> None:
    assert not with_ours(checks=()).passed("halide_backend")
    assert not replace(ROW, backends={}).passed("halide_backend")


def test_a_process_that_failed_spoils_its_row_and_is_named() -> None:
    row = replace(ROW, failures=("second process failed, killed by SIGSEGV",))
    assert not row.passed("halide_backend")
    assert "gpt: second process failed, killed by SIGSEGV" in rendered(row)


def test_kernels_compiled_by_the_second_process_are_named() -> None:
    text = rendered(with_ours(second=Start(0.5, STATS)))
    assert "gpt: the second process compiled 12 kernels again" in text
    assert "again" not in rendered(ROW)


def test_every_other_program_is_listed() -> None:
    counted = {"workers": 3, "sessions": 6, "others": {"g++ x.cpp": 2}}
    text = rendered(ROW, processes=counted)
    assert "processes started: 3 compile workers, 6 of the demo itself, 2 others" in text
    assert "  2x g++ x.cpp" in text
