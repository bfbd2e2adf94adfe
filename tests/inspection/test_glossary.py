"""The glossary defines what the design pages say, and says where it is in the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DESIGN = ROOT / "docs" / "design"
GLOSSARY = (ROOT / "docs" / "reference" / "glossary.md").read_text()
ENTRIES = dict(re.findall(r"^### (.+)\n((?:(?!#).*\n?)*)", GLOSSARY, re.MULTILINE))

#: What docs/design/system.md calls things that are this project's own, or Inductor's or Halide's in a sense of their
#: own, read off that page by hand.
NOUNS = {
    *("scheduler node", "loop body", "program", "value", "axis", "nest", "store", "outer axes", "check", "structure"),
    *("Func", "stage", "algorithm", "schedule", "mapping", "step", "rule", "choice", "plan", "legality", "tiling"),
    *("device", "target", "word", "kernel", "pipeline", "kernel text", "kernel library", "artifact", "key", "launch"),
    *("launcher", "wrapper", "server", "worker", "template", "delegated", "refusal", "record", "journal"),
}

#: What the page itself defines, and nothing else uses.
EXPLAINED_THERE = {"control socket", "conversation", "lifeline"}


def terms(heading: str) -> list[str]:
    return re.split(r", | and ", heading)


def spoken(term: str, text: str) -> bool:
    """Whether a text has the term, in singular or plural."""
    pattern = r"[\s_]+".join(map(re.escape, term.split()))
    plural = f"{pattern}(?:e?s)?"
    for singular, ending in (("y", "ies"), ("is", "es")):
        if term.endswith(singular):
            plural = pattern.removesuffix(singular) + ending
    return bool(re.search(rf"\b(?:{pattern}|{plural})\b", text, re.IGNORECASE))


def test_there_are_about_forty_entries() -> None:
    assert 25 <= len(ENTRIES) <= 40


@pytest.mark.parametrize("heading", ENTRIES)
def test_an_entry_is_short_and_leads_on(heading: str) -> None:
    entry = ENTRIES[heading]
    assert re.search(r"\]\(\.\./design/[\w-]+\.md\)", entry), "no page explains it"
    prose = re.sub(r"`[^`]*`|\([^()]*\)|\bSee \[.*", "", " ".join(entry.split()))
    assert len(re.findall(r"\.(?:\s|$)", prose)) <= 4
    paths = re.findall(r"`((?:halide_backend|kernels_cache)/[\w/]+\.py)`", entry)
    assert paths
    assert [path for path in paths if not (ROOT / path).is_file()] == []
    for name, path in re.findall(r"`([A-Z]\w+)`[^`.]* in `([\w/]+\.py)`", entry):
        assert re.search(rf"^class {name}\b", (ROOT / path).read_text(), re.MULTILINE), f"no {name} in {path}"


@pytest.mark.parametrize("heading", ENTRIES)
def test_the_design_pages_use_what_is_defined(heading: str) -> None:
    pages = "\n".join(page.read_text() for page in DESIGN.glob("*.md"))
    assert [term for term in terms(heading) if not spoken(term, pages)] == []


def test_every_noun_of_the_system_is_defined() -> None:
    page = (DESIGN / "system.md").read_text()
    assert {noun for noun in NOUNS if not spoken(noun, page)} == set()
    defined = {term.lower() for heading in ENTRIES for term in terms(heading)}
    defined |= {term.lower() for term in re.findall(r"(?<!\*)\*([\w ]+)\*(?!\*)", GLOSSARY)}
    assert {noun for noun in NOUNS if noun.lower() not in defined} == set()
    emphasised = {term.lower() for term in re.findall(r"[Tt]he (?:worker's )?\*([\w ]+)\*", page)}
    assert emphasised == EXPLAINED_THERE


def test_plurals_are_found() -> None:
    assert spoken("loop body", "two Loop\nbodies")
    assert spoken("axis", "one axis")
    assert spoken("axis", "outer axes")
    assert not spoken("row", "arrow")
    assert not spoken("key", "keyboard")
