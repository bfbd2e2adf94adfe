"""The records of this process: kernels are noted as they are captured, left to Inductor, and loaded.

Notes hold strings, numbers and frozen data, no tensor and no node of a graph. A long process keeps the last `KEPT` of
them; what earlier ones count for `stats()` is added up.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from halide_backend.build.artifacts import COMPILED, MEMORY, Build
from halide_backend.kernel_records import statistics
from halide_backend.kernel_records.record import KernelRecord

#: Records that are kept, at 5 to 20 KB each.
KEPT = 2048


class Note:
    """One record, with what is found out later."""

    def __init__(self, record: KernelRecord, build: Build | None) -> None:
        self._record = record
        self._build = build
        self._loads = 0
        self._profiled: tuple[str, ...] = ()

    def loaded(self, profiled: Sequence[str]) -> None:
        """Note that the kernel was linked into this process, and what a profiler calls it."""
        self._loads += 1
        self.shown_as(profiled)

    def shown_as(self, profiled: Sequence[str]) -> None:
        """Note what a profiler calls it, a launch that it shares with others for instance."""
        self._profiled = tuple(profiled)

    def record(self) -> KernelRecord:
        """The record as of now."""
        build = self._build
        if build is None:
            return self._record
        artifact = build.built
        if artifact is None:
            return replace(self._record, key=build.key)
        cache = MEMORY if build.asked_before else artifact.found
        return replace(
            self._record,
            key=build.key,
            cache=cache,
            compile_seconds=artifact.seconds if cache == COMPILED else 0.0,
            object_bytes=len(artifact.object) + len(artifact.image),
            loads=self._loads,
            profiled=self._profiled,
        )


class Journal:
    """Notes in order; safe to use from several threads."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._notes: deque[Note] = deque()
        self._before: statistics.Total = {}
        #: Captured kernels whose wrapper has not been loaded yet, by name, position and text.
        self._awaited: dict[tuple[str, int, str], Note] = {}

    def reset(self) -> None:
        """Forget everything."""
        with self._lock:
            self._notes.clear()
            self._before.clear()
            self._awaited.clear()

    def captured(self, record: KernelRecord, build: Build | None = None) -> None:
        """Note a kernel that was captured here, and either is being built or was left to Inductor's own backend."""
        note = self._add(Note(record, build))
        if build is not None:
            with self._lock:
                self._awaited[_place(record)] = note

    def loading(self, record: KernelRecord, build: Build) -> Note:
        """The note of a kernel that a wrapper asks for: that of its capture, or if there was none a new one."""
        with self._lock:
            known = self._awaited.pop(_place(record), None)
        return known or self._add(Note(record, build))

    def records(self) -> tuple[KernelRecord, ...]:
        """The last kernels, in the order in which they were captured or, if elsewhere, loaded."""
        with self._lock:
            notes = list(self._notes)
        return tuple(note.record() for note in notes)

    def stats(self) -> dict[str, object]:
        """See `statistics.stats`."""
        with self._lock:
            notes, before = list(self._notes), dict(self._before)
        return statistics.stats((note.record() for note in notes), before)

    def renew_lock(self) -> None:
        """In a forked child: whoever held the lock is not there."""
        self._lock = threading.Lock()

    def _add(self, note: Note) -> Note:
        with self._lock:
            self._notes.append(note)
            if len(self._notes) > self._kept:
                oldest = self._notes.popleft()
                record = oldest.record()
                statistics.add(record, self._before)
                if self._awaited.get(_place(record)) is oldest:
                    del self._awaited[_place(record)]
        return note


def _place(record: KernelRecord) -> tuple[str, int, str]:
    return record.name, record.position, record.text


#: That of this process.
journal = Journal()
os.register_at_fork(after_in_child=journal.renew_lock)
