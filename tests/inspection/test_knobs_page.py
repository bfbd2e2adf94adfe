"""The page of knobs has every knob that a rule declares, and says what may be set."""

from __future__ import annotations

import re
from pathlib import Path

from halide_backend.inspection import knobs_page

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "schedule-knobs.md"
SCHEDULE = ROOT / "halide_backend" / "schedule"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == knobs_page.page(), "run `make reference`"


def test_every_declaration_is_on_the_page_with_its_file() -> None:
    declared = {
        (name, str(path.relative_to(SCHEDULE)))
        for path in SCHEDULE.glob("*/*.py")
        for name in re.findall(r"^[A-Z_]+ = Knob\(\s*\"([\w.]+)\"", path.read_text(), re.MULTILINE)
    }
    assert set(re.findall(r"^\| `([\w.]+)` \|.*\| ([\w/.]+) \|$", PAGE.read_text(), re.MULTILINE)) == declared
    assert len(declared) > 50


def test_values_are_written_as_in_a_schedule_file() -> None:
    page = PAGE.read_text()
    assert "| `parallel.threads` | `false`, `true` |" in page
    assert '| `block_lines.residence` | `"shared memory"`, `"cache"` |' in page
