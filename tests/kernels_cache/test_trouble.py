"""K5, K12: the operating system may refuse anything, at any moment; the result stays right."""

from __future__ import annotations

import errno
import fcntl
import itertools
import logging
import os
import random
import shutil
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from crew import scenario

from kernels_cache import (
    CacheTrouble,
    CacheWarning,
    EntryTooLarge,
    Key,
    StorageTrouble,
    Store,
    trouble,
)

Figure = Callable[[str, str, str], None]
ERRORS = [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES]
CALLS = "open close read write fsync replace rename mkdir stat lstat fstat scandir unlink utime"
SHORT = [(errno.ENOSPC, True), (errno.EACCES, False)]  # error, and whether it is for ever
LONG = pytest.mark.long
WANTED = {"kernel.o": b"machine code" * 100}


class Fault:
    """Raises an error of the operating system at its n-th call, or from there on."""

    def __init__(self, at: int, code: int, sticky: bool) -> None:
        self.at, self.code, self.sticky = at, code, sticky
        self.calls = 0

    def strikes(self) -> bool:
        self.calls += 1
        return self.calls == self.at or (self.sticky and self.calls > self.at)

    @contextmanager
    def armed(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for module, names in ((os, CALLS.split()), (fcntl, ["flock"])):
                for name in names:
                    patch.setattr(module, name, self._wrapped(name, getattr(module, name)))
            yield

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            # A failed unlock leaves the lock to the end of the process, and "the next program"
            # below is this very process.
            if (name == "flock" and arguments[1] == fcntl.LOCK_UN) or not self.strikes():
                return real(*arguments, **named)
            if name == "close":  # the descriptor is gone all the same
                real(*arguments, **named)
            raise OSError(self.code, os.strerror(self.code))

        return call


def cold(root: Path) -> Store:
    return Store.open(root, strict=False, lock_timeout_s=0.2)


def warm(root: Path) -> Store:
    Store.open(root, strict=True).put(Key("k", {"wanted": 1}), WANTED)
    return cold(root)


def full(root: Path) -> Store:
    filled = Store.open(root, strict=True)
    for number in range(4):
        filled.put(Key("k", {"old": number}), {"a": b"x" * 900})
    return Store.open(root, strict=False, lock_timeout_s=0.2, max_bytes=5000)


def damaged(root: Path) -> Store:
    warm(root)
    path = next((root / "entries").rglob("*.v1"))
    path.write_bytes(path.read_bytes()[:-1])
    return cold(root)


@pytest.mark.parametrize("prepared", [cold, warm, full, damaged])
@pytest.mark.parametrize("cases", [SHORT, pytest.param(list(itertools.product(ERRORS, [False, True])), marks=LONG)])
def test_any_call_may_fail(
    tmp_path: Path,
    figure: Figure,
    prepared: Callable[[Path], Store],
    cases: list[tuple[int, bool]],
) -> None:
    key, faults = Key("k", {"wanted": 1}), 0
    for code, sticky in cases:
        for at in range(1, 1000):
            root = tmp_path / f"{code}-{sticky}-{at}"
            store = prepared(root)
            trouble.forget()
            fault = Fault(at, code, sticky)
            with warnings.catch_warnings(record=True) as given:
                warnings.simplefilter("always")
                with fault.armed():
                    entry, _ = store.get_or_build(key, lambda: WANTED)
            assert dict(entry.files) == WANTED
            ours = [one for one in given if one.category is CacheWarning]
            # The damaged entry is a trouble of its own: it is what the one warning is about.
            assert len(ours) == min(1, store.statistics.troubles) <= 1
            assert store.statistics.warnings == len(ours)
            # Whatever was left on disk, the next program works, strictly.
            after = Store.open(root, strict=prepared is not damaged, lock_timeout_s=5.0)
            assert dict(after.get_or_build(key, lambda: WANTED)[0].files) == WANTED
            assert after.get(key) is not None
            shutil.rmtree(root)
            if fault.calls < at:
                break
            faults += 1
        else:
            raise AssertionError("a put that takes a thousand system calls")
        assert at > 4
    figure(
        f"K5.{prepared.__name__}",
        f"call n fails once or for ever, every n, {len(dict(cases))} errors, {prepared.__name__} store",
        f"{faults} faults, {faults} right results, never more than 1 warning",
    )


def test_a_failure_is_never_cached(store: Store) -> None:
    key = Key("k", {"a": 1})
    error = KeyError("out of space")

    def fails() -> dict[str, bytes]:
        raise error

    for _ in range(2):
        with pytest.raises(KeyError) as raised:
            store.get_or_build(key, fails)
        assert raised.value is error
    assert store.get(key) is None
    assert list((Path(store.root.path) / "entries").rglob("*.*")) == []
    entry, hit = store.get_or_build(key, lambda: WANTED)
    assert (dict(entry.files), hit) == (WANTED, False)
    assert store.statistics.built == 1


def test_every_trouble_after_the_first_is_only_logged(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    root.write_text("a file")
    with pytest.warns(CacheWarning) as given, caplog.at_level(logging.DEBUG, "kernels_cache"):
        for _ in range(3):
            store = Store.open(root, strict=False)
            assert store.get_or_build(Key("k", {}), lambda: WANTED)[0].files == WANTED
    assert len(given) == 1
    assert "not a directory" in str(given[0].message)
    assert "HALIDE_BACKEND_CACHE_DIR" in str(given[0].message)
    assert len(caplog.records) == 3


def test_warnings_as_errors_do_not_break_the_program(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    root.write_text("a file")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = Store.open(root, strict=False)
        assert store.get_or_build(Key("k", {}), lambda: WANTED)[0].files == WANTED
    assert "not a directory" in caplog.text


def test_the_strict_switch(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.write_text("a file")
    for value, strict in (("1", True), ("true", True), ("0", False), ("", False)):
        monkeypatch.setenv("HALIDE_BACKEND_CACHE_STRICT", value)
        trouble.forget()
        if strict:
            with pytest.raises(CacheTrouble, match="not a directory"):
                Store.open(root)
        else:
            with pytest.warns(CacheWarning):
                Store.open(root)


def test_an_entry_larger_than_the_store(root: Path) -> None:
    key = Key("k", {})
    with pytest.raises(EntryTooLarge, match="bounded to 100"):
        Store.open(root, strict=True, max_bytes=100).put(key, WANTED)
    store = Store.open(root, strict=False, max_bytes=100)
    with pytest.warns(CacheWarning, match="bounded to 100"):
        assert store.get_or_build(key, lambda: WANTED)[0].files == WANTED
    assert store.get(key) is None


def test_the_directory_is_removed_under_a_running_program(root: Path, store: Store) -> None:
    key = Key("k", {})
    for _ in range(3):
        assert store.get_or_build(key, lambda: WANTED)[1] is False
        assert store.get_or_build(key, lambda: WANTED)[1] is True
        shutil.rmtree(root)
    assert store.statistics.troubles == 0


def test_a_real_full_disk(tmp_path: Path, figure: Figure) -> None:
    mounted = tmp_path / "disk"
    mounted.mkdir()
    prefix = mount_prefix(mounted, "size=1m")
    answer = scenario("trouble", "full_disk", prefix=prefix, root=str(mounted / "cache"))
    assert answer["right"] == answer["asked"] == 12
    assert 0 < answer["stored"] < 12
    assert answer["warnings"] == 1
    assert "No space left" in answer["text"]
    assert answer["damaged"] == 0
    figure(
        "K5.tmpfs",
        "12 entries of 150 KiB on a real 1 MiB file system",
        f"{answer['right']} right results, {answer['warnings']} warning, {answer['damaged']} damaged",
    )


def mount_prefix(directory: Path, options: str) -> list[str]:
    """A command prefix that gives one process its own file system at `directory`."""
    unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    mount = f'mount -t tmpfs -o {options},mode=700 none "{directory}" && exec "$@"'
    prefix = [*unshare, "sh", "-c", mount, "sh"]
    try:
        subprocess.run([*prefix, "true"], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"this machine lets us mount nothing: {error}")
    return prefix


class Network:
    """A file system that shows renames late and fails clean-up: what NFS clients see."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.visible: dict[str, float] = {}
        self.hidden = self.busy = self.done_and_failed = 0

    @contextmanager
    def armed(self) -> Iterator[None]:
        real = {name: getattr(os, name) for name in ("replace", "open", "lstat", "unlink", "read")}

        def late(path: Any) -> None:
            if time.monotonic() < self.visible.get(str(path), 0.0):
                self.hidden += 1
                raise FileNotFoundError(errno.ENOENT, "not yet", str(path))

        def replace(source: Any, target: Any) -> None:
            real["replace"](source, target)
            self.visible[str(target)] = time.monotonic() + self.choose.random() * 0.01
            if self.choose.random() < 0.3:
                self.done_and_failed += 1
                raise OSError(self.choose.choice([errno.EBUSY, errno.ESTALE]), "done, and said no")

        def opened(path: Any, *rest: Any, **named: Any) -> int:
            late(path)
            return real["open"](path, *rest, **named)

        def lstat(path: Any, **named: Any) -> os.stat_result:
            late(path)
            return real["lstat"](path, **named)

        def unlink(path: Any, **named: Any) -> None:
            if self.choose.random() < 0.3:
                self.busy += 1
                raise OSError(errno.EBUSY, "busy", str(path))
            real["unlink"](path, **named)

        def read(descriptor: int, size: int) -> bytes:
            if size > 43 and self.choose.random() < 0.1:
                raise OSError(errno.ESTALE, "stale handle")
            return real["read"](descriptor, size)

        with pytest.MonkeyPatch.context() as patch:
            for name, fake in (
                ("replace", replace),
                ("open", opened),
                ("lstat", lstat),
                ("unlink", unlink),
                ("read", read),
            ):
                patch.setattr(os, name, fake)
            yield


@pytest.mark.parametrize("runs", [200, pytest.param(1000, marks=LONG)])
def test_late_visibility(root: Path, figure: Figure, runs: int) -> None:
    network, builds = Network(1), 0
    store = Store.open(root, strict=True, max_bytes=20_000)  # strict: any report would raise
    with network.armed():
        for number in range(runs):
            key = Key("k", {"number": number % 40})
            content = {"a": b"%d" % (number % 40) * 100}
            entry, hit = store.get_or_build(key, lambda content=content: content)
            assert dict(entry.files) == content
            found = store.get(key)
            assert found is None or dict(found.files) == content
            builds += not hit
    # Every build was published, also where the system said no after doing it.
    assert store.statistics.stored == builds
    assert min(network.hidden, network.busy, network.done_and_failed) > 10
    assert store.statistics.troubles == 0
    figure(
        "K12",
        f"{runs} runs with late visibility, EBUSY and ESTALE after success",
        f"0 crashes, {network.done_and_failed} done-and-failed renames, 0 reported as failure",
    )


def test_errors_say_what_where_and_what_to_do() -> None:
    error = StorageTrouble("disk full", "/cache", "Make room.")
    assert str(error) == "disk full (/cache). Make room."
    assert (error.what, error.where, error.cure) == ("disk full", "/cache", "Make room.")
