"""Links of the pages in Markdown lead somewhere, and the files that the pages name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])

#: Pages that tell what was, and so may name what is no longer there.
HISTORIES = {"CHANGELOG.md", "history.md"}


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links, as GitHub makes it."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    """To a file or folder of the repository and, behind #, to a heading of it."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if link.startswith(("http://", "https://")):
            continue
        name, _, heading = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (heading and heading not in anchors(target)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name not in HISTORIES],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    """Sources and results in backquotes, by a path from the root; histories tell what was."""
    folders = "halide_backend|kernels_cache|tests|benchmarks|docs|packaging"
    named = re.findall(rf"`((?:{folders})/[\w./-]+\.(?:py|c|cpp|sh|md|json|gz|svg))`", page.read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []
