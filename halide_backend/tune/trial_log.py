"""The log of trials: JSON Lines that only grow, one line for a program, one for each of its trials.

A line is written by one call of the system and flushed to the disk before the next trial begins, so that a crash can
tear no line but the last one. Whoever writes has the file locked; who only reads need not wait.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halide_backend.errors import HalideBackendError, ProgramError, TrialLogError
from halide_backend.program import serialization
from halide_backend.program.loop_program import LoopProgram
from halide_backend.tune.trial import Trial
from kernels_cache.locks import hold_until_closed

#: Version of the lines.
SCHEMA = 1

#: Seconds between looks at whether another tuner has ended.
_POLL_S = 0.1

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass
class Recorded:
    """What a log holds.

    Attributes:
        programs: by digest. names: digest -> name of the kernel in its graph, for people.
        trials: in the order in which they were made.
        torn: numbers of the lines that a crash has cut short, from 1.
    """

    programs: dict[str, LoopProgram] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    torn: list[int] = field(default_factory=list)

    def of(self, digest: str, device: str, threads: int) -> list[Trial]:
        """The trials of one program on one class of devices, with so many threads."""
        wanted = digest, device, threads
        return [trial for trial in self.trials if (trial.program, trial.device, trial.threads) == wanted]


def read(path: Path) -> Recorded:
    """Everything in the log; torn lines are skipped and named.

    Raises:
        TrialLogError: it cannot be read, was written by a newer version, or is something else.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise _unreadable(str(error), path) from error
    found = Recorded()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except ValueError:
            found.torn.append(number)
            continue
        try:
            _add(document, found)
        except HalideBackendError as error:
            raise TrialLogError(error.what, where=f"{path}, line {number}", cure=error.cure) from error
    if found.torn and not found.programs and not found.trials:
        raise _unreadable("no line of it is JSON", path)
    return found


def _add(document: Any, found: Recorded) -> None:
    if not isinstance(document, Mapping) or "schema" not in document:
        raise TrialLogError("it is no line of a log of trials", cure="name a file that `halide-backend tune` wrote")
    if document["schema"] != SCHEMA:
        raise TrialLogError(
            f"schema {document['schema']} of a trial is not {SCHEMA}", cure="read it with the version that wrote it"
        )
    if "trial" in document:
        found.trials.append(Trial.from_json(document["trial"]))
    elif "program" in document:
        try:
            program = serialization.from_json(document["program"])
        except ProgramError as error:
            raise TrialLogError(error.what, cure=error.cure) from error
        found.programs[document["digest"]] = program
        found.names[document["digest"]] = str(document.get("name", ""))


class TrialLog:
    """A log that is written; close it, or use it as a context manager."""

    def __init__(self, path: Path, *, patience: float = 0.0) -> None:
        """Open the log, or begin it, and lock it; `patience` is seconds to wait for another tuner.

        Raises:
            TrialLogError: it cannot be written, or another tuner writes to it.
        """
        self.path = path
        self._known: set[str] = set()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(path, flags, 0o644)
        except OSError as error:
            raise _unwritable(error, path) from error
        until = time.monotonic() + patience
        while not (held := hold_until_closed(self._file)) and time.monotonic() < until:
            time.sleep(_POLL_S)
        if not held:
            os.close(self._file)
            raise TrialLogError(
                "another tuner writes to it", where=str(path), cure="wait for it, or name another file with --output"
            )
        # What a crash has cut short becomes a line of its own.
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            self._append(b"\n")

    def __enter__(self) -> TrialLog:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file and its lock."""
        with contextlib.suppress(OSError):
            os.close(self._file)

    def program(self, digest: str, program: LoopProgram, name: str) -> None:
        """Write down what trials of `digest` are about, once for each log that is opened.

        Raises:
            TrialLogError: the disk is full, or the file cannot be written.
        """
        if digest not in self._known:
            self._write({"digest": digest, "name": name, "program": serialization.to_json(program)})
            self._known.add(digest)

    def trial(self, trial: Trial) -> None:
        """Append a trial.

        Raises:
            TrialLogError: the disk is full, or the file cannot be written; what was written before is whole.
        """
        self._write({"trial": trial.to_json()})

    def _write(self, document: Mapping[str, Any]) -> None:
        self._append(json.dumps({"schema": SCHEMA, **document}).encode() + b"\n")

    def _append(self, line: bytes) -> None:
        before = os.fstat(self._file).st_size
        try:
            if os.write(self._file, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, before)
            raise _unwritable(error, self.path) from error


def documents(path: Path) -> Iterator[Any]:
    """The values of a file of JSON Lines or of one JSON array, whoever wrote it.

    Raises:
        TrialLogError: it cannot be read, or is no JSON.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(str(error), path) from error
    try:
        whole = json.loads(text)
        yield from whole if isinstance(whole, list) else [whole]
    except ValueError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2:
            raise _unreadable(f"it is no JSON: {error}", path) from error
        for line in lines:
            with contextlib.suppress(ValueError):
                yield json.loads(line)


def _unreadable(what: str, path: Path) -> TrialLogError:
    return TrialLogError(what, where=str(path), cure="name a file that this version wrote")


def _unwritable(error: OSError, path: Path) -> TrialLogError:
    full = error.errno in _FULL
    return TrialLogError(
        "the disk is full" if full else str(error),
        where=str(path),
        cure="make room and go on with --resume; the best settings so far are kept" if full else "name another file",
    )
