"""A real full disk, run in a fresh interpreter (and mount namespace) by crew.scenario."""

from __future__ import annotations

import os
import warnings
from typing import Any

from kernels_cache import Key, Store


def full_disk(root: str) -> dict[str, Any]:
    """Ask for more than the disk can hold; then read back what it kept."""
    answer: dict[str, Any] = {"right": 0, "asked": 0}
    contents = {number: {"kernel.o": os.urandom(150 * 1024)} for number in range(12)}
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        store = Store.open(root, strict=False)
        for number, content in contents.items():
            entry, _ = store.get_or_build(Key("k", {"number": number}), lambda content=content: content)
            answer["right"] += dict(entry.files) == content
            answer["asked"] += 1
    answer["warnings"] = len(given)
    answer["text"] = str(given[0].message) if given else ""
    answer["stored"] = store.statistics.stored
    answer["damaged"] = sum(problem is not None for _, problem in store.verify())
    found = [store.get(Key("k", {"number": number})) for number in contents]
    wrong = sum(
        entry is not None and dict(entry.files) != content
        for entry, content in zip(found, contents.values(), strict=True)
    )
    answer["damaged"] += wrong + abs(sum(entry is not None for entry in found) - answer["stored"])
    return answer


def noexec(root: str) -> dict[str, Any]:
    """A root where nothing may be executed: nothing here ever is."""
    store = Store.open(root, strict=True)
    key = Key("k", {})
    first = store.get_or_build(key, lambda: {"kernel.o": b"code"})
    second = store.get_or_build(key, lambda: {"kernel.o": b"other"})
    with open("/proc/self/mounts", encoding="ascii") as mounts:
        mounted = any(os.path.dirname(root) in line and "noexec" in line for line in mounts)
    return {
        "noexec": mounted,
        "hits": [first[1], second[1]],
        "content": second[0].files["kernel.o"].decode(),
        "troubles": store.statistics.troubles,
    }
