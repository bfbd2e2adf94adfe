"""The page of promises names tests that exist, and its table is written as it says."""

from __future__ import annotations

import re
from pathlib import Path

import figures
import pytest
from crew import HERE, ROOT

PAGE = ROOT / "docs" / "design" / "kernels-cache.md"


def test_every_test_named_in_the_page_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text(encoding="utf-8")))
    there = {
        name
        for path in HERE.glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    }
    assert len(named) > 20
    assert named <= there


def test_rows_are_replaced_added_and_kept_in_order(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- figures: begin -->\n<!-- figures: end -->\nafter\n")
    figures.write(page, {"K10": ("ten", "1 of 1"), "K2.b": ("two", "2")})
    figures.write(page, {"K2.a": ("two", "3"), "K10": ("ten", "2 of 2")})
    text = page.read_text()
    rows = [line for line in text.splitlines() if line.startswith("| K")]
    assert rows == ["| K2.a | two | 3 |", "| K2.b | two | 2 |", "| K10 | ten | 2 of 2 |"]
    assert text.startswith("before\n") and text.endswith("-->\nafter\n")


def test_a_page_without_a_place_for_figures(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no markers")
    with pytest.raises(SystemExit, match="no place for figures"):
        figures.write(page, {"K1": ("one", "1")})
