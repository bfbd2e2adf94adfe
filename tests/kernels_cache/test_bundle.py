"""K7 (bundles), K15, K16: kernels travel, and nothing else comes in with them."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import stat
import struct
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from crew import scenario

from kernels_cache import (
    BundleRefused,
    CacheTrouble,
    Key,
    Miss,
    Refusal,
    StorageTrouble,
    Store,
    bundle,
    entry,
)

Figure = Callable[[str, str, str], None]
AVX2 = {"cpu_features": ["avx", "avx2", "fma"]}
AVX512 = {"cpu_features": ["avx", "avx2", "avx512f", "fma"]}


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


def test_several_targets_of_one_kernel_side_by_side(tmp_path: Path, path: Path) -> None:
    made = Store.open(tmp_path / "a", strict=True)
    made.put(key("avx2"), {"kernel.o": b"256 bits"}, requires=AVX2)
    made.put(key("avx512"), {"kernel.o": b"512 bits"}, requires=AVX512)
    done = bundle.export_bundle(made, str(path))
    assert sorted(done.digests) == sorted([key("avx2").digest, key("avx512").digest])
    assert done.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert done.bytes == path.stat().st_size

    used = Store.open(tmp_path / "b", strict=True)
    assert len(bundle.import_bundle(used, str(path), sha256=done.sha256.upper()).stored) == 2
    assert used.get(key("avx2"), provides=AVX2).files == {"kernel.o": b"256 bits"}
    miss = used.look_up(key("avx512"), provides=AVX2)
    assert isinstance(miss, Miss)
    assert miss.reason == "refused"
    assert miss.refusal == Refusal("cpu_features", ["avx512f"], ["avx", "avx2", "fma"])
    assert "cpu_features: requires ['avx512f']" in miss.detail
    assert used.get(key("avx512"), provides=AVX512).files == {"kernel.o": b"512 bits"}
    assert used.statistics.refused == 1


def test_import_leaves_out_what_the_machine_cannot_run(tmp_path: Path, path: Path) -> None:
    made = Store.open(tmp_path / "a", strict=True)
    made.put(key("avx2"), {"kernel.o": b"256 bits"}, requires=AVX2)
    made.put(key("avx512"), {"kernel.o": b"512 bits"}, requires=AVX512)
    bundle.export_bundle(made, str(path))
    used = Store.open(tmp_path / "b", strict=True)
    done = bundle.import_bundle(used, str(path), provides=AVX2)
    assert done.stored == (key("avx2").digest,)
    assert done.refused == {key("avx512").digest: Refusal("cpu_features", ["avx512f"], ["avx", "avx2", "fma"])}
    assert used.get(key("avx512")) is None


MACHINE = {
    "cpu_features": ["avx", "avx2"],
    "cuda_capability": "9.0",
    "libhalide": "7a1672",
    "runtime_abi": 1,
}


def test_every_difference_of_a_machine_is_refused_and_named(store: Store, figure: Figure) -> None:
    """K16: wider CPU, other GPU, other Halide, other ABI, a machine that says nothing."""
    cases = [
        ({"cpu_features": ["avx", "avx2", "avx512f"]}, "cpu_features"),
        ({"cpu_features": ["amx"]}, "cpu_features"),
        ({"cuda_capability": "8.6"}, "cuda_capability"),
        ({"cuda_capability": ["10.0"]}, "cuda_capability"),
        ({"libhalide": "other"}, "libhalide"),
        ({"runtime_abi": 2}, "runtime_abi"),
        ({"sve_bits": 512}, "sve_bits"),
        ({"cpu_features": ["avx"], "libhalide": "other"}, "libhalide"),
        ({"runtime_abi": None}, "runtime_abi"),
    ]
    for number, (requires, field) in enumerate(cases):
        wanted = Key("k", {"number": number})
        store.put(wanted, {"kernel.o": b"would be SIGILL"}, requires=requires)
        miss = store.look_up(wanted, provides=MACHINE)
        assert isinstance(miss, Miss)
        assert miss.refusal is not None
        assert miss.refusal.field == field
        assert field in miss.detail
        entry_, hit = store.get_or_build(wanted, lambda: {"kernel.o": b"ok"}, provides=MACHINE)
        assert (dict(entry_.files), hit) == ({"kernel.o": b"ok"}, False)
    for number, requires in enumerate(
        [{}, {"cpu_features": []}, {"cpu_features": ["avx2"], "cuda_capability": "9.0"}, MACHINE]
    ):
        wanted = Key("k", {"fits": number})
        store.put(wanted, {"kernel.o": b"runs"}, requires=requires)
        assert store.get(wanted, provides=MACHINE).requires == requires
    # One cubin, several devices that it runs on: the device provides a list.
    store.put(wanted, {"a": b""}, requires={"cuda_capability": ["8.0"]})
    assert store.get(wanted, provides={"cuda_capability": ["8.0", "8.6"]}) is not None
    assert store.get(wanted, provides={"cuda_capability": "8.0 and 8.6"}) is None
    figure("K16", f"{len(cases)} entries for other machines", f"{len(cases)} refused, field named")


@pytest.mark.filterwarnings("ignore::kernels_cache.CacheWarning")
def test_a_run_moves_to_another_user_and_place(figure: Figure) -> None:
    """K15, as two ordinary users where we may become them."""
    first, second = (23456, 34567) if os.geteuid() == 0 else (os.geteuid(),) * 2
    base = Path(tempfile.mkdtemp(prefix="kernels-cache-"))
    try:
        for name, uid in (("a", first), ("b", second)):
            (base / name).mkdir(mode=0o755)
            os.chown(base / name, uid, -1)
        base.chmod(0o755)
        path = base / "a" / "run.bundle"
        made = scenario("rights", "export", uid=first, root=str(base / "a" / "cache"), path=str(path))
        assert (made["entries"], made["uid"]) == (40, first)
        # The other run's entry stayed behind, and no place or name of this machine is in there.
        content = b"".join(zipfile.ZipFile(path).read(name) for name in zipfile.ZipFile(path).namelist())
        for secret in (str(base), str(Path.home()) + "/", "another run", f'"{first}"'):
            assert secret.encode() not in content + path.read_bytes()
        used = scenario(
            "rights",
            "use",
            uid=second,
            root=str(base / "b" / "cache"),
            path=str(path),
            sha256=made["sha256"],
        )
    finally:
        shutil.rmtree(base)
    assert (used["imported"], used["builds"], used["wrong"]) == (40, 0, 0)
    assert used["uid"] == second
    assert used["refused"] == ["cpu_features: requires ['avx512'], this machine has ['avx', 'avx2']"]
    figure(
        "K15",
        "40 kernels exported, imported by another user in another place",
        f"{used['builds']} builds, no absolute path in the bundle",
    )


def test_equal_entries_make_equal_bundles(tmp_path: Path, store: Store) -> None:
    for number in range(5):
        store.put(key("t", str(number)), {"kernel.o": b"code"})
    again = Store.open(tmp_path / "copy", strict=True)
    bundle.export_bundle(store, str(tmp_path / "one"))
    bundle.import_bundle(again, str(tmp_path / "one"))
    bundle.export_bundle(again, str(tmp_path / "two"))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_export_of_some_entries(store: Store, path: Path) -> None:
    for text in "abc":
        store.put(key("t", text), {"kernel.o": text.encode()})
    chosen = {key("t", "a").digest, key("t", "c").digest}
    assert set(bundle.export_bundle(store, str(path), chosen).digests) == chosen
    with pytest.raises(StorageTrouble, match="not in the cache"):
        bundle.export_bundle(store, str(path), [*chosen, key("t", "absent").digest])
    with pytest.raises(StorageTrouble, match="cannot write the bundle"):
        bundle.export_bundle(store, str(path.parent / "no" / "such" / "place"))
    assert [item.name for item in path.parent.iterdir() if item.name != "cache"] == [path.name]


def test_a_run_that_used_the_shared_root(root: Path, path: Path, tmp_path: Path) -> None:
    fleet = Store.open(tmp_path / "fleet", strict=True)
    fleet.put(key("t", "fleet's"), {"kernel.o": b"1"})
    fleet.put(key("t", "unused"), {"kernel.o": b"2"})
    store = Store.open(root, readonly_roots=[tmp_path / "fleet"], strict=True)
    assert store.get(key("t", "fleet's")) is not None
    store.put(key("t", "mine"), {"kernel.o": b"3"})
    done = bundle.export_bundle(store, str(path), store.used)
    assert set(done.digests) == {key("t", "fleet's").digest, key("t", "mine").digest}


@pytest.mark.filterwarnings("ignore::kernels_cache.CacheWarning")
def test_damaged_entries_stay_at_home(root: Path, path: Path) -> None:
    store = Store.open(root, strict=False)
    for text in "ab":
        store.put(key("t", text), {"kernel.o": text.encode()})
    damaged = Path(store.root.entry(key("t", "a").digest))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    whole, broken = key("t", "b").digest, key("t", "a").digest
    with pytest.raises(StorageTrouble, match="not in the cache, or damaged"):
        bundle.export_bundle(store, str(path), [whole, broken])
    assert not path.exists()
    damaged.write_bytes(b"damaged again")
    done = bundle.export_bundle(store, str(path))
    assert (done.digests, done.left_out) == ((whole,), (broken,))


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
