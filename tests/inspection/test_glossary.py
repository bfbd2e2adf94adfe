"""The glossary defines what the design pages say, and says where it is in the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DESIGN = ROOT / "docs" / "design"
GLOSSARY = (ROOT / "docs" / "reference" / "glossary.md").read_text()
ENTRIES = dict(re.findall(r"^### (.+)\n((?:(?!#).*\n?)*)", GLOSSARY, re.MULTILINE))

#: What has an article, a possessive or "of" before it is taken for a noun, and so are adjectives there.
NOUN = re.compile(
    r"\b(?:an?|the|each|every|its|their|one|no|this|these|all|other|of|whose|two|three|several|own|both|\w+'s)\s+"
    r"([a-z]{3,})"
)

#: Nouns and adjectives of docs/design/system.md that need no entry: English, and the words of every programmer and of
#: torch, Inductor and Halide in their usual sense. A word that is new on the page goes here or into the glossary.
ORDINARY = """
    answer aotinductor attention backend both buffers cache caller child class clock code compile compiler configured
    convolutions cores cost cpu cuda data design divisions each edited element end equal error example exception few
    file first folder for fork forms function generated gil gpu graph handler index inductor its kill kind last layer
    layers limit lower machine memory message messages more name next numbers object older one operation
    operators opinfo option order other others own package path place points process python questions random
    reasons registers result same separate signal small standard subclass sums takes tensors terms test tests this time
    timer tools tuned tuner user warning what whole work
"""

#: What the page itself defines, and nothing else uses.
EXPLAINED_THERE = {"client", "control socket", "conversation", "lifeline"}


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
    pages = "\n".join(page.read_text() for page in DESIGN.rglob("*.md"))
    assert [term for term in terms(heading) if not spoken(term, pages)] == []


def nouns(page: str) -> set[str]:
    """The words of a page's prose that stand where nouns do, code and addresses left out."""
    prose = re.sub(r"```.*?```|`[^`]*`|\]\([^()]*\)", " code ", page, flags=re.DOTALL)
    return set(NOUN.findall(prose.lower()))


def test_every_noun_of_the_system_is_defined() -> None:
    page = (DESIGN / "system.md").read_text()
    defined = {term for heading in ENTRIES for term in terms(heading)}
    defined |= set(re.findall(r"(?<!\*)\*([\w ]+)\*(?!\*)", GLOSSARY + page))
    words = " ".join(defined)
    unknown = {noun for noun in nouns(page) if noun not in ORDINARY.split() and not any_form_of(noun, words)}
    assert unknown == set(), "define them in the glossary, or call them ordinary"
    emphasised = {term.lower() for term in re.findall(r"[Tt]he (?:worker's )?\*([\w ]+)\*", page)}
    assert emphasised == EXPLAINED_THERE


def any_form_of(noun: str, text: str) -> bool:
    return any(spoken(word, noun) for word in text.lower().split())


def test_an_undefined_noun_is_found() -> None:
    found = nouns("The frobnicator of `code` has *two* gears, [and a wheel](page.md).")
    assert found == {"frobnicator", "code", "wheel"}
    assert any_form_of("axes", "contiguous axis")
    assert not any_form_of("frobnicator", "contiguous axis")


def test_plurals_are_found() -> None:
    assert spoken("loop body", "two Loop\nbodies")
    assert spoken("axis", "one axis")
    assert spoken("axis", "outer axes")
    assert not spoken("row", "arrow")
    assert not spoken("key", "keyboard")
