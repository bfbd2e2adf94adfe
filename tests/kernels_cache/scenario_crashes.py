"""SIGKILL at every named point of a put, run in a fresh interpreter by crew.scenario."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crew import fork, result

from kernels_cache import Key, Store
from kernels_cache.sweep import Limits

KEPT = Key("cpu-object", {"kept": True})


def _die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _around(name: str, suits: Callable[..., bool], before: bool) -> None:
    """Die before or after the call of os.<name> that `suits`."""
    real = getattr(os, name)

    def dying(*arguments: Any, **named: Any) -> Any:
        chosen = suits(*arguments)
        if chosen and before:
            _die()
        value = real(*arguments, **named)
        if chosen:
            _die()
        return value

    setattr(os, name, dying)


def _write_of(size: int, part: float) -> None:
    """Die in the write of `size` bytes, after a part of them."""
    real = os.write

    def dying(descriptor: int, data: Any) -> int:
        if len(data) != size:
            return real(descriptor, data)
        real(descriptor, bytes(data)[: int(size * part)])
        _die()
        raise AssertionError

    os.write = dying


def _ends(text: str) -> Callable[..., bool]:
    return lambda path, *rest, **named: str(path).endswith(text)


def _always(*_: Any, **__: Any) -> bool:
    return True


LEDGER_BYTES = 42
POINTS: dict[str, Callable[[int], None]] = {
    "before the temporary file": lambda size: _around("open", _ends(".tmp"), True),
    "temporary file made": lambda size: _around("open", _ends(".tmp"), False),
    "a third written": lambda size: _write_of(size, 1 / 3),
    "all written": lambda size: _write_of(size, 1.0),
    "before fsync": lambda size: _around("fsync", _always, True),
    "after fsync": lambda size: _around("fsync", _always, False),
    "ledger emptied": lambda size: _write_of(LEDGER_BYTES, 0.0),
    "ledger written": lambda size: _write_of(LEDGER_BYTES, 1.0),
    "before rename": lambda size: _around("replace", _always, True),
    "after rename": lambda size: _around("replace", _always, False),
    "build lock still held": lambda size: _around("unlink", _ends(".holder"), True),
    "build lock file removed": lambda size: _around("unlink", _ends(".lock"), False),
}


def kills(root: str, repeats: int) -> dict[str, Any]:
    """K3: kill at 12 points, `repeats` times each; then look at what is left."""
    os.umask(0o022)
    store = Store.open(root, strict=True)
    store.put(KEPT, {"kernel.o": b"kept"})
    report: dict[str, Any] = {"kills": 0, "survived": 0, "hits": 0, "misses": 0, "bad": []}
    for repeat in range(repeats):
        for point, arm in POINTS.items():
            key = Key("cpu-object", {"point": point, "repeat": repeat})
            content = {"kernel.o": bytes([repeat + 1]) * (1000 * repeat + 77), "log.txt": b"."}
            status, _ = result(*fork(lambda key=key, arm=arm, content=content: _put(root, key, arm, content)))
            report["kills"] += status == -signal.SIGKILL
            problems = _examine(root, key, content, report)
            report["bad"] += [f"{point} {repeat}: {problem}" for problem in problems]
            report["survived"] += not problems
    return report


def _put(root: str, key: Key, arm: Callable[[int], None], content: dict[str, bytes]) -> None:
    from kernels_cache import entry

    store = Store.open(root, strict=True)
    size = len(entry.pack(entry.make(key, content)))

    def build() -> dict[str, bytes]:
        arm(size)
        return content

    store.get_or_build(key, build)


def _examine(root: str, key: Key, content: dict[str, bytes], report: dict[str, Any]) -> list[str]:
    problems = []
    store = Store.open(root, strict=True)  # strict: damage would raise
    found = store.get(key)
    report["hits" if found else "misses"] += 1
    if found is not None and dict(found.files) != content:
        problems.append("a damaged entry was readable")
    kept = store.get(KEPT)
    if kept is None or kept.files["kernel.o"] != b"kept":
        problems.append("another entry was lost")
    entry, hit = store.get_or_build(key, lambda: content)
    if dict(entry.files) != content or hit != (found is not None):
        problems.append("the next build is not right")
    truth = sum(path.stat().st_size for path in Path(root, "entries").rglob("*.v1"))
    ledger = Path(root, "ledger").read_text().split()
    if len(ledger) == 2 and int(ledger[0]) < truth:
        problems.append(f"the ledger says {ledger[0]}, there are {truth}")
    store.prune(limits=Limits(temporary_s=0.0))
    left = [path.name for path in Path(root, "temporary").iterdir()]
    left += [path.name for path in Path(root, "locks").iterdir() if path.name != "ledger.lock"]
    if left:
        problems.append(f"left behind: {left}")
    if int(Path(root, "ledger").read_text().split()[0]) != truth:
        problems.append("prune did not correct the ledger")
    return problems
