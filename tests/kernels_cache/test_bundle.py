"""K15, K16: kernels travel, and run only where they can."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from crew import scenario

from kernels_cache import (
    Key,
    Miss,
    Refusal,
    StorageTrouble,
    Store,
    bundle,
)

Figure = Callable[[str, str, str], None]
AVX2 = {"cpu_features": ["avx", "avx2", "fma"]}
AVX512 = {"cpu_features": ["avx", "avx2", "avx512f", "fma"]}


def key(target: str, text: str = "kernel") -> Key:
    return Key("cpu-object", {"text": text, "target": target})


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
