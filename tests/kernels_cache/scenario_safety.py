"""What runs inside of the interpreter, seen by an audit hook in a fresh one."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from kernels_cache import BundleRefused, Key, Store, bundle, cli, explanation


def everything(root: str) -> None:
    """All that the package does, once, with good and with damaged bytes."""
    store = Store.open(root, strict=False, max_bytes=20_000)
    for number in range(30):
        key = Key("k", {"number": number})
        store.get_or_build(key, lambda: {"a": b"x" * 500}, requires={"cpu_features": ["avx"]})
        store.look_up(key, provides={})
    path = Path(store.root.entry(key.digest))
    good = path.read_bytes()
    # Would do something when unpickled, unmarshalled, or evaluated.
    for evil in (b"cos\nsystem\n(S'true'\ntR.", b"\xe3\0\0\0\0", b"__import__('os')", good[:-3]):
        path.write_bytes(evil)
        store.get(key)
        Path(root, "bundle").write_bytes(evil)
        with suppress(BundleRefused):
            bundle.import_bundle(store, root + "/bundle")
        path.parent.mkdir(exist_ok=True)
    list(store.verify())
    bundle.export_bundle(store, root + "/bundle")
    bundle.import_bundle(store, root + "/bundle")
    explanation.nearest(store, key)
    for arguments in (["ls"], ["du"], ["verify"], ["prune"], ["why", "number"]):
        cli.main(["--root", root, *arguments])


def audited(root: str) -> dict[str, Any]:
    """K8: count the events that mean that data became code."""
    everything(root)  # imports are code too; they happen now
    seen: list[str] = []
    listening = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if listening:
            seen.append(event)

    sys.addaudithook(hook)
    everything(root)
    listening = False
    prefixes = ("pickle.", "marshal.", "ctypes.", "subprocess.", "socket.connect", "urllib.")
    code = [
        event for event in seen if event.startswith(prefixes) or event in ("exec", "compile", "import", "os.system")
    ]
    # The counter works: this is what the hook would have seen.
    listening, before = True, len(seen)
    eval("1")
    listening = False
    return {"code": sorted(set(code)), "events": len(seen), "control": "exec" in seen[before:]}


def one_of_many(root: str) -> int:
    """What a fresh process finds among the keys of `threads_and_forks`: how many are wrong."""
    store = Store.open(root, strict=True)
    contents = {number: {"a": b"%d" % number * 50} for number in range(20)}
    found = {number: store.get_or_build(Key("k", {"number": number}), lambda c=c: c) for number, c in contents.items()}
    return sum(dict(entry.files) != contents[number] for number, (entry, _) in found.items())


def threads_and_forks(root: str) -> dict[str, Any]:
    """K18: one store object used by 16 threads, and by children forked and spawned meanwhile."""
    import threading

    from crew import fork, result, scenario

    store = Store.open(root, strict=True)
    wrong: list[int] = []
    running = True

    def content(number: int) -> dict[str, bytes]:
        return {"a": b"%d" % number * 50}

    def work(start: int, rounds: int) -> None:
        for at in range(rounds):
            number = (start + at) % 20
            entry, _ = store.get_or_build(Key("k", {"number": number}), lambda n=number: content(n))
            if dict(entry.files) != content(number):
                wrong.append(number)
            if at % 7 == 0:
                store.discard(Key("k", {"number": number}))

    def until_stopped(start: int) -> None:
        while running:
            work(start, 5)

    crew = [threading.Thread(target=until_stopped, args=(at,)) for at in range(16)]
    for thread in crew:
        thread.start()
    children = [lambda at=at: (work(at, 20), len(wrong))[1] for at in range(8)]
    statuses = [result(*fork(child)) for child in children]
    spawned = [scenario("safety", "one_of_many", root=root) for _ in range(2)]
    running = False
    for thread in crew:
        thread.join()
    found = store.statistics
    return {
        "wrong": len(wrong),
        "children": sum(status == 0 and value == 0 for status, value in statuses),
        "spawned": spawned,
        "counted": found.hits + found.misses > 0,
        "troubles": found.troubles,
    }
