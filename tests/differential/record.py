"""What a long run found so far: a JSON file that the next run goes on from."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from halide_backend.cache_key import sources_digest
from halide_backend.inspection import machine

Json = dict[str, Any]

#: Kinds of outcome that are no defect of this backend.
_FINE = ("equal", "eager", "inductor")


class Record:
    """Totals over programs, every find among them, and the programs in which Inductor itself differs from eager.

    `next` is the first seed that is not finished, `ahead` are finished ones beyond it; `sources` is the digest of the
    package that all of them ran with.
    """

    def __init__(self, command: str, seed: int) -> None:
        self.command = command
        self.seed = self.next = seed
        self.ahead: set[int] = set()
        self.sources = sources_digest()
        self.totals: Counter[str] = Counter()
        self.delegated: Counter[str] = Counter()
        self.finds: list[Json] = []
        self.inductor: list[Json] = []
        self._seconds = 0.0
        self._began = time.time()

    @staticmethod
    def read(path: Path, command: str) -> Record:
        """The record in `path`, to go on from.

        Raises:
            ValueError: other sources of the package have made it.
        """
        data = json.loads(path.read_text())
        record = Record(command, data["seed"])
        if data["sources"] != record.sources:
            raise ValueError(f"{path} was made with other sources: give another --record")
        record.next, record.ahead = data["next"], set(data["ahead"])
        record.totals, record.delegated = Counter(data["totals"]), Counter(data["delegated"])
        record.finds, record.inductor, record._seconds = data["finds"], data["inductor"], data["seconds"]
        return record

    def remaining(self, programs: int) -> Iterator[int]:
        """The seeds that are still to be done of `programs` ones."""
        return (seed for seed in range(self.next, self.seed + programs) if seed not in self.ahead)

    def add(self, result: Json) -> bool:
        """Count one program; returns whether it is a find."""
        self.ahead.add(result["seed"])
        while self.next in self.ahead:
            self.ahead.remove(self.next)
            self.next += 1
        self.totals["programs"] += 1
        self.totals[result["kind"]] += 1
        for name in ("native", "elements", "unproved"):
            self.totals[name] += int(result.get(name, 0))
        self.delegated.update(result["delegated"])
        found = result["kind"] not in _FINE or bool(result["delegated"])
        if found:
            self.finds.append(result)
        elif result["kind"] == "inductor":
            self.inductor.append(result)
        return found

    def write(self, path: Path) -> None:
        """Replace the file in one step, so that a run that is killed meanwhile leaves the one before."""
        unfinished = path.with_name(f"{path.name}.unfinished")
        unfinished.write_text(json.dumps(self.to_json(), indent=1) + "\n")
        unfinished.replace(path)

    def to_json(self) -> Json:
        return {
            "command": self.command,
            **machine.facts(),
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "sources": self.sources,
            "seed": self.seed,
            "next": self.next,
            "ahead": sorted(self.ahead),
            "seconds": round(self._seconds + time.time() - self._began, 1),
            "totals": dict(self.totals),
            "delegated": dict(self.delegated),
            "finds": self.finds,
            "inductor": self.inductor,
        }
