"""Shows what the demo is doing: a line per job, with a bar where the output is a terminal."""

from __future__ import annotations

import time
from typing import TextIO

#: Seconds between signs of life in a log file.
HEARTBEAT = 20.0


class Progress:
    """Numbered jobs of a known total; `begin`, any number of `tick`s, `end`."""

    def __init__(self, total: int, stream: TextIO) -> None:
        self._total = total
        self._stream = stream
        self._terminal = stream.isatty()
        self._number = 0
        self._label = ""
        self._started = 0.0
        self._last_sign = 0.0

    def begin(self, label: str) -> None:
        """Start the next job."""
        self._number += 1
        self._label = label
        self._started = self._last_sign = time.monotonic()
        self.tick("")

    def tick(self, doing: str) -> None:
        """Show that the job is still running, and at what."""
        now = time.monotonic()
        seconds = now - self._started
        if self._terminal:
            detail = f" {doing}" if doing else ""
            self._stream.write(f"\r\x1b[K{self._line()}{detail} {seconds:.0f} s")
        elif now - self._last_sign >= HEARTBEAT:
            self._last_sign = now
            self._stream.write(f"{self._line()} still running after {seconds:.0f} s\n")
        self._stream.flush()

    def end(self, outcome: str) -> None:
        """Finish the job's line."""
        start = "\r\x1b[K" if self._terminal else ""
        seconds = time.monotonic() - self._started
        self._stream.write(f"{start}{self._line()} {outcome} ({seconds:.1f} s)\n")
        self._stream.flush()

    def _line(self) -> str:
        if not self._terminal:
            return f"[{self._number:2}/{self._total}] {self._label}:"
        width = 20
        done = width * (self._number - 1) // self._total
        bar = "#" * done + "." * (width - done)
        return f"[{bar}] {self._number:2}/{self._total} {self._label}:"
