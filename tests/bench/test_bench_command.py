"""The command line of the benchmark, on a few small cases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from halide_backend.bench.case import SIZES
from halide_backend.cli import main
from halide_backend.inspection.machine import cxx_compiler

NAME = "halide_backend"
needs_cpp = pytest.mark.skipif(not cxx_compiler(), reason="needs a C++ compiler")
ONLY = ("--only", "add_relu_", "--dtypes", "float32", "--threads", "1")


@pytest.fixture(autouse=True)
def few_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "cpu", {"small": (8, 6), "medium": (7, 5)})


@needs_cpp
def test_every_sample_is_kept_and_every_callable_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, plot = tmp_path / "bench.json", tmp_path / "bench.svg"
    assert main(["bench", *ONLY, "--against", "cpp", "eager", "--json", str(file), "--plot", str(plot)]) == 0
    document = json.loads(file.read_text())
    results = document["results"] + document["held_back_results"]
    assert sorted(result["name"] for result in results) == [
        f"add_relu_{vector}{size}_float32" for vector in ("", "vector_") for size in ("7x5", "8x6")
    ]
    assert [each["backend"] for each in document["controls"]] == [NAME, "cpp"]
    assert all(each["slowed"] > 3 for each in document["controls"])
    for result in results:
        assert result["held_back"] == (result in document["held_back_results"])
        assert result["right"]
        counts = {name: len(samples) for name, samples in result["samples"].items()}
        assert counts.keys() == {NAME, "cpp", "eager"}
        assert min(counts.values()) == max(counts.values()) >= 9
        assert result["kernels"] == {NAME: {NAME: 1}, "cpp": {"cpp": 1}, "eager": {}}
        assert result["ran"] == {NAME: {NAME: 1}, "cpp": {}, "eager": {}}
        assert result["roofline_s"] > 0
        assert result["bytes_moved"] in (3 * 4 * 48, 3 * 4 * 35)
    figures = document["figures"]
    assert figures.keys() == {"cpp", "eager", "the fastest of them"}
    assert figures["cpp"]["all"]["cases"] == figures["cpp"]["pointwise"]["cases"] == len(document["results"])
    assert document["roofline"]["fma_gflop_s"] > 1
    assert plot.read_text().lstrip().startswith("<?xml")
    told = capsys.readouterr().out
    assert "control: cpp against itself" in told
    for result in results:
        (line,) = (line for line in told.splitlines() if line.startswith(result["name"] + " "))
        assert ("held back" in line, "cpp " in line) == (result["held_back"], not result["held_back"])


def test_interpolations_of_dynamic_sizes_are_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--only", "upsample", "bilinear", "bicubic", "--sizes", "small", "--dtypes", "float32"]
    assert main(["bench", *chosen, "--dynamic", "--no-timing"]) == 0
    lines = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith(("upsample", "bilinear", "bicubic"))
    ]
    assert len(lines) >= 7
    assert all("right native 1" in line or "right native 2" in line for line in lines)


def test_held_back_figures_are_shown_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *ONLY, "--sizes", "small", "--held-back"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("add_relu")]
    assert len(lines) == 2
    assert all("eager " in line and "roofline" in line for line in lines)


@needs_cpp
def test_dynamic_sizes_and_a_limited_target_hold_for_both(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    chosen = [*ONLY, "--sizes", "medium", "--dynamic", "--target", "avx2", "--against", "cpp", "itself"]
    assert main(["bench", *chosen, "--json", str(file)]) == 0
    document = json.loads(file.read_text())
    assert "x86-64-v3" in document["machine"]["target"]
    for result in document["results"] + document["held_back_results"]:
        assert result["kernels"] == {NAME: {NAME: 1}, "cpp": {"cpp": 1}, "itself": {NAME: 1}}


def test_without_timing_only_this_backend_compiles(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *ONLY, "--no-timing", "--against", "cpp"]) == 0
    told = capsys.readouterr().out
    assert "control" not in told
    assert "4 of 4 right" in told


def test_the_list_names_cases_and_what_is_held_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *ONLY, "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["group", "case"]
    assert lines[2].split()[:2] == ["pointwise", "add_relu_8x6_float32"]
    held_back = sum(line.endswith("  held back") for line in lines)
    assert lines[-1] == f"4 cases of 2 kernels, {held_back} held back"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--against", "triton"], "no triton backend for cpu"),
        (["--target", "avx2"], "eager and GPUs run what they have"),
        (["--only", "nothing like that"], "no case is selected"),
        (["--recorded", "missing.json"], "no kernels can be read"),
    ],
)
def test_what_cannot_be_run_is_refused(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *options]) == 1
    assert message in capsys.readouterr().err
