"""The file format: what a stranger may write into it, and what the store says to that."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from crew import ROOT

import kernels_cache
from kernels_cache import EntryDamaged, Key, Store, entry, locks, publishing, reading
from kernels_cache import root as roots
from kernels_cache.statistics import Counter

KEY = Key("k", {"a": 1})
FILES = {"kernel.o": b"code", "log.txt": b""}
MANIFEST: dict[str, Any] = {
    "created": 1,
    "digest": KEY.digest,
    "fields": {"a": 1},
    "files": [{"name": "a", "sha256": hashlib.sha256(b"xy").hexdigest(), "size": 2}],
    "kind": "k",
    "maker": "somebody",
    "requires": {},
}


def forged(payload: bytes = b"xy", **changes: Any) -> bytes:
    """A file with intact digests and any manifest, written from the format page."""
    text = json.dumps({**MANIFEST, **changes}).encode()
    return _framed(text, payload)


def _framed(text: bytes, payload: bytes) -> bytes:
    line = f"kernels-cache 0001 {len(text):012d} {hashlib.sha256(text).hexdigest()} ".encode()
    checksum = hashlib.sha256(line).hexdigest()[:16].encode()
    return line + checksum + b"\n" + text + payload


def test_the_file_of_the_format_page() -> None:
    found = entry.unpack(forged(), KEY.digest, "here")
    assert found == entry.Entry(KEY.digest, "k", {"a": 1}, {"a": b"xy"}, {}, 1, "somebody")
    made = entry.make(KEY, FILES, {"cpu_features": ("avx",)})
    blob = entry.pack(made)
    line, rest = blob[: entry.HEADER_BYTES], blob[entry.HEADER_BYTES :]
    size = int(line[19:31])
    manifest = json.loads(rest[:size])
    assert line[:19] == b"kernels-cache 0001 "
    assert line[32:96].decode() == hashlib.sha256(rest[:size]).hexdigest()
    assert line[97:113].decode() == hashlib.sha256(line[:97]).hexdigest()[:16]
    assert rest[size:] == b"code"
    assert manifest["requires"] == {"cpu_features": ["avx"]}
    assert [item["name"] for item in manifest["files"]] == ["kernel.o", "log.txt"]
    assert abs(manifest["created"] - time.time()) < 60
    assert type(manifest["created"]) is int


FILE = MANIFEST["files"][0]
LIES: list[dict[str, Any]] = [
    {"files": {}},
    {"files": []},
    {"files": ["a"]},
    {"files": [{**FILE, "name": "../a"}]},
    {"files": [{**FILE, "name": 1}]},
    {"files": [FILE, {**FILE, "size": 0}]},
    {"files": [{**FILE, "size": -1}]},
    {"files": [{**FILE, "size": 2.0}]},
    {"files": [{**FILE, "size": 10**30}]},
    {"files": [{**FILE, "size": True}]},
    {"files": [{**FILE, "sha256": None}]},
    {"files": [{**FILE, "sha256": "0" * 64}]},
    {"files": [{"name": "a", "size": 2}]},
    {"digest": 1},
    {"digest": "0" * 64},
    {"kind": None},
    {"maker": []},
    {"created": "today"},
    {"created": 1.5},
    {"fields": []},
    {"fields": None},
    {"requires": "avx"},
]


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_a_manifest_that_is_none(lie: dict[str, Any]) -> None:
    with pytest.raises(EntryDamaged) as raised:
        entry.unpack(forged(**lie), KEY.digest, "here")
    assert raised.value.where == "here"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"files": 1' + b"1" * 5000 + b"}",
    ],
)
def test_a_manifest_that_is_no_json(text: bytes) -> None:
    with pytest.raises(EntryDamaged, match="manifest"):
        entry.unpack(_framed(text, b"xy"), KEY.digest, "here")


def test_fields_that_no_key_can_have() -> None:
    made = entry.make(KEY, FILES)
    assert entry.authentic(made)
    for fields in ({"a": 2}, {"path": "/tmp"}, {"a": float("nan")}):
        assert not entry.authentic(entry.Entry(**{**vars(made), "key_fields": fields}))


def test_a_manifest_longer_than_the_first_read(store: Store) -> None:
    wide = Key("k", {"text": "x" * 3 * reading._FIRST_BYTES})
    store.put(wide, {"a": b"y" * 100_000})
    (file,) = store.listing()
    found = store.manifest(file)
    assert found is not None
    assert found.key_fields == wide.fields
    assert dict(found.sizes) == {"a": 100_000}


def test_a_file_that_shrinks_while_it_is_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(KEY, FILES)
    path, real = store.root.entry(KEY.digest), os.read
    reads = iter([50, 60])

    def short(descriptor: int, size: int) -> bytes:
        return real(descriptor, min(size, next(reads, 0)))

    monkeypatch.setattr(os, "read", short)
    with pytest.raises(EntryDamaged):
        reading.read_entry(path, KEY.digest, store.root.owners)
    monkeypatch.undo()
    assert store.get(KEY).files == FILES


def test_reads_in_pieces(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(KEY, FILES)
    real = os.read
    monkeypatch.setattr(os, "read", lambda descriptor, size: real(descriptor, min(size, 7)))
    assert store.get(KEY).files == FILES


def test_a_link_that_leads_nowhere_is_damage(store: Store) -> None:
    store.root.prepare()
    path = Path(store.root.entry(KEY.digest))
    path.parent.mkdir()
    path.symlink_to("/no/such/file")
    gentle = Store.open(store.root.path, strict=False)
    with pytest.warns(UserWarning, match="symbolic link"):
        assert gentle.look_up(KEY).reason == "damaged"
    assert not path.is_symlink()


def test_an_error_of_the_disk_while_reading(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(KEY, FILES)

    def broken(descriptor: int, size: int) -> bytes:
        raise OSError(5, "Input/output error")

    gentle = Store.open(store.root.path, strict=False)
    monkeypatch.setattr(os, "read", broken)
    with pytest.warns(UserWarning, match="cannot read the cache: Input/output error"):
        miss = gentle.look_up(KEY)
    assert miss.reason == "unreadable"
    with pytest.raises(kernels_cache.StorageTrouble) as raised:
        store.get(KEY)
    assert raised.value.where == store.root.entry(KEY.digest)
    monkeypatch.undo()
    assert store.get(KEY) is not None  # it was not the entry's fault: it is still there


@pytest.mark.filterwarnings("ignore::kernels_cache.CacheWarning")
def test_damage_that_cannot_be_moved(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(KEY, FILES)
    path = Path(store.root.entry(KEY.digest))
    path.write_bytes(b"damaged")
    gentle = Store.open(store.root.path, strict=False)

    def refused(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "rename", refused)
    assert gentle.get(KEY) is None
    assert gentle.statistics.quarantined == 0
    # The next build simply replaces it.
    assert gentle.get_or_build(KEY, lambda: FILES)[1] is False
    assert gentle.get(KEY).files == FILES
    monkeypatch.undo()
    assert publishing.set_aside(gentle.root, str(path.with_name("absent"))) is True


def test_a_rename_that_fails_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(os, "replace", refused)
    with pytest.raises(kernels_cache.StorageTrouble, match="busy"):
        store.put(KEY, FILES)
    monkeypatch.undo()
    assert store.get(KEY) is None
    assert list(Path(store.root.path, "temporary").iterdir()) == []


def test_a_lock_within_its_own_build(root: Path) -> None:
    """A build that asks for its own key cannot wait for itself: it builds uncached."""
    store = Store.open(root, strict=False, lock_timeout_s=0.3)

    def build() -> dict[str, bytes]:
        inner, hit = store.get_or_build(KEY, lambda: {"kernel.o": b"inner"})
        assert (dict(inner.files), hit) == ({"kernel.o": b"inner"}, False)
        return FILES

    with pytest.warns(kernels_cache.CacheWarning):
        assert store.get_or_build(KEY, build)[0].files == FILES
    assert store.get(KEY).files == FILES


def test_builds_of_several_keys_nest(store: Store) -> None:
    other = Key("runtime", {"b": 1})

    def build() -> dict[str, bytes]:
        return {"kernel.o": store.get_or_build(other, lambda: {"r": b"runtime"})[0].files["r"]}

    assert store.get_or_build(KEY, build)[0].files == {"kernel.o": b"runtime"}
    assert store.get(other).files == {"r": b"runtime"}
    assert set(store.used) == {KEY.digest, other.digest}


def test_a_timeout_without_a_known_holder(root: Path) -> None:
    path = str(root.with_name("some.lock"))
    with locks.build_lock(path, 1.0):
        for text in (None, "no json", "[]", '{"pid": "x"}', "{}"):
            holder = Path(f"{path}.holder")
            holder.unlink(missing_ok=True)
            if text is not None:
                holder.write_text(text)
            with pytest.raises(kernels_cache.LockTimeout, match="holder unknown") as raised:
                _other_thread(lambda: locks.build_lock(path, 0.0).__enter__())
            assert (raised.value.pid, raised.value.host, raised.value.age_s) == (0, "", -1.0)
    assert not Path(path).exists()


def _other_thread(work: Any) -> None:
    import threading

    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    raise raised[0]


def test_the_root_of_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    import platformdirs

    def newer(*_: Any, **__: Any) -> str:
        raise RuntimeError("could not determine the home directory")

    for fake in (newer, lambda *_, **__: "~/.cache/halide_backend"):
        monkeypatch.setattr(platformdirs, "user_cache_dir", fake)
        with pytest.raises(kernels_cache.StorageTrouble, match="no home directory"):
            roots.default_path()
        with pytest.raises(kernels_cache.StorageTrouble, match="no home directory"):
            Store.open(strict=True)
    with pytest.warns(kernels_cache.CacheWarning, match="no home directory") as given:
        store = Store.open(strict=False)
        assert store.put(KEY, FILES).files == FILES
        assert store.get_or_build(KEY, lambda: FILES)[1] is False
    assert len(given) == 1
    # It finds nothing, keeps nothing, and still answers everything.
    assert (store.get(KEY), store.entry_of(KEY.digest), store.discard(KEY)) == (None, None, False)
    assert (store.listing(shared=True), list(store.verify()), store.prune().entries) == ([], [], 0)
    assert store.statistics.stored == 0


def test_the_default_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert Store.open(strict=True).root.path == str(tmp_path / "xdg" / "halide_backend")
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(tmp_path / "asked"))
    assert Store.open(strict=True).root.path == str(tmp_path / "asked")
    assert Store.open(tmp_path / "named", strict=True).root.path == str(tmp_path / "named")
    assert Store.open(folder="part", strict=True).root.path == str(tmp_path / "asked" / "part")


def test_a_folder_of_the_roots_is_a_store_apart(tmp_path: Path) -> None:
    there = Store.open(tmp_path / "shared", folder="part", strict=True)
    there.put(KEY, FILES)
    here = Store.open(tmp_path / "root", folder="part", readonly_roots=[tmp_path / "shared"], strict=True)
    assert here.get(KEY).files == FILES
    assert Store.open(tmp_path / "shared", strict=True).get(KEY) is None


def test_rights_as_one_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The matrix of test_rights.py once more, in this process and without changing users."""
    below = tmp_path / "above" / "cache"
    below.mkdir(parents=True, mode=0o700)
    me = os.geteuid()
    assert roots.check(str(below)) == {me, 0}
    real = os.stat

    def owned(path: Any, uid: int, **named: Any) -> os.stat_result:
        found = real(path, **named)
        values = list(found)
        if str(path) == str(below.parent):
            values[stat.ST_UID] = uid
        return os.stat_result(values)

    monkeypatch.setattr(os, "stat", lambda path, **named: owned(path, 4711, **named))
    with pytest.raises(kernels_cache.RootUntrusted, match="user 4711 can replace"):
        roots.check(str(below))
    monkeypatch.undo()
    real_read = Path.read_text

    def no_map(path: Path, *rest: Any, **named: Any) -> str:
        if str(path) == "/proc/self/uid_map":
            raise FileNotFoundError(path)
        return real_read(path, *rest, **named)

    monkeypatch.setattr(Path, "read_text", no_map)
    assert roots._unmapped(65534) is False


def test_counts_survive_a_fork_in_any_moment() -> None:
    """A thread may hold the lock of the counter when another one forks."""
    script = """
import os, threading
from kernels_cache.statistics import Counter
counter = Counter()
counter._lock.acquire()
pid = os.fork()
if pid == 0:
    counter.add("hits")
    os._exit(counter.snapshot().hits)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "1", done.stderr


def test_counts_from_many_threads() -> None:
    import threading

    counter = Counter()
    crew = [threading.Thread(target=lambda: [counter.add("hits", 2) for _ in range(500)]) for _ in range(8)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    assert counter.snapshot().hits == 8000


def test_the_statistics_of_a_store(root: Path) -> None:
    store = Store.open(root, strict=True)
    store.get(KEY)
    store.get_or_build(KEY, lambda: FILES)
    store.get_or_build(KEY, lambda: FILES)
    store.put(Key("k", {"a": 2}), FILES, requires={"x": 1})
    store.get(Key("k", {"a": 2}), provides={})
    assert store.statistics == kernels_cache.Statistics(hits=1, misses=3, stored=2, built=1, refused=1)


def test_an_entry_that_came_while_we_waited(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second look, under the lock, is a hit for the caller and builds nothing."""
    store, other = Store.open(root, strict=True), Store.open(root, strict=True)
    real = locks.build_lock

    def slow(path: str, timeout_s: float) -> Any:
        other.put(KEY, FILES)
        return real(path, timeout_s)

    monkeypatch.setattr(locks, "build_lock", slow)
    entry_, hit = store.get_or_build(KEY, lambda: pytest.fail("built again"))
    assert (dict(entry_.files), hit) == (FILES, True)
    assert store.used == (KEY.digest,)
    assert list((root / "locks").glob("*.lock")) in ([], [root / "locks" / "ledger.lock"])
