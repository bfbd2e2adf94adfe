"""Tables and progress, by rich: readable on a terminal and, without any control character, in a file."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

from rich import box, progress
from rich.console import Console
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

#: Characters of a line: what is wider was never meant to be read, and nothing is broken into two lines.
_WIDEST = 10_000


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], justify: str) -> str:
    """Rows under headings as text, as wide as it needs to be.

    Args:
        headings: one for each column, of several lines perhaps.
        justify: "l" or "r" for each column.
    """
    drawn = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for heading, side in zip(headings, justify, strict=True):
        drawn.add_column(heading, justify="left" if side == "l" else "right", vertical="bottom")
    for row in rows:
        drawn.add_row(*row)
    text = io.StringIO()
    _console(text, terminal=False, width=_WIDEST).print(drawn)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


class Progress:
    """How far a run is: on a terminal a bar below the lines that stay, in a file a line now and then."""

    def __init__(self, total: int, stream: TextIO, *, finished: int = 0, heartbeat: float = 60.0) -> None:
        """`finished` of the `total` are done already; `heartbeat` is seconds between signs of life in a file."""
        self._terminal = stream.isatty()
        self._heartbeat = heartbeat
        self._ended = threading.Event()
        self._console = _console(stream, self._terminal)
        self._bar = progress.Progress(
            progress.BarColumn(20),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=self._console,
            speed_estimate_period=600,
            transient=True,
            disable=not self._terminal,
        )
        self._task = self._bar.add_task("", total=total, completed=finished)

    def __enter__(self) -> Progress:
        self._bar.start()
        if not self._terminal:
            threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._bar.stop()

    def doing(self, what: str) -> None:
        """Show what is being done, from any thread."""
        self._bar.update(self._task, description=what, refresh=True)

    def done(self, what: str = "") -> None:
        """Count one more as finished, with a line that stays if there is something to say."""
        self._bar.advance(self._task)
        if what:
            self._say(what)

    def _beat(self) -> None:
        while not self._ended.wait(self._heartbeat):
            (task,) = self._bar.tasks
            left = "" if task.time_remaining is None else f", about {task.time_remaining / 60:.0f} min left"
            self._say(f"{task.description}; {task.elapsed:.0f} s so far{left}")

    def _say(self, what: str) -> None:
        (task,) = self._bar.tasks
        self._console.print(f"[{task.completed:.0f}/{task.total:.0f}] {what}", soft_wrap=True)


def _console(stream: TextIO, terminal: bool, width: int | None = None) -> Console:
    """A console that takes every text as it is, and colours nothing that is no terminal, whatever the environment."""
    return Console(file=stream, force_terminal=terminal, width=width, markup=False, highlight=False, emoji=False)


class LiveText:
    """Text below lines that stay, drawn anew as it changes; on what is no terminal only lines. A context manager."""

    def __init__(self, stream: TextIO) -> None:
        self._live = Live(console=_console(stream, stream.isatty()), refresh_per_second=4, transient=True)
        self._shown = stream.isatty()

    def __enter__(self) -> LiveText:
        if self._shown:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._shown:
            self._live.stop()

    def show(self, text: Callable[[], str]) -> None:
        """Replace the text; it is asked for only if somebody sees it."""
        if self._shown:
            self._live.update(Text(text()))

    def say(self, line: str) -> None:
        """A line that stays."""
        self._live.console.print(line, soft_wrap=True)
