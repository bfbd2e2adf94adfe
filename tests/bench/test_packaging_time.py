"""benchmarks/packaging_time.py: which sides are measured in which order, and the figures made of them."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks/packaging_time.py"


def test_what_is_printed_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Times that are given instead of measured: stock, bytecode, stock in each of three rounds."""
    main = runpy.run_path(str(SCRIPT))["main"]
    times, asked = iter([8.0, 1.0, 10.0, 12.0, 2.0, 8.0, 10.0, 0.5, 4.0]), list[str]()

    def seconds(kind: str) -> float:
        asked.append(kind)
        return next(times)

    monkeypatch.setitem(main.__globals__, "seconds", seconds)
    file = tmp_path / "times.json"
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--rounds", "3", "--json", str(file)])
    main()
    assert asked == ["stock", "bytecode", "stock"] * 3
    found = json.loads(file.read_text())
    assert json.loads(capsys.readouterr().out) == found
    assert found["stock over bytecode"] == 10.0  # medians 10 and 1
    assert found["range"] == [6.0, 20.0]
    assert found["control, stock over stock"] == 1.25
    assert found["seconds"] == {"stock": [8, 12, 10], "bytecode": [1, 2, 0.5], "stock again": [10, 8, 4]}
    assert found["command"] == "packaging_time.py --rounds 3 --json times.json"
    assert {"machine", "system", "versions"} <= found.keys()
