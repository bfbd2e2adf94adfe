"""`halide-backend calibrate`, with a grid small enough for a test; the times are this machine's."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import torch

from halide_backend import cli
from halide_backend.products import calibration, calibration_store


@pytest.fixture(autouse=True)
def small_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(calibration, "SIZES", (1, 16))
    monkeypatch.setattr(calibration, "_SAMPLE_S", 0.0)


def test_it_measures_keeps_shows_and_forgets(capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    assert cli.main(["calibrate", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["threads"] == threads and shown["sizes"] == [1, 16]
    kept = calibration_store.load(threads)
    assert kept is not None and kept.to_json()["gains"] == shown["gains"]
    assert all(len(gains) == 8 for gains in shown["gains"].values())
    assert cli.main(["calibrate", "--forget"]) == 0
    assert capsys.readouterr().out == f"forgotten ({threads} threads)\n"
    assert calibration_store.load(threads) is None
    assert cli.main(["calibrate"]) == 0
    assert "  nt: oneDNN for " in capsys.readouterr().out


def test_both_libraries_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def slowed(left: torch.Tensor, right: torch.Tensor) -> object:
        return lambda: time.sleep(0.002)

    monkeypatch.setattr(calibration, "aten_call", slowed)
    aten, onednn = calibration.seconds(calibration.Product(2, 2, 2, "nt"))
    assert aten >= 0.002 > onednn
    monkeypatch.setattr(calibration, "onednn_call", slowed)
    assert calibration.seconds(calibration.Product(2, 2, 2, "tn"))[1] >= 0.002


@pytest.mark.parametrize("form", ["nn", "nt", "tn"])
def test_what_is_timed_is_the_product(form: str) -> None:
    left, right = calibration.operands(calibration.Product(5, 7, 3, form))
    wanted = left.double() @ right.double()
    assert wanted.shape == (5, 7)
    assert (left.stride(0) == 1, right.stride(0) == 1) == (form == "tn", form == "nt")
    for call in (calibration.aten_call(left, right), calibration.onednn_call(left, right)):
        torch.testing.assert_close(call().double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("threads", ["0", "-1", "two"])
def test_threads_have_to_be_a_number(threads: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["calibrate", "--threads", threads])
    assert end.value.code == 2
    assert "argument --threads" in capsys.readouterr().err
