"""Races, run in a fresh interpreter by crew.scenario."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

from crew import fork, result, together

from kernels_cache import Key, LockTimeout, Store


def single_flight(root: str, processes: int, rounds: int) -> list[dict[str, Any]]:
    """K1: all processes ask for one missing key at the same moment."""
    builds = Path(root).with_name("builds")
    answers = []
    for number in range(rounds):
        key = Key("cpu-object", {"round": number})
        start = time.time() + 0.2

        def ask(key: Key = key, start: float = start) -> tuple[str, bool]:
            store = Store.open(root, strict=True)

            def build() -> dict[str, bytes]:
                with open(builds, "ab") as file:
                    file.write(b".")
                time.sleep(0.2)
                return {"kernel.o": os.urandom(32)}

            time.sleep(max(0.0, start - time.time()))
            entry, hit = store.get_or_build(key, build)
            return entry.files["kernel.o"].hex(), hit

        builds.write_bytes(b"")
        results = together([ask] * processes)
        answers.append(
            {
                "builds": builds.stat().st_size,
                "contents": len({content for content, _ in results}),
                "hits": sum(hit for _, hit in results),
            }
        )
    return answers


def threads_and_processes(root: str, threads: int, processes: int) -> dict[str, int]:
    """Single flight among threads of several processes, all on one key."""
    builds = Path(root).with_name("builds")
    builds.write_bytes(b"")
    key = Key("cpu-object", {"threads": threads})

    def build() -> dict[str, bytes]:
        with open(builds, "ab") as file:
            file.write(b".")
        time.sleep(0.1)
        return {"kernel.o": os.urandom(32)}

    def work() -> list[str]:
        store = Store.open(root, strict=True)
        contents: list[str] = []

        def ask() -> None:
            contents.append(store.get_or_build(key, build)[0].files["kernel.o"].hex())

        crew = [threading.Thread(target=ask) for _ in range(threads)]
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()
        return contents

    contents = [content for part in together([work] * processes) for content in part]
    return {
        "builds": builds.stat().st_size,
        "answers": len(contents),
        "contents": len(set(contents)),
    }


def mixed(root: str, processes: int, operations: int, keys: int) -> dict[str, int]:
    """K2: gets, puts, builds and discards; overlap of builders is detected in two ways."""
    beside = Path(root).parent
    counters = beside / "counters"
    counters.mkdir()
    for number in range(keys):
        (counters / str(number)).write_text("0")

    def work(seed: int) -> dict[str, int]:
        choose = random.Random(seed)
        store = Store.open(root, strict=True)
        seen = {"overlaps": 0, "builds": 0, "partial": 0, "operations": 0}

        def content(number: int) -> dict[str, bytes]:
            block = bytes([number]) * 4096
            return {"kernel.o": block, "manifest.json": json.dumps({"number": number}).encode()}

        def build(number: int) -> dict[str, bytes]:
            marker = beside / f"marker-{number}"
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                seen["overlaps"] += 1
            # Read, wait, write: a second builder at the same time would lose an increment.
            counter = counters / str(number)
            value = int(counter.read_text())
            time.sleep(0.001)
            counter.write_text(str(value + 1))
            seen["builds"] += 1
            marker.unlink(missing_ok=True)
            return content(number)

        for _ in range(operations):
            number = choose.randrange(keys)
            key = Key("cpu-object", {"number": number})
            action = choose.random()
            found = None
            if action < 0.4:
                found = store.get(key)
            elif action < 0.7:
                found = store.get_or_build(key, lambda number=number: build(number))[0]
            elif action < 0.85:
                store.put(key, content(number))
            else:
                store.discard(key)
            if found is not None and dict(found.files) != content(number):
                seen["partial"] += 1
            seen["operations"] += 1
        seen["troubles"] = store.statistics.troubles
        return seen

    parts = together([lambda seed=seed: work(seed) for seed in range(processes)])
    total = {name: sum(part[name] for part in parts) for name in parts[0]}
    total["counted"] = sum(int(path.read_text()) for path in counters.iterdir())
    return total


def same_names(root: str, containers: int, threads: int, puts: int) -> dict[str, int]:
    """K13: two containers on one volume: same pid, same thread id, same directory."""
    real_open = os.open

    def work(container: int) -> list[str]:
        names: list[str] = []

        def recording_open(path: Any, flags: int, *rest: Any, **named: Any) -> int:
            if str(path).endswith(".tmp"):
                names.append(os.path.basename(path))
            return real_open(path, flags, *rest, **named)

        os.getpid = lambda: 1
        threading.get_ident = lambda: 1
        os.open = recording_open
        from kernels_cache import publishing
        from kernels_cache.root import Root

        place = Root(root)
        place.prepare()

        def put() -> None:
            for number in range(puts):
                # The part of a put that makes a name; publishing itself is K2's business.
                with publishing._temporary(place, b"%d" % number):
                    pass

        crew = [threading.Thread(target=put) for _ in range(threads)]
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()
        return names

    names = [name for part in together([lambda: work(0)] * containers) for name in part]
    return {"names": len(names), "distinct": len(set(names))}


def holder(root: str, stop: bool, timeout_s: float) -> dict[str, Any]:
    """K14: the process that builds is killed, or suspended for ever."""
    key = Key("cpu-object", {"stop": stop})
    building = Path(root).with_name("building")

    def hold() -> None:
        def build() -> dict[str, bytes]:
            building.write_text("")
            time.sleep(600)
            return {"kernel.o": b"never"}

        Store.open(root, strict=True).get_or_build(key, build)

    pid, pipe = fork(hold)
    while not building.exists():
        time.sleep(0.005)
    os.kill(pid, signal.SIGSTOP if stop else signal.SIGKILL)
    answer: dict[str, Any] = {"pid": pid}
    if not stop:
        status, _ = result(pid, pipe)
        answer["status"] = status
    try:
        strict = Store.open(root, strict=True, lock_timeout_s=timeout_s)
        before = time.monotonic()
        try:
            entry, _ = strict.get_or_build(key, lambda: {"kernel.o": b"mine"})
            answer["content"] = entry.files["kernel.o"].decode()
        except LockTimeout as error:
            answer |= {"holder": error.pid, "host": error.host, "age_s": error.age_s}
            answer["message"] = str(error)
        answer["waited_s"] = time.monotonic() - before
        if stop:
            gentle = Store.open(root, strict=False, lock_timeout_s=timeout_s)
            entry, _ = gentle.get_or_build(key, lambda: {"kernel.o": b"mine"})
            answer["content"] = entry.files["kernel.o"].decode()
            answer["warnings"] = gentle.statistics.warnings
            answer["stored"] = gentle.statistics.stored
    finally:
        if stop:
            os.kill(pid, signal.SIGKILL)
            result(pid, pipe)
    return answer
