"""One process at a time measures on a machine."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from halide_backend.tune.measurement import measurer


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(tmp_path / "cache"))


def test_whoever_measures_is_alone() -> None:
    order: list[str] = []
    begun = threading.Event()

    def second() -> None:
        begun.set()
        with measurer._alone("cpu"):
            order.append("second")

    thread = threading.Thread(target=second)
    with measurer._alone("cpu"):
        thread.start()
        begun.wait()
        thread.join(0.2)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_other_devices_are_others() -> None:
    with measurer._alone("cpu"), measurer._alone("cuda:0"):
        pass


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(tmp_path / "file" / "cache"))
    entered = False
    with measurer._alone("cpu"):
        entered = True
    assert entered
