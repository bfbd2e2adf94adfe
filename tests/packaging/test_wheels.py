"""What `packaging/wheels.sh` builds, installed where nothing else of this repository is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]

PROGRAM = """
import shutil, halide, torch
import halide_backend
import halide_backend.kernel_library.cuda._intrinsics  # needs Halide's library, which is not in the wheel
assert "site-packages" in halide_backend.__file__, halide_backend.__file__
assert shutil.which("g++") is None
def f(x):
    return torch.softmax(torch.sin(x) * 2, -1).sum(0)
x = torch.randn(50, 70)
torch.testing.assert_close(torch.compile(f, backend="halide_backend")(x), f(x))
print("native", halide_backend.stats()["native_kernels"])
"""


def interpreter(minor: int) -> str:
    """A Python 3.`minor` that starts, in PATH or of pyenv; "" if there is none."""
    if minor == sys.version_info.minor:
        return sys.executable
    found = [shutil.which(f"python3.{minor}"), *Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")]
    starts = (str(each) for each in found if each and not subprocess.run([each, "-c", ""], check=False).returncode)
    return next(starts, "")


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("g++"), reason="builds extensions with g++")
@pytest.mark.parametrize("minor", [10, 11, 12, 13])
def test_a_wheel_is_built_checked_and_runs_in_a_clean_environment(tmp_path: Path, minor: int) -> None:
    """With torch of the version at hand; pip finds the other dependencies (5 GB where torch is built for CUDA)."""
    base = interpreter(minor)
    if not base:
        pytest.skip(f"there is no Python 3.{minor} on this machine")
    built = subprocess.run(
        ["bash", ROOT / "packaging/wheels.sh", tmp_path / "dist", base],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    tag = f"cp3{minor}"
    assert re.fullmatch(rf"halide_backend-[\d.]+-{tag}-{tag}-(\w+\.)?manylinux_2_28_\w+\.whl", wheel.name)
    checked = re.sub(r"\s|\x1b\[\d+m", "", built.stdout)  # twine breaks lines and likes colours
    assert f"{wheel.name}:PASSED" in checked and f"{sdist.name}:PASSED" in checked
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
    assert "halide_backend/launch/model_runtime.cpp" in names and "halide_backend/py.typed" in names
    assert not [
        name for name in names if name.startswith("tests") or name.endswith((".c", ".h")) or "libHalide" in name
    ]

    python = tmp_path / "clean/bin/python"
    subprocess.run([base, "-m", "venv", tmp_path / "clean"], check=True)
    version = torch.__version__.partition("+")[0]
    subprocess.run([python, "-m", "pip", "install", "-q", wheel, f"torch=={version}"], check=True)
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TORCH", "HALIDE_BACK"))
    }
    environment = {
        **kept,
        "PATH": str(python.parent),
        "HALIDE_BACKEND_CACHE_DIR": str(tmp_path / "kernels"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
    }
    for command in ([python, "-c", PROGRAM], [python.with_name("halide-backend"), "doctor"]):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        if command[0] == python:
            assert re.search(r"^native [1-9]", done.stdout, re.M)
