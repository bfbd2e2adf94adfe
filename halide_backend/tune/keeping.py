"""What a search has found, as schedules that kernels are compiled with from then on."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

from halide_backend.program.serialization import digest
from halide_backend.schedule.device import Cpu, Device
from halide_backend.schedules import schedule_file
from halide_backend.schedules.entry import ScheduleEntry
from halide_backend.schedules.planning import entry_of
from halide_backend.schedules.size_class import size_class
from halide_backend.schedules.thread_class import thread_class
from halide_backend.schedules.tuned_store import tuned_store
from halide_backend.tune.space import Space
from halide_backend.tune.tuned import Tuned


class Kept:
    """The schedules of a session.

    Attributes:
        entries: one for each kernel that is faster than with the rules.
    """

    def __init__(self, path: str = "") -> None:
        """Prepare; `path` names a schedule file that gets the entries, too, or is "" for none. What it
        has for other kernels stays, but its comments are lost.

        Raises:
            ScheduleFileError: there is such a file, and it cannot be read.
        """
        self.entries: list[ScheduleEntry] = []
        self._path = path
        self._others()

    def keep(self, device: Device, found: Tuned) -> None:
        """Keep the best settings of a kernel on `device`, instead of those that were kept before.

        Raises:
            ScheduleFileError: the file cannot be written, or what is in it by now cannot be read.
        """
        kernel = found.kernel
        plan = Space(kernel.program, device).kernel(found.settings).plan
        origin = f"tuned {_today()}, {found.gain:.2f} times the rules' speed"
        entry = entry_of(kernel.program, device, plan, origin=origin, name=kernel.name)
        entry = _measured(entry, device, found)
        # A search may come back to a kernel, and find something better.
        self.entries = [*(each for each in self.entries if each.identity != entry.identity), entry]
        tuned_store().put(entry)
        if self._path:
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            schedule_file.write(self._path, [*self._others(), *self.entries])

    def keep_rules(self, device: Device, found: Tuned) -> None:
        """Keep in this machine's store that nothing was faster than what the rules choose, now or later."""
        program = found.kernel.program
        origin = f"tuned {_today()}, the rules stay after {len(found.trials)} trials"
        entry = ScheduleEntry(digest(program), "", sizes=size_class(program), origin=origin, name=found.kernel.name)
        tuned_store().put(_measured(entry, device, found))

    def _others(self) -> list[ScheduleEntry]:
        """What the file has for other kernels: from earlier sessions, or by hand."""
        if not self._path or not Path(self._path).exists():
            return []
        own = {entry.identity for entry in self.entries}
        return [entry for entry in schedule_file.read(self._path) if entry.identity not in own]


def _measured(entry: ScheduleEntry, device: Device, found: Tuned) -> ScheduleEntry:
    """What is right on every processor of its instruction set is faster on those that are like this one."""
    threads = thread_class(found.trials[0].threads) if isinstance(device, Cpu) else None
    return replace(entry, device=device.name, threads=threads)


def _today() -> str:
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()
