"""K4: every altered byte is noticed before it could be loaded."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kernels_cache import EntryDamaged, Key, Miss, Store, entry

Figure = Callable[[str, str, str], None]


def content(number: int) -> dict[str, bytes]:
    choose = random.Random(number)
    return {
        "kernel.o": choose.randbytes(choose.randrange(1, 3000)),
        "empty.txt": b"",
        "manifest.json": b'{"entry": "f"}',
    }


def key(number: int) -> Key:
    return Key("cpu-object", {"number": number, "text": "for y:\n  for x:\n"})


class Attack:
    """One store whose entries are altered; counts what the store made of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = Store.open(root, strict=False)
        self.tried = self.detected = self.quarantined = self.rebuilt = self.unverified = 0

    def path(self, key: Key) -> Path:
        return self.root / "entries" / key.digest[:2] / f"{key.digest}.v1"

    def attempt(self, number: int, blob: bytes) -> None:
        """Put `blob` where the entry of `number` belongs, and ask for it."""
        wanted, good = key(number), content(number)
        path = self.path(wanted)
        assert path.read_bytes() != blob, "not an alteration"
        path.write_bytes(blob)
        self.tried += 1
        before = self.store.statistics.quarantined
        found = self.store.look_up(wanted)
        if isinstance(found, Miss):
            self.detected += found.reason == "damaged"
        else:
            self.unverified += sum(map(len, found.files.values()))
        self.quarantined += self.store.statistics.quarantined - before == 1 and not path.exists()
        made, hit = self.store.get_or_build(wanted, lambda: good)
        again = self.store.get(wanted)
        self.rebuilt += not hit and again is not None and dict(again.files) == good == dict(made.files)
        for item in (self.root / "quarantine").iterdir():
            item.unlink()


@pytest.mark.filterwarnings("ignore::kernels_cache.CacheWarning")
@pytest.mark.parametrize("flips", [170, pytest.param(1000, marks=pytest.mark.long)])
def test_every_alteration_is_detected(root: Path, figure: Figure, flips: int) -> None:
    attack, choose = Attack(root), random.Random(1)
    blobs = []
    for number in range(10):
        attack.store.put(key(number), content(number))
        blobs.append(attack.path(key(number)).read_bytes())

    def blob_of(number: int) -> bytes:
        return attack.path(key(number)).read_bytes()

    for at in range(flips):
        number = at % 10
        flipped = bytearray(blob_of(number))
        # Every region in turn: header, manifest, payload, anywhere.
        size = len(flipped)
        manifest_end = entry.HEADER_BYTES + entry.manifest_bytes(bytes(flipped), "")
        regions = [(0, 114), (114, manifest_end), (manifest_end, size), (0, size)]
        position = choose.randrange(*regions[at % 4])
        flipped[position] ^= 1 << choose.randrange(8)
        attack.attempt(number, bytes(flipped))
    for at in range(flips // 2):
        blob = blob_of(at % 10)
        attack.attempt(at % 10, blob[: choose.randrange(len(blob))] if at else b"")
    for at in range(flips // 10):
        attack.attempt(at % 10, blob_of((at + 1) % 10))
    for at in range(flips // 10):
        other = blob_of((at + 1) % 10)
        half = choose.randrange(114, min(len(other), len(blob_of(at % 10))))
        attack.attempt(at % 10, blob_of(at % 10)[:half] + other[half:])

    assert attack.detected == attack.quarantined == attack.rebuilt == attack.tried
    assert attack.unverified == 0
    assert attack.tried == flips + flips // 2 + 2 * (flips // 10)
    figure(
        "K4",
        "bit flips, truncations, swaps, splices of entries",
        f"{attack.detected} of {attack.tried} detected, quarantined and rebuilt; "
        f"{attack.unverified} bytes loaded unverified",
    )


def test_every_single_byte_is_covered(store: Store) -> None:
    """Not a sample: each byte of one small entry, changed in one bit."""
    wanted = Key("k", {"a": 1})
    blob = entry.pack(entry.make(wanted, {"a.o": b"machine code", "b": b"x"}))
    for position in range(len(blob)):
        altered = bytearray(blob)
        altered[position] ^= 0x01
        with pytest.raises(EntryDamaged):
            entry.unpack(bytes(altered), wanted.digest, "here")
    for length in range(len(blob)):
        with pytest.raises(EntryDamaged):
            entry.unpack(blob[:length], wanted.digest, "here")
    with pytest.raises(EntryDamaged):
        entry.unpack(blob + b"\0", wanted.digest, "here")
    assert dict(entry.unpack(blob, wanted.digest, "here").files) == {
        "a.o": b"machine code",
        "b": b"x",
    }


def test_damage_warns_once_and_raises_in_strict_mode(root: Path) -> None:
    attack = Attack(root)
    for number in range(2):
        attack.store.put(key(number), content(number))
        attack.path(key(number)).write_bytes(b"not an entry")
    with pytest.warns(UserWarning, match="damaged.*header") as given:
        assert attack.store.get(key(0)) is None
        assert attack.store.get(key(1)) is None
    assert len(given) == 1
    attack.store.put(key(0), content(0))
    attack.path(key(0)).write_bytes(b"")
    with pytest.raises(EntryDamaged, match="header") as raised:
        Store.open(root, strict=True).get(key(0))
    assert raised.value.where == str(attack.path(key(0)))
    assert Store.open(root, strict=True).get(key(0)) is None


def test_an_unknown_schema_is_a_miss_and_is_left_alone(root: Path, store: Store) -> None:
    store.put(key(1), content(1))
    path = Attack(root).path(key(1))
    manifest = b'{"a future": "manifest"}'
    path.write_bytes(entry.header(2, manifest) + manifest)
    found = store.look_up(key(1))
    assert isinstance(found, Miss)
    assert found.reason == "unknown-schema"
    assert "schema 2" in found.detail
    assert path.exists()
    assert store.statistics.troubles == 0


@pytest.mark.filterwarnings("ignore::kernels_cache.CacheWarning")
def test_a_manifest_that_lies_about_its_fields_is_found_by_verify(root: Path, store: Store) -> None:
    """Intact digests prove that nothing changed, not that the fields are the key's."""
    store.put(key(1), content(1))
    true = entry.make(key(1), content(1))
    forged = entry.Entry(**{**vars(true), "key_fields": {"number": 2}})
    Attack(root).path(key(1)).write_bytes(entry.pack(forged))
    problems = [problem for _, problem in Store.open(root, strict=False).verify()]
    assert [problem.reason for problem in problems if problem] == ["damaged"]
    assert store.get(key(1)) is None


@pytest.mark.filterwarnings("ignore::kernels_cache.CacheWarning")
def test_what_is_not_a_file_is_set_aside(root: Path) -> None:
    store = Store.open(root, strict=False)
    attack, elsewhere = Attack(root), root.with_name("elsewhere")
    for kind in ("link", "pipe", "directory"):
        wanted = Key("k", {"kind": kind})
        store.put(wanted, {"a": b"1"})
        path = attack.path(wanted)
        good = path.read_bytes()
        path.unlink()
        if kind == "link":
            elsewhere.write_bytes(good)  # intact, and still not to be followed
            path.symlink_to(elsewhere)
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.mkdir()
        found = store.look_up(wanted)
        assert isinstance(found, Miss), kind
        assert found.reason == "damaged", kind
        assert not os.path.lexists(path), kind
        assert store.get_or_build(wanted, lambda: {"a": b"2"})[0].files == {"a": b"2"}
    assert store.statistics.quarantined == 3
    assert elsewhere.exists()
