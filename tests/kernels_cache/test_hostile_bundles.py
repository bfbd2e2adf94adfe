"""K7: what a stranger puts into a bundle: one typed error, and nothing of it is stored."""

from __future__ import annotations

import os
import random
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kernels_cache import (
    BundleRefused,
    CacheTrouble,
    Key,
    Store,
    bundle,
    entry,
)

Figure = Callable[[str, str, str], None]


def key(target: str, text: str = "kernel") -> Key:
    return Key("cpu-object", {"text": text, "target": target})


def packed(key: Key, files: dict[str, bytes] | None = None) -> bytes:
    return entry.pack(entry.make(key, files or {"kernel.o": b"code"}))


def hostile(path: Path, members: list[tuple[str, bytes, int]], method: int = 0) -> None:
    """Write a zip with these names, contents and Unix modes, whatever they are."""
    with zipfile.ZipFile(path, "w", method) as made:
        for name, content, mode in members:
            info = zipfile.ZipInfo("placeholder")
            info.filename, info.external_attr, info.compress_type = name, mode << 16, method
            made.writestr(info, content)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bundle.zip"


DIGEST = key("t").digest
NAME = f"{DIGEST}.v1"
GOOD = packed(key("t"))
REGULAR = stat.S_IFREG | 0o600
HOSTILE = {
    "absolute path": [("/tmp/escaped.v1", GOOD, REGULAR)],
    "parent directory": [(f"../{NAME}", GOOD, REGULAR)],
    "far parent": [(f"entries/../../../../{NAME}", GOOD, REGULAR)],
    "windows path": [(f"..\\{NAME}", GOOD, REGULAR)],
    "drive": [(f"C:{NAME}", GOOD, REGULAR)],
    "directory": [("entries/", b"", stat.S_IFDIR | 0o700)],
    "another file": [(NAME, GOOD, REGULAR), ("setup.py", b"", REGULAR)],
    "symbolic link": [(NAME, b"/etc/passwd", stat.S_IFLNK | 0o777)],
    "character device": [(NAME, GOOD, stat.S_IFCHR | 0o600)],
    "block device": [(NAME, GOOD, stat.S_IFBLK | 0o600)],
    "pipe": [(NAME, GOOD, stat.S_IFIFO | 0o600)],
    "socket": [(NAME, GOOD, stat.S_IFSOCK | 0o600)],
    "duplicate names": [(NAME, GOOD, REGULAR), (NAME, GOOD, REGULAR)],
    "one digest, two schemas": [(NAME, GOOD, REGULAR), (f"{DIGEST}.v2", GOOD, REGULAR)],
    "NUL in the name": [(f"{NAME}\0.txt", GOOD, REGULAR)],
    "upper case": [(NAME.upper(), GOOD, REGULAR)],
    "newline": [(f"{NAME}\n", GOOD, REGULAR)],
    "another entry's name": [(f"{key('u').digest}.v1", GOOD, REGULAR)],
    "a damaged entry": [(NAME, GOOD[:-1] + b"?", REGULAR)],
    "not an entry": [(NAME, b"import os", REGULAR)],
    "empty": [(NAME, b"", REGULAR)],
    "a good one, then a bad one": [(NAME, GOOD, REGULAR), (f"{'f' * 64}.v1", b"x", REGULAR)],
    "a bomb of 1:1000": [(NAME, b"\0" * 40_000_000, REGULAR)],
    "many small ones": [(f"{number:064x}.v1", b"\0" * 400_000, REGULAR) for number in range(30)],
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_bundle_stores_nothing(tmp_path: Path, root: Path, path: Path, case: str) -> None:
    if case == "NUL in the name":
        hostile(path, [(NAME + "_.txt", GOOD, REGULAR)])
        path.write_bytes(path.read_bytes().replace(b".v1_.txt", b".v1\0.txt"))
    else:
        with pytest.warns(UserWarning) if "duplicate" in case else _nothing():
            hostile(path, HOSTILE[case], zipfile.ZIP_DEFLATED)
    store = Store.open(root, strict=True, max_bytes=10_000_000)
    places = [tmp_path.parent, tmp_path.parent.parent, Path.cwd(), Path("/tmp")]
    before = [_names(place) for place in places]
    with pytest.raises(BundleRefused) as raised:
        bundle.import_bundle(store, str(path))
    assert str(path) in raised.value.where
    assert store.listing() == []
    assert {item.name for item in tmp_path.iterdir()} <= {path.name, root.name}
    assert [_names(place) for place in places] == before


def _names(place: Path) -> set[str]:
    return {name for name in os.listdir(place) if "escaped" in name or DIGEST in name}


def _nothing() -> object:
    from contextlib import nullcontext

    return nullcontext()


def test_bombs_are_stopped_at_the_limit(tmp_path: Path, root: Path, figure: Figure) -> None:
    """The size in the directory is refused at once; one that lies yields no more than it says."""
    store = Store.open(root, strict=True)
    path = tmp_path / "bomb"
    hostile(path, [(NAME, b"\0" * 50_000_000, REGULAR)], zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 50_000
    with pytest.raises(BundleRefused, match="more than 1000000 bytes"):
        bundle.import_bundle(store, str(path), max_bytes=1_000_000)
    raw = path.read_bytes()
    lying = raw.replace(struct.pack("<I", 50_000_000), struct.pack("<I", 500))
    assert lying != raw
    path.write_bytes(lying)
    import tracemalloc

    tracemalloc.start()
    with pytest.raises(BundleRefused):
        bundle.import_bundle(store, str(path), max_bytes=1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000
    assert store.listing() == []
    figure(
        "K7.2",
        f"{len(HOSTILE)} hostile bundles; a bomb of 1:1000 that lies about its size",
        f"0 files outside, 0 entries stored, {peak // 1024} KiB of memory at the most",
    )


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_only_the_packing_that_export_writes(store: Store, path: Path, method: int) -> None:
    """The data says how much memory LZMA takes, and each method fails with errors of its own."""
    hostile(path, [(NAME, GOOD, REGULAR)], method)
    with pytest.raises(BundleRefused, match="packed in a foreign way"):
        bundle.import_bundle(store, str(path))


def test_an_encrypted_bundle(store: Store, path: Path) -> None:
    hostile(path, [(NAME, GOOD, REGULAR)])
    blob = bytearray(path.read_bytes())
    blob[blob.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(blob)
    with pytest.raises(BundleRefused, match="packed in a foreign way"):
        bundle.import_bundle(store, str(path))


def test_too_many_members(root: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_MEMBERS", 3)
    hostile(path, [(f"{number:064x}.v1", b"", REGULAR) for number in range(4)])
    with pytest.raises(BundleRefused, match="4 members, more than 3"):
        bundle.import_bundle(Store.open(root, strict=True), str(path))


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip", b"PK\5\6" + b"\0" * 17])
def test_what_is_no_bundle(store: Store, path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(BundleRefused, match="not a readable bundle"):
        bundle.import_bundle(store, str(path))
    with pytest.raises(BundleRefused, match="cannot be read: No such file"):
        bundle.import_bundle(store, str(path.parent / "absent"))


def test_every_cut_and_flip_of_a_bundle(root: Path, path: Path, tmp_path: Path) -> None:
    """A broken bundle is refused, or what it stores is right: never something else."""
    made = Store.open(tmp_path / "a", strict=True)
    wanted = [key("t", text) for text in "ab"]
    for one in wanted:
        made.put(one, {"kernel.o": one.digest.encode()})
    bundle.export_bundle(made, str(path))
    good = path.read_bytes()
    refused = 0
    for position in range(0, len(good), 11):
        for altered in (
            good[:position],
            good[:position] + bytes([good[position] ^ 4]) + good[position + 1 :],
        ):
            path.write_bytes(altered)
            store = Store.open(root, strict=True)
            try:
                bundle.import_bundle(store, str(path))
            except BundleRefused:
                refused += 1
            for one in wanted:
                found = store.get(one)
                assert found is None or found.files == {"kernel.o": one.digest.encode()}
            store.prune(0)
    assert refused > len(good) // 11


def test_a_bundle_of_random_damage(store: Store, path: Path) -> None:
    """Whatever zipfile makes of it (a name that is no text, a time that is none): one typed error."""
    hostile(path, [(NAME, GOOD, REGULAR)], zipfile.ZIP_DEFLATED)
    good, choose, refused = path.read_bytes(), random.Random(2), 0
    directory = good.index(b"PK\1\2")
    text = bytearray(good)
    text[directory + 9] |= 0x08  # the name is UTF-8
    text[directory + 46] = 0xFF
    blobs = [bytes(text)]
    for _ in range(300):
        altered = bytearray(good)
        for _ in range(choose.choice([1, 2, 4])):
            altered[choose.randrange(directory, len(good))] = choose.choice([0, 255, choose.randrange(256)])
        blobs.append(bytes(altered))
    for blob in blobs:
        path.write_bytes(blob)
        try:
            bundle.import_bundle(store, str(path))
        except BundleRefused:
            refused += 1
    assert refused > 150
    found = store.get(key("t"))
    assert found is None or found.files == {"kernel.o": b"code"}


def test_another_file_than_expected(store: Store, path: Path, tmp_path: Path) -> None:
    hostile(path, [(NAME, GOOD, REGULAR)])
    with pytest.raises(BundleRefused, match="not the one expected"):
        bundle.import_bundle(store, str(path), sha256="0" * 64)
    with pytest.raises(BundleRefused, match="cannot be read"):
        bundle.import_bundle(store, str(tmp_path / "absent"), sha256="0" * 64)
    assert store.listing() == []


def test_entries_of_another_schema_are_skipped(store: Store, path: Path) -> None:
    later = entry.header(7, b"{}") + b"{}"
    hostile(path, [(f"{'e' * 64}.v7", later, REGULAR), (NAME, GOOD, REGULAR)])
    done = bundle.import_bundle(store, str(path))
    assert (done.unknown, done.stored) == (("e" * 64,), (DIGEST,))


def test_a_manifest_with_other_fields_than_its_key(store: Store, path: Path) -> None:
    """Not an accident: somebody offers code for one kernel under the name of another."""
    made = entry.make(key("t"), {"kernel.o": b"code"})
    forged = entry.Entry(**{**vars(made), "key_fields": {"text": "other"}})
    hostile(path, [(NAME, entry.pack(forged), REGULAR)])
    with pytest.raises(BundleRefused, match="not those of its key"):
        bundle.import_bundle(store, str(path))


def test_a_store_that_cannot_keep_it(root: Path, path: Path) -> None:
    hostile(path, [(NAME, GOOD, REGULAR)])
    root.write_text("a file")
    with pytest.warns(UserWarning):
        broken = Store.open(root, strict=False)
    assert bundle.import_bundle(broken, str(path)).stored == ()
    small = Store.open(root.with_name("small"), strict=True, max_bytes=10)
    with pytest.raises(CacheTrouble):
        bundle.import_bundle(small, str(path), max_bytes=10_000)
