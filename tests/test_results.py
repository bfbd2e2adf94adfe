"""Every measurement that is kept is explained: benchmarks/results and its two pages name the same files."""

from __future__ import annotations

import re
from pathlib import Path

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
