from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from halide_backend.inspection import machine


def test_versions_are_those_of_the_installed_distributions() -> None:
    assert machine.version("torch") == metadata.version("torch")
    assert machine.version("no-such-distribution") == ""


def test_a_compiler_is_found_by_cxx_or_as_gxx(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert machine.cxx_compiler() == ""
    for name in ("g++", "clang++"):
        (tmp_path / name).touch(mode=0o755)
    assert machine.cxx_compiler() == str(tmp_path / "g++")
    monkeypatch.setenv("CXX", "clang++")
    assert machine.cxx_compiler() == str(tmp_path / "clang++")


def test_facts_name_the_machine_and_every_version() -> None:
    facts = machine.facts()
    assert f"{machine.cores()} cores" in facts["machine"]
    assert f"torch {metadata.version('torch')}" in facts["versions"]
