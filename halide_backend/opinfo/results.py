"""The results of a run as a JSON file, written again and again while it runs."""

from __future__ import annotations

import datetime
import json
import os
import sys
import time
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from halide_backend.errors import HalideBackendError
from halide_backend.inspection import machine
from halide_backend.opinfo.case import Request
from halide_backend.opinfo.outcome import Outcome
from halide_backend.sources import sources_digest

#: Seconds between two versions of the file.
_INTERVAL = 15.0

#: What two runs must have in common for one to go on with the results of the other.
_SAME = ("device", "all_samples", "gradients", "against")


class Results:
    """Outcomes by operator and data type, and the file they are kept in.

    Raises:
        HalideBackendError: resuming from a file that is damaged, or of a run with other settings or code.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._path = Path(request.output) if request.output else None
        self._written = time.monotonic()
        self._started = time.monotonic()
        self._before = 0.0
        self._date = _now()
        self.outcomes: dict[tuple[str, str], Outcome] = {}
        if request.resume and self._path is not None and self._path.exists():
            self._take(self._path)

    def add(self, outcome: Outcome) -> None:
        """Take an outcome; write the file if the last time is some seconds ago."""
        self.outcomes[outcome.op, outcome.dtype] = outcome
        if time.monotonic() - self._written > _INTERVAL:
            self.write()

    def write(self) -> None:
        """Write the file, whole or not at all."""
        self._written = time.monotonic()
        if self._path is None:
            return
        unfinished = self._path.with_name(f"{self._path.name}.{os.getpid()}.part")
        unfinished.write_text(json.dumps(self.to_json(), indent=1) + "\n")
        unfinished.replace(self._path)

    def to_json(self) -> dict[str, Any]:
        """Command, machine, versions, date, settings and outcomes."""
        return {
            "command": ["halide-backend", *sys.argv[1:]],
            "started": self._date,
            "finished": _now(),
            "seconds": round(self._before + time.monotonic() - self._started, 1),
            **_versions(),
            "sources": sources_digest(),
            "request": asdict(self._request),
            "outcomes": [outcome.to_json() for outcome in self.outcomes.values()],
        }

    def _take(self, path: Path) -> None:
        try:
            data = json.loads(path.read_text())
            outcomes = [Outcome.from_json(item) for item in data["outcomes"]]
            settings, self._before, self._date = data["request"], data["seconds"], data["started"]
            made_with = data["machine"]["versions"], data["sources"]
        except (ValueError, KeyError, TypeError) as error:
            raise HalideBackendError(
                f"not a file of results: {error}",
                where=str(path),
                cure="Run without --resume, or give another --output.",
            ) from None
        if made_with != (_versions()["machine"]["versions"], sources_digest()):
            raise HalideBackendError(
                "the results are of other versions or of other sources of this package",
                where=str(path),
                cure="Run without --resume, or give another --output.",
            )
        asked = asdict(self._request)
        for name in _SAME:
            if settings[name] != asked[name]:
                raise HalideBackendError(
                    f"the results are of a run with {name}={settings[name]!r}",
                    where=str(path),
                    cure="Resume with the same options, or give another --output.",
                )
        self.outcomes = {(outcome.op, outcome.dtype): outcome for outcome in outcomes}


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def _versions() -> dict[str, Any]:
    facts = machine.facts()
    facts["numpy"] = metadata.version("numpy")
    return {"machine": facts}
