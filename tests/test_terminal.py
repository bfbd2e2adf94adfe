"""Tables and progress are readable on a terminal, and plain text everywhere else."""

from __future__ import annotations

import io
import re
import time

import pytest

from halide_backend.terminal import Progress, table

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def colours_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")


def test_a_table_is_aligned_as_it_says() -> None:
    rows = [("float32", "7", "[red]a[/red] :smile:"), ("int8", "1234", "b")]
    assert table(("dtype", "ops\nrun", "notes"), rows, "lrl").splitlines() == [
        "          ops",
        "dtype     run  notes",
        "───────────────────────────────────",
        "float32     7  [red]a[/red] :smile:",
        "int8     1234  b",
    ]


def test_a_table_is_as_wide_as_its_longest_cell() -> None:
    cell = "a reason of many words " * 20
    lines = table(("reason", "n"), [(cell, "1")], "lr").splitlines()
    assert len(lines) == 3 and lines[2] == f"{cell}  1"


def test_progress_in_a_file_is_lines_of_plain_text() -> None:
    stream = io.StringIO()
    with Progress(4, stream, finished=1, heartbeat=0.2) as progress:
        progress.done()
        time.sleep(0.1)
        progress.doing("first [b]")
        progress.done("first [b]: " + "x" * 200)
        progress.doing("second")
        deadline = time.monotonic() + 10
        while "second; " not in stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        progress.done()
    lines = stream.getvalue().splitlines()
    said = len(lines)
    assert f"[3/4] first [b]: {'x' * 200}" in lines
    assert re.fullmatch(r"\[3/4\] second; \d+ s so far, about \d+ min left", lines[-1])
    time.sleep(0.5)
    assert len(stream.getvalue().splitlines()) == said, "it goes on"


def test_progress_on_a_terminal_is_a_bar_below_what_stays() -> None:
    stream = Terminal()
    with Progress(2, stream) as progress:
        progress.doing("first")
        progress.done("first: done")
        progress.doing("second")
    shown = stream.getvalue()
    plain = CONTROL.sub("", shown)
    assert plain != shown
    assert "[1/2] first: done\n" in plain
    assert re.search(r"━+ 0/2 first", plain) and re.search(r"━+ 1/2 second", plain)
    assert shown.endswith("\x1b[2K"), "the bar stays"
