"""Which schedules of a user's files had a kernel in this process: those without one are named when it ends."""

from __future__ import annotations

import atexit
import logging
import os
import re
import threading
from collections.abc import Iterable

from halide_backend.schedules.entry import ScheduleEntry

log = logging.getLogger("halide_backend")

#: So many unused schedules are named, the others counted.
_NAMED = 3


class Usage:
    """Schedules that were looked through for kernels, and those that had one; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._named: dict[str, ScheduleEntry] = {}
        self._beside: dict[str, ScheduleEntry] = {}
        self._used: set[str] = set()
        self._warned: set[str] = set()

    def looked_through(self, kernel: str, named: Iterable[ScheduleEntry], beside: Iterable[ScheduleEntry]) -> None:
        """Note that `kernel` was compiled or loaded while these schedules for its device applied: of files that were
        `named`, and of those in the folder `beside` the project, which may be for other programs: they count if a
        kernel of their name is there.
        """
        name = _without_number(kernel)
        with self._lock:
            self._named.update((entry.identity, entry) for entry in named)
            self._beside.update((entry.identity, entry) for entry in beside if _without_number(entry.name) == name)

    def used(self, identity: str) -> None:
        """Note that a kernel has the schedule with this `ScheduleEntry.identity`."""
        with self._lock:
            self._used.add(identity)

    def unused(self) -> tuple[ScheduleEntry, ...]:
        """The schedules that no kernel of this process had, though there were kernels for their device."""
        with self._lock:
            found = {**self._beside, **self._named}
            return tuple(entry for identity, entry in found.items() if identity not in self._used)

    def warn_once(self, subject: str, text: str) -> None:
        """Log a warning about `subject`, the first time in this process."""
        with self._lock:
            known = subject in self._warned
            self._warned.add(subject)
        if not known:
            log.warning("%s", text)

    def reset(self) -> None:
        """Forget everything."""
        with self._lock:
            for each in (self._named, self._beside, self._used, self._warned):
                each.clear()

    def report(self) -> None:
        """Name unused schedules in a warning: one, since a file may be of a whole suite."""
        unused = self.unused()
        if not unused:
            return
        named = ", ".join(f"{entry.title} (program {entry.program[:12]})" for entry in unused[:_NAMED])
        more = f", and {len(unused) - _NAMED} more" if len(unused) > _NAMED else ""
        log.warning(
            "No kernel of this process has %s: %s%s; the programs or their sizes have changed, or the process does not "
            "compile them. What to do: dump what has changed again, and remove what is gone.",
            "this schedule" if len(unused) == 1 else f"these {len(unused)} schedules",
            named,
            more,
        )

    def forked(self) -> None:
        """In a forked child: whoever held the lock is not there, and what is unused the parent says."""
        self._lock = threading.Lock()
        self.reset()


def _without_number(kernel: str) -> str:
    """The name of a kernel without its number in the wrapper."""
    return re.sub(r"_\d+$", "", kernel)


#: That of this process.
usage = Usage()
atexit.register(usage.report)
os.register_at_fork(after_in_child=usage.forked)
