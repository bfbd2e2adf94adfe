"""Keys and names, run in a fresh interpreter by crew.scenario."""

from __future__ import annotations

import os
import sys
from typing import Any

from kernels_cache import InvalidEntry, InvalidKey, Key, Store


def digest_as(uid: int, fields: dict[str, Any]) -> list[Any]:
    """The digest that another user makes."""
    os.setgid(uid)
    os.setuid(uid)
    return [os.geteuid(), Key("cpu-object", fields).digest]


def hostile_names(root: str, examples: int) -> dict[str, int]:
    """K7: any kind, field and file name; an audit hook sees every path that is touched."""
    from hypothesis import HealthCheck, example, given, settings, strategies

    outside: list[str] = []
    writing = False
    count = {"tried": 0, "stored": 0, "refused": 0, "wrong": 0}
    watched = {"os.mkdir": (0,), "os.rename": (0, 1), "os.remove": (0,), "os.link": (0, 1)}
    watched |= {"os.symlink": (0, 1), "os.rmdir": (0,), "os.chmod": (0,), "os.truncate": (0,)}

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if not writing:
            return
        if event == "open" and isinstance(arguments[2], int):
            flags = arguments[2]
            paths = [arguments[0]] if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) else []
        else:
            paths = [arguments[at] for at in watched.get(event, ())]
        for path in paths:
            if isinstance(path, int):
                continue  # a descriptor, whose open was seen
            if not os.path.realpath(str(path)).startswith(root + os.sep) and str(path) != root:
                outside.append(f"{event} {path}")

    store = Store.open(root, strict=True)
    store.get_or_build(Key("k", {"warm": "up"}), lambda: {"a": b""})
    sys.addaudithook(audit)
    nasty = strategies.sampled_from(
        [
            "..",
            "../../etc/passwd",
            "/etc/passwd",
            "a/b",
            "a\\b",
            "\x00",
            "a\x00b",
            "con",
            "NUL.txt",
            "COM1",
            "x" * 129,
            "x" * 4096,
            "kernel.o.",
            " ",
            "\u202eo.lenrek",
            "ker\u0578el.o",
            ".hidden",
            "-rf",
            "kernel.o",
            "manifest.json",
            "C:\\x",
            "%2e%2e",
            "~",
            "$HOME",
            "a:b",
        ]
    )
    names = nasty | strategies.text(max_size=40)

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(kind=names | strategies.just("k"), field=names, file=names | strategies.just("kernel.o"))
    @example(kind="k", field="..", file="kernel.o")
    @example(kind="k", field="a", file="../../escape")
    def attempt(kind: str, field: str, file: str) -> None:
        nonlocal writing
        count["tried"] += 1
        writing = True
        try:
            key = Key(kind, {field: file})
            entry, _ = store.get_or_build(key, lambda: {file: file.encode("utf-8", "replace")})
        except (InvalidKey, InvalidEntry):
            count["refused"] += 1
            return
        finally:
            writing = False
        count["stored"] += 1
        again = store.get(key)
        content = {file: file.encode("utf-8", "replace")}
        if again is None or dict(again.files) != content or dict(entry.files) != content:
            count["wrong"] += 1

    attempt()
    return {**count, "outside": len(outside)}
