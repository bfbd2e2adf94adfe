"""K10, K11: the bound holds, the least recently used go first, left-overs stop nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from crew import scenario

from kernels_cache import Key, Store, publishing, sweep
from kernels_cache import store as stores
from kernels_cache.sweep import Limits

Figure = Callable[[str, str, str], None]


def key(number: int) -> Key:
    return Key("k", {"number": number})


def entry_path(root: Path, number: int) -> Path:
    digest = key(number).digest
    return root / "entries" / digest[:2] / f"{digest}.v1"


def put(store: Store, number: int, used: float | None = None, size: int = 1000) -> int:
    """Store an entry, last used `used` seconds ago; returns its size on disk."""
    store.put(key(number), {"a": b"x" * size})
    path = entry_path(Path(store.root.path), number)
    if used is not None:
        os.utime(path, (time.time() - used,) * 2)
    return path.stat().st_size


def present(root: Path, numbers: range) -> list[int]:
    return [number for number in numbers if entry_path(root, number).exists()]


@pytest.mark.parametrize(("puts", "bound"), [(60, 100_000), pytest.param(1250, 1_000_000, marks=pytest.mark.long)])
def test_eight_writers_and_one_bound(root: Path, figure: Figure, puts: int, bound: int) -> None:
    answer = scenario("bounds", "writers", root=str(root), processes=8, puts=puts, max_bytes=bound)
    assert answer["failed"] == 0
    assert answer["stored"] == 8 * puts + 1
    assert answer["measured"] > 20
    assert answer["entries"] == answer["stored"] - answer["evicted"]
    assert answer["last"] <= bound
    assert answer["highest"] <= bound
    # It is a cache, not a shredder: a full store stays mostly full.
    assert answer["last"] > 0.8 * bound
    figure(
        "K10",
        f"8 writers, {8 * puts} puts, bound {bound} bytes",
        f"{answer['highest']} bytes at the most ({answer['measured']} measurements), {answer['evicted']} evicted",
    )


def test_one_file_an_entry(store: Store, root: Path, figure: Figure) -> None:
    for number in range(300):
        store.get_or_build(key(number), lambda: {"a": b"1", "b": b"2", "c": b"3"})
    files = [path for path in root.rglob("*") if path.is_file()]
    entries = [path for path in files if path.suffix == ".v1"]
    assert len(entries) == 300
    assert {path.name for path in set(files) - set(entries)} <= {"ledger", "ledger.lock"}
    directories = [path for path in root.rglob("*") if path.is_dir()]
    assert len(directories) <= 256 + 4
    figure("K11", "300 entries of 3 files each, built under locks", f"{len(files)} files on disk")


def test_the_least_recently_used_go_first(root: Path) -> None:
    store = Store.open(root, strict=True)
    for number in range(10, 20):
        size = put(store, number, used=1000.0 - number)
    assert store.get(key(12)) is not None  # used now, so it is the youngest
    bounded = Store.open(root, strict=True, max_bytes=10 * size)
    put(bounded, 20)
    # One had to go for the new one: the oldest, and down to 90 % that is all.
    assert present(root, range(10, 21)) == [11, 12, 13, 14, 15, 16, 17, 18, 19, 20]
    put(bounded, 21)
    assert present(root, range(10, 22)) == [12, 13, 14, 15, 16, 17, 18, 19, 20, 21]
    put(bounded, 22)
    assert present(root, range(10, 23)) == [12, 14, 15, 16, 17, 18, 19, 20, 21, 22]
    assert bounded.statistics.evicted == 3


def test_a_sweep_leaves_room_for_the_next_puts(root: Path) -> None:
    store = Store.open(root, strict=True)
    for number in range(100, 200):
        size = put(store, number, used=1000.0 - number)
    bounded = Store.open(root, strict=True, max_bytes=100 * size)
    put(bounded, 200)
    assert present(root, range(100, 201)) == list(range(110, 201))
    assert bounded.statistics.evicted == 10


def test_last_use_is_kept_to_a_minute(store: Store, root: Path) -> None:
    put(store, 0, used=stores.TOUCH_AFTER_S - 5.0)
    before = entry_path(root, 0).stat().st_mtime_ns
    assert store.get(key(0)) is not None
    assert entry_path(root, 0).stat().st_mtime_ns == before
    put(store, 0, used=stores.TOUCH_AFTER_S + 5.0)
    assert store.get(key(0)) is not None
    assert time.time() - entry_path(root, 0).stat().st_mtime < 5.0
    os.utime(entry_path(root, 0), (time.time() + 9000.0,) * 2)  # another machine's clock
    assert store.get(key(0)) is not None
    assert time.time() - entry_path(root, 0).stat().st_mtime < 5.0


def test_looking_is_not_using(store: Store, root: Path) -> None:
    put(store, 0, used=500.0)
    before = entry_path(root, 0).stat().st_mtime_ns
    assert [problem for _, problem in store.verify()] == [None]
    assert store.manifest(store.listing()[0]).digest == key(0).digest
    assert store.entry_of(key(0).digest).files == {"a": b"x" * 1000}
    assert entry_path(root, 0).stat().st_mtime_ns == before
    assert store.used == (key(0).digest,)  # from the put


def test_replacing_an_entry_counts_it_once(root: Path) -> None:
    store = Store.open(root, strict=True)
    size = put(store, 0)
    bounded = Store.open(root, strict=True, max_bytes=3 * size)
    for _ in range(20):
        put(bounded, 0)
        put(bounded, 1)
    assert present(root, range(2)) == [0, 1]
    assert bounded.statistics.evicted == 0
    assert int((root / "ledger").read_text().split()[0]) == 2 * size


def test_discarding_makes_room(root: Path) -> None:
    store = Store.open(root, strict=True)
    size = put(store, 0)
    bounded = Store.open(root, strict=True, max_bytes=2 * size)
    for number in range(1, 10):
        put(bounded, number)
        assert bounded.discard(key(number)) is True
        assert bounded.discard(key(number)) is False
    assert present(root, range(10)) == [0]
    assert bounded.statistics.evicted == 0


@pytest.mark.parametrize("text", ["", "garbage", "1" * 42, "9" * 500, f"{7:020d} {1:020d}\n"])
def test_a_ledger_that_is_wrong(root: Path, text: str) -> None:
    store = Store.open(root, strict=True)
    size = sum(put(store, number) for number in range(3))
    (root / "ledger").write_text(text)
    size += put(store, 3)
    # Unreadable, or last swept in 1970: counted again. It never stops a put.
    assert present(root, range(4)) == [0, 1, 2, 3]
    assert (root / "ledger").read_text().split()[0] == f"{size:020d}"
    assert abs(int((root / "ledger").read_text().split()[1]) - time.time()) < 60


def test_a_ledger_that_says_too_much_costs_one_sweep(root: Path) -> None:
    store = Store.open(root, strict=True)
    size = put(store, 0)
    (root / "ledger").write_text(f"{10**12:020d} {int(time.time()):020d}\n")
    put(Store.open(root, strict=True, max_bytes=100 * size), 1)
    assert present(root, range(2)) == [0, 1]
    assert int((root / "ledger").read_text().split()[0]) == 2 * size


def litter(root: Path) -> list[Path]:
    """Everything that does not belong there, some of it named almost like our own."""
    digest = "ab" * 32
    made = [
        root / "entries" / "README.txt",
        root / "entries" / "ab" / "orphan",
        root / "entries" / "ab" / f"{digest}.json",
        root / "entries" / "zz" / f"{digest}.v1",
        root / "entries" / digest,
        root / "temporary" / "notes.tmp",
        root / "quarantine" / "mine",
        root / "locks" / "mine.lock",
        root / "something else" / "data",
    ]
    for path in made:
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("not ours")
        os.utime(path, (1.0, 1.0))
    (root / "entries" / "cd").symlink_to(root / "something else")
    (root / "entries" / "ef").write_text("a file where a directory should be")
    return made


def test_foreign_files_stop_nothing_and_are_left_alone(root: Path) -> None:
    store = Store.open(root, strict=True)
    size = put(store, 0, used=100.0)
    made = litter(root)
    bounded = Store.open(root, strict=True, max_bytes=3 * size)
    numbers = [n for n in range(1, 40) if key(n).digest[:2] not in ("ef", "cd")]
    for number in numbers:
        put(bounded, number)
    assert entry_path(root, numbers[-1]).exists()
    assert not entry_path(root, 0).exists()
    bounded.prune(0, Limits(entry_s=0.0, temporary_s=0.0, quarantine_s=0.0))
    assert bounded.listing() == []
    assert [path for path in made if not path.exists()] == []


def test_what_crashes_left_behind(root: Path) -> None:
    store = Store.open(root, strict=True)
    put(store, 0)
    old = time.time() - 601.0
    abandoned = root / "temporary" / f"{'a' * 32}.tmp"
    young = root / "temporary" / f"{'b' * 32}.tmp"
    alive = root / "temporary" / f"{'c' * 32}.tmp"
    lock = root / "locks" / f"{'d' * 64}.lock"
    for path in (abandoned, young, alive, lock):
        path.write_bytes(b"half an entry")
    for path in (abandoned, alive):
        os.utime(path, (old, old))
    with open(alive, "rb") as held:
        assert publishing.locks.hold_until_closed(held.fileno())
        done = store.prune()
        assert (done.temporary, done.locks, done.entries) == (1, 1, 1)
        assert [p.exists() for p in (abandoned, young, alive, lock)] == [False, True, True, False]
        # A day is too long for any writer: where locks do not work, age decides.
        os.utime(alive, (old - sweep.TEMPORARY_MAX_AGE_S,) * 2)
        assert store.prune().temporary == 1
    assert store.get(key(0)) is not None


@pytest.mark.filterwarnings("ignore::kernels_cache.CacheWarning")
def test_the_quarantine_is_bounded_too(root: Path) -> None:
    store = Store.open(root, strict=False)
    for number in range(sweep.QUARANTINE_MAX_FILES + 10):
        put(store, number)
        entry_path(root, number).write_bytes(b"damaged" * 10)
        assert store.get(key(number)) is None
    kept = list((root / "quarantine").iterdir())
    assert len(kept) == sweep.QUARANTINE_MAX_FILES + 10
    done = store.prune()
    kept = list((root / "quarantine").iterdir())
    assert (len(kept), done.quarantined) == (sweep.QUARANTINE_MAX_FILES, 10)
    assert done.bytes == 70 * len(kept)
    for path in kept:
        os.utime(path, (time.time() - 8 * 86_400.0,) * 2)
    assert store.prune().quarantined == sweep.QUARANTINE_MAX_FILES
    assert list((root / "quarantine").iterdir()) == []


def test_a_store_that_never_fills_is_swept_once_a_day(root: Path) -> None:
    store = Store.open(root, strict=True)
    put(store, 0)
    path = root / "temporary" / f"{'a' * 32}.tmp"
    path.write_bytes(b"")
    os.utime(path, (1.0, 1.0))
    put(store, 1)
    assert path.exists()
    total = (root / "ledger").read_text().split()[0]
    yesterday = int(time.time() - publishing.SWEEP_EVERY_S - 1.0)
    (root / "ledger").write_text(f"{total} {yesterday:020d}\n")
    put(store, 2)
    assert not path.exists()
    assert present(root, range(3)) == [0, 1, 2]


def test_prune_by_age_and_size(root: Path) -> None:
    store = Store.open(root, strict=True)
    for number in range(6):
        size = put(store, number, used=3600.0 * number)
    done = store.prune(limits=Limits(entry_s=3.5 * 3600.0))
    assert present(root, range(6)) == [0, 1, 2, 3]
    assert set(done.removed) == {key(4).digest, key(5).digest}
    done = store.prune(2 * size)
    assert present(root, range(6)) == [0, 1]
    assert (done.entries, done.bytes) == (2, 2 * size)
    assert store.statistics.evicted == 4
    assert store.prune(0).entries == 0
