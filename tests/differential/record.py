"""What a long run found so far: a JSON file that the next run goes on from."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from halide_backend.inspection import machine
from halide_backend.sources import sources_digest

Json = dict[str, Any]

#: Kinds of outcome that are no defect of this backend.
_FINE = ("equal", "eager", "inductor")


class Record:
    """Totals over programs, every find among them, and the programs in which Inductor itself differs from eager.

    `next` follows the last seed that is finished, `missing` are those before it that are not; `sources` is the digest of
    the package that all of them ran with. Who goes on from a record runs its finds again, with a fuzzer that may have
    been mended; `earlier` keeps them as they were.
    """

    def __init__(self, command: str, seed: int) -> None:
        self.command = command
        self.seed = self.next = seed
        self.missing: set[int] = set()
        self.sources = sources_digest()
        self.totals: Counter[str] = Counter()
        self.delegated: Counter[str] = Counter()
        self.finds: list[Json] = []
        self.earlier: list[Json] = []
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
        record.next, record.missing = data["next"], set(data["missing"])
        record.totals, record.delegated = Counter(data["totals"]), Counter(data["delegated"])
        record.inductor, record._seconds = data["inductor"], data["seconds"]
        record.earlier = data["earlier"] + data["finds"]
        for find in data["finds"]:
            record._count(find, -1)
            record.missing.add(find["seed"])
        return record

    def remaining(self, programs: int) -> Iterator[int]:
        """The seeds that are still to be done of `programs` ones."""
        return chain(sorted(self.missing), range(self.next, self.seed + programs))

    def add(self, result: Json) -> bool:
        """Count one program; returns whether it is a find."""
        seed = result["seed"]
        self.missing.update(range(self.next, seed))
        self.missing.discard(seed)
        self.next = max(self.next, seed + 1)
        self._count(result, 1)
        found = result["kind"] not in _FINE or bool(result["delegated"])
        if found:
            self.finds.append(result)
        elif result["kind"] == "inductor":
            self.inductor.append(result)
        return found

    def _count(self, result: Json, times: int) -> None:
        self.totals["programs"] += times
        self.totals[result["kind"]] += times
        for name in ("native", "elements", "unproved"):
            self.totals[name] += times * int(result.get(name, 0))
        for why, kernels in result["delegated"].items():
            self.delegated[why] += times * kernels

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
            "missing": sorted(self.missing),
            "seconds": round(self._seconds + time.time() - self._began, 1),
            "totals": dict(+self.totals),
            "delegated": dict(+self.delegated),
            "finds": self.finds,
            "earlier": self.earlier,
            "inductor": self.inductor,
        }
