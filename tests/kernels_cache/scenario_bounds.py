"""Many writers and one bound, run in a fresh interpreter by crew.scenario."""

from __future__ import annotations

import os
import random
from typing import Any

import filelock
from crew import fork, result

from kernels_cache import Key, Store


def used(root: str) -> int:
    """Bytes of all entries and damaged entries, counted without the package.

    The lock keeps writers still: a walk that takes its time would count an entry that is about
    to go and the one that takes its place.
    """
    with filelock.FileLock(os.path.join(root, "locks", "ledger.lock")).acquire(60, 0.0002):
        return _walk(root)


def _walk(root: str) -> int:
    total = 0
    for part in ("entries", "quarantine"):
        for place, _, files in os.walk(os.path.join(root, part)):
            for name in files:
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def writers(root: str, processes: int, puts: int, max_bytes: int) -> dict[str, Any]:
    """K10: all write at once while this process measures."""

    def work(seed: int) -> dict[str, int]:
        choose = random.Random(seed)
        store = Store.open(root, strict=True, max_bytes=max_bytes)
        for number in range(puts):
            key = Key("k", {"seed": seed, "number": number})
            store.put(key, {"a": b"x" * choose.randrange(1, 4000)})
        return {"stored": store.statistics.stored, "evicted": store.statistics.evicted}

    Store.open(root, strict=True).put(Key("k", {}), {"a": b""})  # makes the directories
    children = [fork(lambda seed=seed: work(seed)) for seed in range(processes)]
    highest = measured = 0
    running = {pid for pid, _ in children}
    while running:
        highest = max(highest, used(root))
        measured += 1
        for pid in list(running):
            # WNOWAIT leaves the child for `result`.
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                running.discard(pid)
    answers = [result(*child) for child in children]
    entries = sum(len(files) for _, _, files in os.walk(os.path.join(root, "entries")))
    return {
        "failed": sum(status != 0 for status, _ in answers),
        "stored": 1 + sum(value["stored"] for _, value in answers),
        "evicted": sum(value["evicted"] for _, value in answers),
        "entries": entries,
        "highest": highest,
        "measured": measured,
        "last": used(root),
    }
