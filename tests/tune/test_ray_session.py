"""Tuning on several machines: here several nodes of one cluster on this one, one of whose workers is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halide_backend import cli
from halide_backend.errors import NothingToTune
from halide_backend.program import serialization
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import Device
from halide_backend.tune.ray_session import RaySession
from halide_backend.tune.session import Search
from halide_backend.tune.trial_log import Recorded, TrialLog, read
from halide_backend.tune.tunable_kernel import TunableKernel

ray = pytest.importorskip("ray", reason="ray has no wheel for this Python")

Made = Callable[..., LoopProgram]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster of two nodes, of one core each."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    yield made.address
    ray.shutdown()
    made.shutdown()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(tmp_path / "cache"))


def test_a_lost_worker_costs_its_running_trial(cluster: str, tmp_path: Path, row_sums: Made, device: Device) -> None:
    kernels = [TunableKernel(f"sums_{rows}", row_sums(rows, 256)) for rows in (64, 96)]
    digests = [kernel.digest for kernel in kernels]
    said: list[str] = []
    kept: list[Any] = []
    counts: Counter[str] = Counter()
    with TrialLog(tmp_path / "log") as log, RaySession(cluster, "cpu", log, threads=1) as session:
        killed = threading.Event()
        original = log.trial

        def trial(made: Any) -> None:
            original(made)
            counts[made.program] += bool(made.settings)
            if not made.settings:
                return
            # A trial has come back; a worker is in the middle of the next one.
            if not killed.is_set():
                killed.set()
                busy = next(iter(session._workers.values()))
                os.kill(ray.get(busy.process.remote()), signal.SIGKILL)
            # Somebody goes on with the kernel, and the other one has as many trials: that is all there is to wait for.
            lost = any("a worker was lost" in line for line in said)
            if lost and all(counts[digest] > 1 for digest in digests):
                raise KeyboardInterrupt

        log.trial = trial  # type: ignore[method-assign]
        found = session.run(
            kernels, Search("hill-climb", 600.0), Recorded(), said.append, lambda kind, each: kept.append((kind, each))
        )
        lost = session.lost
    assert killed.is_set() and lost == 1 and sum("a worker was lost" in line for line in said) == 1
    assert {each.kernel.name for each in found} == {kernel.name for kernel in kernels}
    assert sum(each.share for each in found) == pytest.approx(1)
    recorded = read(tmp_path / "log")
    assert set(recorded.names.values()) == {kernel.name for kernel in kernels}
    for each in found:
        # What had come back is there, and whoever went on knew it: only the best of it was measured again.
        trials = [trial.settings for trial in recorded.trials if trial.program == each.kernel.digest and trial.settings]
        assert 1 < len(trials) <= len(set(trials)) + 1
    assert {trial.device for trial in recorded.trials} == {device.name}
    assert all(kind == device for kind, _ in kept)


def test_machines_of_another_class_tune_all_kernels_for_themselves(
    tmp_path: Path, row_sums: Made, device: Device, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = TunableKernel("sums", row_sums(64, 256))
    with TrialLog(tmp_path / "log") as log, RaySession(cluster, "cpu", log, threads=1) as session:
        first, second = (machine.node for machine in session._machines)
        other = replace(device, vector_bytes=16)
        started = session._started
        monkeypatch.setattr(session, "_started", lambda: {**started(), second: other})
        said: list[str] = []
        search = Search("hill-climb", 1.0)
        found = session.run([kernel], search, Recorded(), said.append, lambda kind, each: None)
    assert first != second and len(found) == 2
    assert {line.partition(":")[0] for line in said[:2]} == {device.name, other.name}


def test_the_command_tunes_on_a_cluster(
    cluster: str, tmp_path: Path, row_sums: Made, capsys: Any, ctrl_c_after: Callable[[int], None]
) -> None:
    record = {"name": "sum", "device": "cpu", "position": 0, "program": serialization.to_json(row_sums(64, 256))}
    (tmp_path / "records.json").write_text(json.dumps([{**record, "delegation": None}]))
    files = ["--output", str(tmp_path / "trials.jsonl")]
    command = ["tune", str(tmp_path / "records.json"), "--budget", "10m", "--threads", "1", "--ray", cluster, *files]
    ctrl_c_after(2)
    assert cli.main(command) == 0
    assert "of 1 kernels are faster" in capsys.readouterr().out
    assert len(read(tmp_path / "trials.jsonl").trials) > 1


@pytest.mark.parametrize("prefix", ["", "ray://"])
def test_an_address_where_nobody_listens_is_refused_at_once(prefix: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        # Nobody else is given the port while it is bound, and nobody listens.
        taken.bind(("127.0.0.1", 0))
        address = f"{prefix}127.0.0.1:{taken.getsockname()[1]}"
        begin = time.monotonic()
        with TrialLog(tmp_path / "log") as log, pytest.raises(NothingToTune, match=r"no cluster: .*refused") as refused:
            RaySession(address, "cpu", log)
    assert time.monotonic() - begin < 5
    assert refused.value.where == f"--ray {address}" and "ray start --head" in refused.value.cure


@pytest.mark.parametrize("address", ["127.0.0.1:head", "127.0.0.1:0", "127.0.0.1:70000"])
def test_an_address_that_is_none(address: str, tmp_path: Path) -> None:
    with TrialLog(tmp_path / "log") as log, pytest.raises(NothingToTune, match="is no port"):
        RaySession(address, "cpu", log)
