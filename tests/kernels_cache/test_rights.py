"""K6: who may write the cache; every case has the outcome that the documents promise."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crew import scenario
from test_trouble import mount_prefix

from kernels_cache import CacheWarning, Key, Miss, RootUntrusted, StorageTrouble, Store, sweep
from kernels_cache import root as roots

Figure = Callable[[str, str, str], None]
ROOT = os.geteuid() == 0
USER = 12345 if ROOT else os.geteuid()
STRANGER = 54321
KEY = Key("k", {"a": 1})
FILES = {"kernel.o": b"code"}
ASKED: list[str | None] = []  # of each case of the matrix, the error that strict mode raised
ONLY_ROOT = pytest.mark.skipif(not ROOT, reason="only root can make files of somebody else")


@pytest.fixture
def base() -> Iterator[Path]:
    """A private directory of an ordinary user, below a sticky one."""
    made = Path(tempfile.mkdtemp(prefix="kernels-cache-"))
    os.chown(made, USER, -1)
    yield made
    shutil.rmtree(made)


def ask(root: Path | None, **more: Any) -> dict[str, Any]:
    answer: dict[str, Any] = scenario("rights", "outcome", uid=USER, root=None if root is None else str(root), **more)
    # In every case: the program has its result, as the user we meant, with one warning at most.
    assert answer["content"] == "code"
    assert answer["uid"] == USER
    assert answer["warnings"] <= 1
    ASKED.append(answer["strict"])
    return answer


def owned(path: Path, mode: int, uid: int = USER) -> Path:
    path.mkdir(mode=0o700)
    path.chmod(mode)
    if ROOT:
        os.chown(path, uid, uid)
    return path


def refused(answer: dict[str, Any], text: str) -> None:
    assert answer["strict"] == "RootUntrusted"
    assert text in answer["text"]
    assert "HALIDE_BACKEND_CACHE_DIR" in answer["text"]
    assert (answer["stored"], answer["warnings"]) == (0, 1)


def test_a_new_root_is_private_whatever_the_umask(base: Path) -> None:
    answer = ask(base / "a" / "b")
    assert answer["strict"] is None
    assert answer["warnings"] == 0
    # umask 0: the lock of filelock, the ledger, the entry, all directories.
    assert answer["modes"] == ["d0700", "f0600"]
    assert stat.S_IMODE((base / "a").stat().st_mode) == 0o700


def test_home_decides_the_default_root(base: Path) -> None:
    answer = ask(None, home=str(base))
    assert answer["path"] == str(base / ".cache" / "halide_backend")
    assert answer["warnings"] == 0
    assert answer["stored"] == 2


@pytest.mark.skipif(not ROOT, reason="only root can become a user without a home directory")
def test_no_home(base: Path) -> None:
    answer = ask(None)
    assert answer["strict"] == "StorageTrouble"
    assert "no home directory" in answer["text"]
    assert "HALIDE_BACKEND_CACHE_DIR" in answer["text"]
    assert (answer["stored"], answer["warnings"], answer["path"]) == (0, 1, None)


def test_a_read_only_root_is_read(base: Path) -> None:
    root = base / "cache"
    assert ask(root)["stored"] == 2
    for path in [root, *root.rglob("*")]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    answer = ask(root)
    assert (answer["read"], answer["hit"]) == ("code", True)
    assert (answer["stored"], answer["warnings"]) == (0, 0)
    assert answer["strict"] == "StorageTrouble"
    shutil.rmtree(root / "entries")
    answer = ask(root)
    assert (answer["read"], answer["stored"], answer["warnings"]) == (None, 0, 1)


@ONLY_ROOT
def test_a_foreign_root(base: Path) -> None:
    refused(ask(owned(base / "cache", 0o755, STRANGER)), f"belongs to user {STRANGER}")


def test_a_foreign_root_by_another_name(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same without the rights to make one: it is us who are somebody else."""
    Store.open(root, strict=True).put(KEY, FILES)
    if ROOT:
        os.chown(root, STRANGER, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    with pytest.raises(RootUntrusted, match="belongs to user"):
        Store.open(root, strict=True)
    with pytest.warns(CacheWarning, match="belongs to user"):
        assert Store.open(root, strict=False).get(KEY) is None


def test_a_root_that_others_can_write(base: Path) -> None:
    refused(ask(owned(base / "all", 0o777)), "others can write the cache directory (mode 0777)")
    refused(ask(owned(base / "group", 0o770)), "others can write the cache directory (mode 0770)")
    refused(ask(owned(base / "sticky", 0o1777)), "others can write")
    assert ask(owned(base / "fine", 0o755))["strict"] is None


def test_a_root_that_others_can_replace(base: Path) -> None:
    above = owned(base / "above", 0o777)
    refused(ask(owned(above / "cache", 0o700)), "others can replace the cache directory (mode 0777)")
    sticky = owned(base / "sticky", 0o1777)
    assert ask(owned(sticky / "cache", 0o700))["strict"] is None


@ONLY_ROOT
def test_a_root_below_a_stranger(base: Path) -> None:
    above = owned(base / "above", 0o755, STRANGER)
    refused(ask(owned(above / "cache", 0o700)), f"user {STRANGER} can replace the cache directory")


def test_a_symbolic_link_as_root(base: Path) -> None:
    real = owned(base / "real", 0o700)
    link = base / "link"
    link.symlink_to(real)
    os.chown(link, USER, -1, follow_symlinks=False)
    assert ask(link)["stored"] == 2
    assert list(real.rglob("*.v1"))
    if ROOT:
        os.chown(link, STRANGER, -1, follow_symlinks=False)
        refused(ask(link), "somebody else's symbolic link")


def test_a_link_to_what_others_can_write(base: Path) -> None:
    real = owned(base / "real", 0o777)
    (base / "link").symlink_to(real)
    refused(ask(base / "link"), "others can write")


def test_a_root_that_is_a_file(base: Path) -> None:
    (base / "cache").write_text("not a directory")
    os.chown(base / "cache", USER, -1)
    refused(ask(base / "cache"), "not a directory")


@pytest.mark.parametrize("place", ["/proc/nope", "/proc/self/fd/no/such", "/dev/null/x", "x" * 300])
def test_a_place_where_no_directory_can_be(tmp_path: Path, place: str) -> None:
    """/proc says of a new directory that it is not found, though all above it is there."""
    store = Store.open(tmp_path / place, strict=False)
    with pytest.warns(CacheWarning, match="HALIDE_BACKEND_CACHE_DIR") as given:
        for _ in range(2):
            entry, hit = store.get_or_build(KEY, lambda: FILES)
            assert (dict(entry.files), hit) == (FILES, False)
    assert len(given) == 1
    with pytest.raises(StorageTrouble):
        Store.open(tmp_path / place, strict=True).put(KEY, FILES)


def test_a_symbolic_link_as_lock(root: Path) -> None:
    """The link's target is not touched; the caller builds uncached."""
    store = Store.open(root, strict=True)
    store.put(Key("k", {"other": 1}), FILES)
    victim = root.with_name("victim")
    victim.write_text("precious")
    (root / "locks" / f"{KEY.digest}.lock").symlink_to(victim)
    gentle = Store.open(root, strict=False)
    with pytest.warns(CacheWarning, match="cannot lock"):
        assert gentle.get_or_build(KEY, lambda: FILES)[0].files == FILES
    assert victim.read_text() == "precious"
    assert gentle.statistics.stored == 0


@pytest.mark.parametrize("name", ["ledger", "locks/ledger.lock"])
def test_a_symbolic_link_as_ledger(root: Path, name: str) -> None:
    Store.open(root, strict=True).put(Key("k", {"other": 1}), FILES)
    victim = root.with_name("victim")
    victim.write_text("precious")
    (root / name).unlink(missing_ok=True)  # some releases of filelock remove their files
    (root / name).symlink_to(victim)
    gentle = Store.open(root, strict=False)
    with pytest.warns(CacheWarning, match="cannot store"):
        assert gentle.get_or_build(KEY, lambda: FILES)[0].files == FILES
    assert victim.read_text() == "precious"


@pytest.mark.filterwarnings("ignore::kernels_cache.CacheWarning")
def test_an_entry_that_others_can_write(root: Path) -> None:
    store = Store.open(root, strict=False)
    store.put(KEY, FILES)
    path = Path(store.root.entry(KEY.digest))
    for spoil in (lambda: path.chmod(0o620), lambda: os.chown(path, STRANGER, -1)):
        if spoil.__code__.co_names[0] == "os" and not ROOT:
            continue  # only root can give a file away
        store.put(KEY, FILES)
        spoil()
        found = store.look_up(KEY)
        assert isinstance(found, Miss)
        assert found.reason == "damaged"
        assert "can write it" in found.detail
        assert not path.exists()


def test_nothing_needs_to_be_executable(tmp_path: Path) -> None:
    mounted = tmp_path / "disk"
    mounted.mkdir()
    prefix = mount_prefix(mounted, "noexec")
    answer = scenario("trouble", "noexec", prefix=prefix, root=str(mounted / "cache"))
    assert answer == {"noexec": True, "hits": [False, True], "content": "code", "troubles": 0}


def test_a_shared_root_may_belong_to_anybody_but_not_be_writable(root: Path, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet"
    Store.open(fleet, strict=True).put(KEY, FILES)
    if ROOT:
        for path in [fleet, *fleet.rglob("*")]:
            os.chown(path, STRANGER, -1)
    fleet.chmod(0o755)
    store = Store.open(root, readonly_roots=[fleet], strict=True)
    before = sorted((path, path.stat().st_mtime_ns) for path in fleet.rglob("*"))
    entry, hit = store.get_or_build(KEY, lambda: {"kernel.o": b"built again"})
    assert (dict(entry.files), hit) == (FILES, True)
    assert sorted((path, path.stat().st_mtime_ns) for path in fleet.rglob("*")) == before
    fleet.chmod(0o775)
    store = Store.open(root, readonly_roots=[fleet], strict=False)
    with pytest.warns(CacheWarning, match="others can write"):
        assert store.get(KEY) is None


def test_the_environment_names_shared_roots(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, second = tmp_path / "fleet", tmp_path / "second"
    Store.open(second, strict=True).put(KEY, FILES)
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_SHARED", f"{fleet}{os.pathsep}{os.pathsep}{second}")
    store = Store.open(root, strict=True)
    assert [shared.path for shared in store.shared] == [str(fleet), str(second)]
    assert store.get_or_build(KEY, dict)[1] is True
    assert not root.exists() and not fleet.exists()
    # Who names them in a program does not mean the environment's.
    assert Store.open(root, readonly_roots=(), strict=True).get(KEY) is None


def test_the_private_root_comes_first(root: Path, tmp_path: Path) -> None:
    fleet, second = tmp_path / "fleet", tmp_path / "second"
    for place, text in ((root, b"private"), (fleet, b"fleet"), (second, b"second")):
        Store.open(place, strict=True).put(KEY, {"a": text})
    store = Store.open(root, readonly_roots=[fleet, second], strict=True)
    assert store.get(KEY).files == {"a": b"private"}
    store.discard(KEY)
    assert store.get(KEY).files == {"a": b"fleet"}
    (fleet / "entries" / KEY.digest[:2] / f"{KEY.digest}.v1").unlink()
    assert store.get(KEY).files == {"a": b"second"}


@pytest.mark.filterwarnings("ignore::kernels_cache.CacheWarning")
def test_damage_in_a_shared_root_is_skipped_and_left(root: Path, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet"
    Store.open(fleet, strict=True).put(KEY, FILES)
    path = fleet / "entries" / KEY.digest[:2] / f"{KEY.digest}.v1"
    path.write_bytes(path.read_bytes()[:-1])
    store = Store.open(root, readonly_roots=[fleet], strict=False)
    assert store.look_up(KEY).reason == "damaged"
    assert path.exists()
    assert store.get_or_build(KEY, lambda: FILES)[1] is False
    assert store.get(KEY).files == FILES


def test_owners_outside_of_a_container_are_trusted_as_its_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a rootless container the machine's root is 65534; on a plain machine that is nobody."""
    real = Path.read_text
    for uid_map, trusted in (("0 1000 1\n1 100000 65536\n", True), ("0 0 4294967295\n", False)):

        def fake(path: Path, *rest: Any, uid_map: str = uid_map, **named: Any) -> str:
            return uid_map if str(path) == "/proc/self/uid_map" else real(path, *rest, **named)

        monkeypatch.setattr(Path, "read_text", fake)
        assert roots._unmapped(65534) is trusted
        assert roots._unmapped(1000) is False


def test_the_environment_names_the_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(root))
    Store.open(strict=True).put(KEY, FILES)
    assert len(list(root.rglob("*.v1"))) == 1


def test_opening_creates_nothing(root: Path) -> None:
    store = Store.open(root, strict=True)
    assert store.get(KEY) is None
    assert store.listing() == []
    assert store.prune() == sweep.Swept(0, 0, (), 0, 0, 0)
    assert store.discard(KEY) is False
    assert list(store.verify()) == []
    assert not root.exists()


def test_how_many_cases_that_were(figure: Figure) -> None:
    """Last in the file: counts what `ask` was asked before."""
    refused = [error for error in ASKED if error is not None]
    figure(
        "K6",
        f"{len(ASKED)} roots that differ in owners, modes, links and what is above them",
        f"{len(ASKED)} right results, {len(refused)} typed errors with their cure in strict mode",
    )
