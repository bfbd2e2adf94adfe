"""How far a session is: a table that changes on a terminal, lines in a file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TextIO

from halide_backend import terminal
from halide_backend.errors import HalideBackendError
from halide_backend.tune.trial import Trial
from halide_backend.tune.tunable_kernel import TunableKernel
from halide_backend.tune.tuned import Tuned
from halide_backend.tune.tuner import Tuner

HEADINGS = ("kernel", "time with\nthe rules", "share", "trials", "best against\nthe rules", "")
JUSTIFY = "lrrrrl"

#: Kernels that the changing table shows: the first ones, and the one in hand.
_SHOWN = 12


class TableProgress:
    """See `session.Watcher`; a context manager."""

    def __init__(self, stream: TextIO) -> None:
        self._live = terminal.LiveText(stream)
        self._tuners: Sequence[Tuner] = ()
        self._tuned: dict[str, Tuned] = {}
        self._ends_at = 0.0
        self._whole = 1.0

    def __enter__(self) -> TableProgress:
        self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.__exit__(*error)

    def begins(self, tuners: Sequence[Tuner], ends_at: float) -> None:
        """See `session.Watcher`."""
        self._tuners, self._ends_at = tuners, ends_at
        self._whole = sum(tuner.seconds * tuner.kernel.count for tuner in tuners) or 1.0
        self._live.say(f"{len(tuners)} kernels, {self._left()} left")

    def tried(self, tuner: Tuner, trial: Trial) -> None:
        """See `session.Watcher`."""
        self._live.show(lambda: self._table(tuner))

    def tuned(self, found: Tuned) -> None:
        """See `session.Watcher`."""
        self._tuned[found.kernel.digest] = found
        gain = f"{found.gain:.3f} of the rules' speed" if found.confirmed else "the rules stay"
        self._live.say(f"{found.kernel.name}: {len(found.trials)} trials, {gain}")

    def left_out(self, kernel: TunableKernel, reason: HalideBackendError) -> None:
        """See `session.Watcher`."""
        self._live.say(f"{kernel.name} is left out: {reason.what}")

    def _table(self, current: Tuner) -> str:
        rows = []
        shown = [tuner for tuner in self._tuners if tuner is current or tuner in self._tuners[:_SHOWN]]
        for tuner in shown:
            found = self._tuned.get(tuner.kernel.digest)
            share = tuner.seconds * tuner.kernel.count / self._whole
            # What was found earlier was confirmed; what is found now may gain more.
            gain = tuner.history.gain if found is None or tuner is current else found.gain
            state = "<" if tuner is current else "all tried" if tuner.exhausted else ""
            rows.append(row(tuner.kernel.name, tuner.seconds, share, len(tuner.history.trials), gain, state))
        return f"{terminal.table(HEADINGS, rows, JUSTIFY)}\n{self._left()} left"

    def _left(self) -> str:
        seconds = max(0, round(self._ends_at - time.monotonic()))
        return f"{seconds // 60}:{seconds % 60:02}"


def row(name: str, seconds: float, share: float, trials: int, gain: float, remark: str) -> tuple[str, ...]:
    """A row under `HEADINGS`."""
    return name, duration(seconds), f"{100 * share:.1f} %", str(trials), f"{gain:.3f}", remark


def duration(seconds: float) -> str:
    """Seconds in the unit that has one to three digits before the point."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
