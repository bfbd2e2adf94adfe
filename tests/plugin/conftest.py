"""Tests of how torch meets the backend: each in a fresh process, as an installed package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from project import ROOT, described

#: Runs before every script: `report` hands values to the test, `failure` describes the error of a
#: call: its class, the class of what it wraps, and the message.
_PREAMBLE = """\
import json as _json
def report(**values):
    print("REPORT" + _json.dumps(values, default=str), flush=True)
def failure(call):
    try:
        call()
    except Exception as error:
        inner = getattr(error, "inner_exception", None) or error
        return [type(error).__name__, type(inner).__name__, str(error)]
    return ["", "", ""]
"""

Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what `pip install` would leave for torch to find: this package's entry points.

    Whether the package is really installed in this environment does not matter then.
    """
    project = described()
    folder = tmp_path_factory.mktemp("site")
    metadata = folder / f"halide_backend-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [
        line
        for group, entries in project["entry-points"].items()
        for line in [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def run(installation: Path, tmp_path: Path) -> Run:
    """Runs a script in a fresh process and returns all that it reported, and "log": its stderr.

    `package` is the folder that holds the package instead of the repository; `flags` go to the
    interpreter, all other keywords are environment variables. Caches are new for each test.
    """

    def run_script(
        script: str, *, package: Path = ROOT, flags: tuple[str, ...] = (), **environment: str
    ) -> dict[str, Any]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TORCH", "HALIDE_BACK"))}
        completed = subprocess.run(
            [sys.executable, *flags, "-c", _PREAMBLE + textwrap.dedent(script)],
            env={
                **kept,
                "PYTHONPATH": os.pathsep.join([str(package), str(installation)]),
                "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
                "HALIDE_BACKEND_CACHE_DIR": str(tmp_path / "kernels"),
                # With max-autotune a graph would be searched for a minute; tests/tune does that.
                "HALIDE_BACKEND_TUNE_SECONDS": "0",
                **environment,
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert completed.returncode == 0, completed.stdout + completed.stderr
        reported: dict[str, Any] = {"log": completed.stderr}
        for line in completed.stdout.splitlines():
            if line.startswith("REPORT"):
                reported.update(json.loads(line.removeprefix("REPORT")))
        return reported

    return run_script


@pytest.fixture
def copied(tmp_path: Path) -> Callable[..., Path]:
    """Copies the packages, with the text of some modules of `halide_backend` replaced."""

    def copy(**changes: str) -> Path:
        folder = tmp_path / "copy"
        for name in ("halide_backend", "kernels_cache"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name, text in changes.items():
            (folder / "halide_backend" / f"{name}.py").write_text(text)
        return folder

    return copy
