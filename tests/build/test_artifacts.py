from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from evaluation import call
from kernel_texts import DOUBLED, elementwise

from halide_backend import config
from halide_backend.build import artifacts
from halide_backend.build import target as target_module
from halide_backend.build.artifacts import COMPILED, DISK, Artifact, Limits, get_or_compile
from halide_backend.build.fingerprint import key_fields
from halide_backend.build.loader import load_object
from halide_backend.build.target import Target
from halide_backend.errors import KernelTextError, UnsupportedVersionError, WorkerTimeout
from halide_backend.launch.launcher import native
from halide_backend.pipeline import current_target
from kernels_cache import Key, Miss, Store, cli

HOST = Target.host()

#: How `get` came by each artifact that nobody had asked for before.
FOUND: list[str] = []


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache directory, an empty memory, and counters at zero."""
    root = tmp_path / "cache"
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(root))
    monkeypatch.setattr(artifacts, "_memory", artifacts._Memory())
    FOUND.clear()
    yield root


@pytest.fixture(autouse=True, scope="module")
def closed_in_the_end() -> Iterator[None]:
    yield
    artifacts.worker_pool(2).close()
    artifacts.worker_pool.cache_clear()


def get(text: str = DOUBLED, limits: Limits | None = None, name: str = "doubled") -> Artifact:
    build = get_or_compile(text, HOST, name=name, limits=limits or Limits(workers=2))
    artifact = build.artifact.result(60)
    if not build.asked_before:
        FOUND.append(artifact.found)
    return artifact


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process: memory and store are empty, the directory is not."""
    monkeypatch.setattr(artifacts, "_memory", artifacts._Memory())
    artifacts._store.cache_clear()


def test_compiled_stored_and_runs(fresh: Path) -> None:
    artifact = get()
    digest = Key(kind="cpu-object", fields=key_fields(DOUBLED, HOST)).digest
    assert artifact.entry == f"kernel_{digest[:16]}"
    kernel = load_object(artifact.object, artifact.entry, native().symbols())
    a, out = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    call(kernel.address, a, out)
    assert (out == 2 * a).all()
    assert FOUND == [COMPILED]
    assert 0 < artifact.seconds < 60
    stored = Store.open(fresh).get(Key(kind="cpu-object", fields=key_fields(DOUBLED, HOST)))
    assert stored is not None
    assert stored.files["kernel.o"] == artifact.object
    assert json.loads(stored.files["manifest.json"]) == artifact.manifest
    # Nothing in it says where it was made, so it can go anywhere.
    (file,) = fresh.rglob("*.v1")
    for place in (str(fresh), str(Path.home()), str(Path(artifacts.__file__).parents[2]), sys.prefix):
        assert place.encode() not in file.read_bytes()


def test_a_second_process_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    first = get()
    forget(monkeypatch)
    # Whoever would compile now finds no worker.
    monkeypatch.setattr(artifacts.WorkerPool, "compile", None)
    second = get()
    assert second == first
    assert (second.found, second.seconds) == (DISK, 0)


def test_a_shared_cache_is_looked_up_as_well(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: object
) -> None:
    first = get()
    fresh.rename(tmp_path / "fleet")
    forget(monkeypatch)
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_SHARED", str(tmp_path / "fleet"))
    assert get() == first
    assert FOUND == [COMPILED, DISK]
    assert not fresh.exists()


def test_an_entry_for_another_processor_is_compiled_again(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle may hold anything; what this processor cannot run is refused before it is loaded."""
    key, here = Key(kind="cpu-object", fields=key_fields(DOUBLED, HOST)), HOST.requirements()
    store = Store.open(fresh, strict=True)
    wider = {**here, "cpu_features": ["avx", "avx1024"]}
    store.put(key, {"kernel.o": b"would be SIGILL", "manifest.json": b"{}"}, requires=wider)
    miss = store.look_up(key, provides=here)
    assert isinstance(miss, Miss)
    assert miss.detail.startswith("cpu_features: requires ['avx1024'], this machine has ['")
    assert get().object != b"would be SIGILL"
    assert FOUND == [COMPILED]
    stored = store.get(key, provides=here)
    assert stored is not None
    assert stored.requires == here


def test_the_cache_explains_a_kernel_by_its_text(fresh: Path, capsys: pytest.CaptureFixture[str]) -> None:
    get()
    assert cli.main(["--root", str(fresh), "why", DOUBLED.splitlines()[-1]]) == 0
    assert "cpu-object: stored" in capsys.readouterr().out


def test_equal_kernels_are_asked_for_once(pool: object) -> None:
    found: list[Artifact] = []
    threads = [threading.Thread(target=lambda: found.append(get())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and all(each is found[0] for each in found)
    assert FOUND == [COMPILED]


def test_the_name_is_not_part_of_the_key() -> None:
    assert get(name="one") is get(name="two")


def test_who_asks_for_what_was_built_ahead_is_the_first() -> None:
    ahead = [get_or_compile(DOUBLED, HOST, name="ahead", limits=Limits(workers=2), ahead=True) for _ in range(2)]
    asked = [get_or_compile(DOUBLED, HOST, name="asked", limits=Limits(workers=2)) for _ in range(2)]
    assert [build.asked_before for build in asked] == [False, True]
    assert {build.artifact for build in (*ahead, *asked)} == {asked[0].artifact}


def test_returns_before_the_kernel_is_compiled() -> None:
    artifacts.worker_pool(2).start()
    future = get_or_compile(
        "import time; time.sleep(1)\n" + DOUBLED, HOST, name="slow", limits=Limits(workers=2)
    ).artifact
    assert not future.done()
    assert future.result(60).object


def test_failures_are_typed_stored_nowhere_and_tried_again(fresh: Path) -> None:
    for _ in range(2):
        with pytest.raises(KernelTextError, match="kernel halide_fused_0"):
            get("nonsense", name="halide_fused_0")
    with pytest.raises(WorkerTimeout, match=r"limit of 0\.3 s"):
        get("while True: pass", Limits(workers=2, time_limit=0.3))
    assert FOUND == []
    assert not list(fresh.rglob("*.entry"))
    waiting = "import os, time\ntime.sleep(0 if os.path.exists({0!r}) else 100)\n" + DOUBLED
    mark = fresh.parent / "mark"
    with pytest.raises(WorkerTimeout):
        get(waiting.format(str(mark)), Limits(workers=2, time_limit=0.3))
    mark.touch()
    assert get(waiting.format(str(mark)), Limits(workers=2)).object


def test_a_cancelled_future_is_not_remembered() -> None:
    limits = Limits(workers=1)
    blocking = get_or_compile("import time; time.sleep(1)", HOST, name="blocking", limits=limits).artifact
    queued = get_or_compile(DOUBLED, HOST, name="queued", limits=limits).artifact
    assert queued.cancel()
    assert get_or_compile(DOUBLED, HOST, name="queued", limits=limits).artifact.result(60).object
    assert isinstance(blocking.exception(60), KernelTextError)
    artifacts.worker_pool(1).close()
    artifacts.worker_pool.cache_clear()


def test_a_damaged_entry_is_built_again(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = get()
    files = [path for path in fresh.rglob("*") if first.object in _content(path)]
    assert files
    for path in files:
        path.chmod(0o600)
        path.write_bytes(path.read_bytes().replace(first.object[100:108], b"\xff" * 8))
    forget(monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert get() == first
    assert FOUND == [COMPILED, COMPILED]


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def test_an_unusable_cache_directory_costs_one_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    done = script(
        f"""
found = []
for text in {[DOUBLED, elementwise("a * a")]!r}:
    found.append(get_or_compile(text, Target.host(), name="kernel").artifact.result(60).found)
print(*found)
""",
        HALIDE_BACKEND_CACHE_DIR=str(tmp_path / "file"),
    )
    assert done.stdout == "compiled compiled\n"
    assert done.stderr.count("Warning: ") == 1 and str(tmp_path / "file") in done.stderr


def test_code_that_this_machine_cannot_run_is_built_but_for_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package may be for other machines; this process is not."""
    small = Target("x86-64-linux-sse41", "penryn", "+sse4.1,-avx")
    monkeypatch.setattr(target_module, "_host", lambda: small)
    assert get_or_compile(DOUBLED, Target.named("avx2"), name="doubled").artifact.result(60).object
    with config.patch(target="avx2"), pytest.raises(UnsupportedVersionError, match=r"lacks avx, avx2, .*fma"):
        current_target("cpu")


def test_nothing_but_the_worker_is_started_on_a_path_without_tools(tmp_path: Path) -> None:
    done = script(
        f"""
artifact = get_or_compile({elementwise("hl.sin(a)")!r}, Target.host(), name="sine").artifact.result(60)
load_object(artifact.object, artifact.entry, native().symbols())
(event, command), = started
print(event, command[-1], len(children(os.getpid())))
""",
        HALIDE_BACKEND_CACHE_DIR=str(tmp_path / "cache"),
        PATH=str(tmp_path),
    )
    assert done.stdout == "subprocess.Popen halide_backend compile worker 1\n"
    assert done.stderr == ""


def test_the_worker_starts_before_the_first_kernel_is_known(tmp_path: Path) -> None:
    """With the first scheduler, since fusion takes longer than that start; not with a question for features."""
    done = script(
        """
import time
from halide_backend.capture.scheduling import HalideScheduling
from halide_backend.device_type import CPU
HalideScheduling(None, CPU)
assert not worker_pool(0).threads._threads
HalideScheduling(object(), CPU)
deadline = time.monotonic() + 30
while not children(os.getpid()) and time.monotonic() < deadline:
    time.sleep(0.01)
print(len(children(os.getpid())), len(started))
""",
        HALIDE_BACKEND_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert done.stdout == "1 1\n", done.stderr


def script(body: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script that knows of every process it starts."""
    start = f"""
import os, sys
sys.path.append({str(Path(__file__).parent)!r})
from compile_servers import children
started = []
def audit(event, arguments):
    if event.startswith(("subprocess.", "os.system", "os.posix_spawn", "os.exec", "os.fork")):
        started.append((event, arguments[1] if event == "subprocess.Popen" else None))
sys.addaudithook(audit)
from halide_backend.build.artifacts import get_or_compile, worker_pool
from halide_backend.build.loader import load_object
from halide_backend.build.target import Target
from halide_backend.launch.launcher import native
"""
    paths = os.pathsep.join(filter(None, sys.path))
    return subprocess.run(
        [sys.executable, "-c", start + body],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
