from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from halide_backend import versions
from halide_backend.errors import HalideBackendError, UnsupportedVersionError
from halide_backend.inspection import checks, doctor, process_audit, small_kernel

TITLES = [
    "system",
    "versions",
    "native extension",
    "halide library",
    "target",
    "threads",
    "freed memory",
    "cache directory",
    "schedules",
    "matrix products",
    "registration",
    "device types",
    "compiles without a compiler",
    "C++ compiler",
]


def examine(**environment: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Exit code and checks by title of a doctor in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "halide_backend.cli", "doctor", "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, {check["title"]: check for check in found["checks"]}


def test_a_sound_installation_passes(tmp_path: Path) -> None:
    code, found = examine(HALIDE_BACKEND_CACHE_DIR=str(tmp_path / "cache"))
    assert list(found) == TITLES
    assert {title for title, check in found.items() if check["state"] == checks.FAIL} == set()
    assert code == 0
    assert "started: 1 compile worker, 0 other programs" in found["compiles without a compiler"]["finding"]
    assert f"{tmp_path}/cache, mode 0700, 0 kernels" in found["cache directory"]["finding"]
    assert "libgomp" in found["threads"]["finding"]
    assert "host" not in found["target"]["finding"]
    assert found["device types"]["finding"] == "cpu, cuda"


def test_the_proof_needs_no_program_on_the_path(tmp_path: Path) -> None:
    code, found = examine(PATH=str(tmp_path), HALIDE_BACKEND_CACHE_DIR=str(tmp_path / "cache"))
    assert found["compiles without a compiler"]["state"] == checks.OK
    assert found["C++ compiler"]["finding"].startswith("none")
    assert code == 0


def test_an_unusable_cache_directory_fails_with_a_cure(tmp_path: Path) -> None:
    blocked = tmp_path / "cache"
    blocked.write_text("a file")
    code, found = examine(HALIDE_BACKEND_CACHE_DIR=str(blocked))
    check = found["cache directory"]
    assert (code, check["state"]) == (1, checks.FAIL)
    assert str(blocked) in check["finding"]
    assert "HALIDE_BACKEND_CACHE_DIR" in check["advice"]


def test_a_cache_directory_others_can_write_fails(tmp_path: Path) -> None:
    shared = tmp_path / "cache"
    shared.mkdir()
    shared.chmod(0o777)
    code, found = examine(HALIDE_BACKEND_CACHE_DIR=str(shared))
    assert (code, found["cache directory"]["state"]) == (1, checks.FAIL)
    assert "chmod go-w" in found["cache directory"]["advice"]


def test_a_target_this_processor_lacks_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from halide_backend.build.target import Target

    def refuse(self: Target) -> None:
        raise UnsupportedVersionError("this processor lacks avx9", where="target", cure="Buy one.")

    monkeypatch.setattr(Target, "check_runs_here", refuse)
    (check,) = [c for c in checks.all_checks() if c.title == "target"]
    assert check == checks.Check("target", checks.FAIL, "target: this processor lacks avx9", "Buy one.")


def test_a_foreign_halide_library_is_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "libHalide.so.14").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{tmp_path}")
    check = checks.CHECKS["halide library"]()
    assert check.state == checks.NOTE
    assert f"{tmp_path}/libHalide.so.14" in check.finding


def test_an_unsupported_version_fails_with_the_command_to_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(versions, "SUPPORTED", {"torch": ((99, 0), (100, 0))})
    versions.check_versions.cache_clear()
    monkeypatch.setattr(checks, "CHECKS", {"versions": checks.CHECKS["versions"]})
    try:
        assert doctor.run(as_json=False) == 1
    finally:
        monkeypatch.undo()
        versions.check_versions.cache_clear()
    report = " ".join(capsys.readouterr().out.split())
    assert report.startswith("FAIL versions")
    assert "pip install 'torch>=99,<100'" in report
    assert report.endswith("Not ready: versions.")


def test_a_check_that_breaks_is_a_line_of_the_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> checks.Check:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(checks, "CHECKS", {"threads": broken})
    assert doctor.run(as_json=True) == 1
    (check,) = json.loads(capsys.readouterr().out)["checks"]
    assert check["finding"] == "ZeroDivisionError: inside"


def test_the_proof_notices_a_wrong_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    # Wrong in one element out of 100 003.
    wrong = small_kernel.TEXT.replace("+ y[i]", "+ y[i] + hl.select(i == 99999, 1.0, 0.0)")
    assert wrong != small_kernel.TEXT
    monkeypatch.setattr(small_kernel, "TEXT", wrong)
    with pytest.raises(HalideBackendError, match="1 of 100003 elements are wrong"):
        small_kernel.prove(process_audit.StartedProcesses())
