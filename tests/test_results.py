"""Every measurement that is kept is explained: benchmarks/results and its two pages name the same files."""

from __future__ import annotations

import gzip
import json
import math
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks" / "results"
PAGES = ("README.md", "history.md")

#: The file that its withdrawal left out, which the history still names.
WITHDRAWN = {"h200-2026-11-22-models.json"}

#: How names of results end.
DATED = re.compile(r"\d{4}-\d\d-\d\d[\w-]*\.(jsonl?(\.gz)?|svg)$")


def test_every_file_is_named_and_every_named_file_is_there() -> None:
    """In full, in the column "file" or anywhere else; names of commands' outputs have no date or are not results."""
    files = {path.name for path in FOLDER.iterdir()} - set(PAGES)
    text = "\n".join((FOLDER / page).read_text() for page in PAGES)
    named = set(re.findall(r"`([\w.-]+)`", text))
    assert files
    assert not files - named, "no page of benchmarks/results names these files"
    dated = {name for name in named if DATED.search(name)}
    assert not dated - files - WITHDRAWN, "pages of benchmarks/results name these files, which are not there"


def test_files_that_other_pages_name_are_there() -> None:
    """In full, so that a search finds them: no page names a file by its end alone."""
    files = {path.name for path in FOLDER.iterdir()}
    for page in (FOLDER.parents[1] / "docs").rglob("*.md"):
        names = re.findall(r"`(?:benchmarks/results/)?([\w.-]*\.jsonl?(?:\.gz)?)`", page.read_text())
        missing = [name for name in names if (name.startswith("-") or DATED.search(name)) and name not in files]
        assert not missing, page


def test_rows_of_the_history_have_numbers_of_their_own() -> None:
    """Other rows and pages refer to them by number."""
    rows = re.findall(r"^\| (\d+) \|", (FOLDER / "history.md").read_text(), re.MULTILINE)
    assert len(rows) == len(set(rows)) > 0


STANDING = [line for line in (FOLDER / "README.md").read_text().splitlines() if re.search(r"\d+ shown: ", line)]

#: What a line says of either half: cases, geometric mean, share of ratios at least so high, lowest ratio.
HALVES = {
    "results": r"(\d+) shown: ([\d.]+)(?:, ([\d.]+) %(?: at least (0\.9\d))?)?, lowest (\d\.\d+)",
    "held_back_results": r"(\d+) held back: ([\d.]+)(?:, ([\d.]+) %(?: at least (0\.9\d))?)?, (?:lowest )?(\d\.\d+)",
}


def of_bench(line: str) -> list[dict[str, Any]]:
    """The files of `halide-backend bench` that a line names."""
    found = []
    for name in re.findall(r"`([\w.-]+\.json(?:\.gz)?)`", line):
        data = (FOLDER / name).read_bytes()
        found.append(json.loads(gzip.decompress(data) if name.endswith(".gz") else data))
    return [file for file in found if "held_back_results" in file]


def ratios(files: list[dict[str, Any]], half: str, *, median: bool) -> list[float]:
    """The ratio of each case: in the first file that has it, or the median of all."""
    cases: dict[str, list[float]] = {}
    for file in files:
        for case in file[half]:
            if case["samples"]:
                other, ours = (
                    statistics.median(case["samples"][who]) for who in (file["against"][0], "halide_backend")
                )
                cases.setdefault(case["name"], []).append(other / ours)
    return [statistics.median(each) if median else each[0] for each in cases.values()]


@pytest.mark.parametrize("line", STANDING, ids=lambda line: line.split("|")[1].strip()[:50])
def test_where_the_project_stands_is_what_the_files_say(line: str) -> None:
    files = of_bench(line)
    assert files
    level = re.search(r"at least (0\.9\d)", line)
    for half, pattern in HALVES.items():
        said = re.search(pattern, line)
        assert said, half
        found = ratios(files, half, median="medians of the" in line)
        cases, mean, share, _, lowest = said.groups()
        assert int(cases) == len(found)
        assert float(mean) == pytest.approx(math.exp(statistics.fmean(map(math.log, found))), abs=6e-4)
        assert float(lowest) == pytest.approx(min(found), abs=6e-4)
        if share:
            at_least = float(level.group(1)) if level else 0.97
            assert float(share) == pytest.approx(100 * sum(each >= at_least for each in found) / len(found), abs=0.06)
