"""Who may write what, run in a fresh interpreter by crew.scenario, as an ordinary user."""

from __future__ import annotations

import os
import stat
import tempfile
import warnings
from pathlib import Path
from typing import Any

import platformdirs

from kernels_cache import CacheTrouble, Key, Store, bundle

STRANGER = 54321
KEY = Key("k", {"a": 1})
FILES = {"kernel.o": b"code"}


def drop(uid: int) -> None:
    """Become an ordinary user, if we are root."""
    if os.geteuid() == 0:
        # Python itself may lie where only root can read: import all that is imported late.
        with tempfile.TemporaryDirectory() as scratch:
            Store.open(scratch).get_or_build(KEY, lambda: FILES)
            bundle.export_bundle(Store.open(scratch), scratch + "/bundle")
            bundle.import_bundle(Store.open(scratch), scratch + "/bundle")
        platformdirs.user_cache_dir("x")
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)


def outcome(uid: int, root: str | None, home: str | None = None) -> dict[str, Any]:
    """Ask for a kernel, gently and strictly, and tell what happened."""
    os.umask(0)
    drop(uid)
    for name in ("HOME", "XDG_CACHE_HOME"):
        os.environ.pop(name, None)
    if home is not None:
        os.environ["HOME"] = home
    answer: dict[str, Any] = {"uid": os.geteuid(), "strict": None}
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        store = Store.open(root, strict=False)
        found = store.get(KEY)
        answer["read"] = None if found is None else found.files["kernel.o"].decode()
        entry, hit = store.get_or_build(KEY, lambda: FILES)
        answer |= {"content": entry.files["kernel.o"].decode(), "hit": hit}
        store.get_or_build(Key("k", {"another": 1}), lambda: FILES)
    answer |= {"stored": store.statistics.stored, "warnings": len(given)}
    answer["path"] = store.root.path if store.root else None
    try:
        Store.open(root, strict=True).put(KEY, FILES)
    except CacheTrouble as error:
        answer |= {"strict": type(error).__name__, "text": str(error)}
    if store.root is not None and os.path.isdir(store.root.path):
        answer["modes"] = sorted(_modes(Path(store.root.path)))
    return answer


def _modes(root: Path) -> set[str]:
    modes = set()
    for path in [root, *root.rglob("*")]:
        state = path.lstat()
        letter = "d" if stat.S_ISDIR(state.st_mode) else "f"
        modes.add(f"{letter}{stat.S_IMODE(state.st_mode):04o}")
    return modes


def export(uid: int, root: str, path: str) -> dict[str, Any]:
    """K15, machine A: build some kernels and export those of this run."""
    drop(uid)
    store = Store.open(root, strict=True)
    store.put(Key("k", {"of": "another run"}), FILES)
    store = Store.open(root, strict=True)
    for number in range(20):
        for target in ("x86-64-linux-avx2", "x86-64-linux-avx512"):
            key = Key("cpu-object", {"text": f"kernel {number}", "target": target})
            store.get_or_build(
                key,
                lambda number=number, target=target: {"kernel.o": f"{number} {target}".encode()},
                requires={"cpu_features": [target.rsplit("-", 1)[1]]},
            )
    done = bundle.export_bundle(store, path, store.used)
    os.chmod(path, 0o644)
    return {"sha256": done.sha256, "entries": len(done.digests), "uid": os.geteuid()}


def use(uid: int, root: str, path: str, sha256: str) -> dict[str, Any]:
    """K15, machine B: import, then ask for the same kernels in another place."""
    drop(uid)
    os.chdir(root.rsplit("/", 1)[0])
    os.environ["CUDA_VISIBLE_DEVICES"] = "3"
    store = Store.open(root, strict=True)
    done = bundle.import_bundle(store, path, sha256=sha256)
    for file in store.listing():
        os.utime(file.path, (0, int(file.used)))  # a file system that keeps whole seconds
    builds, wrong, refused = 0, 0, []
    for number in range(20):
        for target in ("x86-64-linux-avx2", "x86-64-linux-avx512"):
            key = Key("cpu-object", {"text": f"kernel {number}", "target": target})
            miss = store.look_up(key, provides={"cpu_features": ["avx", "avx2"]})
            if target.endswith("avx512"):
                refused.append(str(getattr(miss, "refusal", None)))
                continue
            entry, hit = store.get_or_build(key, lambda: {"kernel.o": b"built"})
            builds += not hit
            wrong += entry.files["kernel.o"] != f"{number} {target}".encode()
    return {
        "imported": len(done.stored),
        "builds": builds,
        "wrong": wrong,
        "refused": sorted(set(refused)),
        "uid": os.geteuid(),
    }
