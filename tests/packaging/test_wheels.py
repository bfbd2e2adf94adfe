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

from halide_backend import versions
from halide_backend.build import elf

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

PACKAGE = """
import os, shutil, torch
import halide_backend
assert "site-packages" in halide_backend.__file__, halide_backend.__file__
assert shutil.which("g++") is None and "CXX" not in os.environ
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.GELU(), torch.nn.LayerNorm(32)).eval()
x = torch.randn(8, 64)
with torch.no_grad():
    halide_backend.package_without_compiler(torch.export.export(model, (x,)), "model.pt2")
    wanted = model.double()(x.double()).float()
torch.testing.assert_close(torch._inductor.aoti_load_package("model.pt2")(x), wanted, rtol=1e-5, atol=1e-6)
print("native", halide_backend.stats()["native_kernels"])
"""


def interpreter(minor: int) -> str:
    """A Python 3.`minor` that starts, in PATH or of pyenv; "" if there is none."""
    if minor == sys.version_info.minor:
        return sys.executable
    found = [shutil.which(f"python3.{minor}"), *Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")]
    starts = (str(each) for each in found if each and not subprocess.run([each, "-c", ""], check=False).returncode)
    return next(starts, "")


def built(folder: Path, base: str, **settings: str) -> tuple[Path, Path, str]:
    """The wheel and the source archive that the script makes in `folder` for one Python, and what it prints."""
    done = subprocess.run(
        ["bash", ROOT / "packaging/wheels.sh", folder, base],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist, done.stdout


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("g++"), reason="builds extensions with g++")
@pytest.mark.parametrize("minor", [10, 11, 12, 13])
def test_a_wheel_is_built_checked_and_runs_in_a_clean_environment(tmp_path: Path, minor: int) -> None:
    """With torch of the version at hand; pip finds the other dependencies (5 GB where torch is built for CUDA)."""
    base = interpreter(minor)
    if not base:
        pytest.skip(f"there is no Python 3.{minor} on this machine")
    version = torch.__version__.partition("+")[0]
    # Those of other versions of torch are built the same way, and take a minute.
    packages = minor == sys.version_info.minor and versions.loads_packages_of_bytecode()
    wheel, sdist, said = built(tmp_path / "dist", base, TORCH=version if packages else "")
    tag = f"cp3{minor}"
    assert re.fullmatch(rf"halide_backend-[\d.]+-{tag}-{tag}-(\w+\.)?manylinux_2_28_\w+\.whl", wheel.name)
    checked = re.sub(r"\s|\x1b\[\d+m", "", said)  # twine breaks lines and likes colours
    assert f"{wheel.name}:PASSED" in checked and f"{sdist.name}:PASSED" in checked
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
    assert "halide_backend/launch/model_runtime.cpp" in names and "halide_backend/py.typed" in names
    libraries = [name for name in names if name.startswith("halide_backend/packages/bytecode/model-")]
    assert len(libraries) == packages, libraries
    assert not [
        name for name in names if name.startswith("tests") or name.endswith((".c", ".h")) or "libHalide" in name
    ]

    python = tmp_path / "clean/bin/python"
    foreign = ("PYTHON", "TORCH", "HALIDE_BACK", "CXX")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    subprocess.run([base, "-m", "venv", tmp_path / "clean"], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", wheel, f"torch=={version}"], env=kept, check=True)
    environment = {
        **kept,
        "PATH": str(python.parent),
        "HALIDE_BACKEND_CACHE_DIR": str(tmp_path / "kernels"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
    }
    programs = (PROGRAM, PACKAGE) if packages else (PROGRAM,)
    for command in (*([python, "-c", text] for text in programs), [python.with_name("halide-backend"), "doctor"]):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        if command[0] == python:
            assert re.search(r"^native [1-9]", done.stdout, re.M)


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("aarch64-linux-gnu-g++"), reason="needs Debian's g++-aarch64-linux-gnu")
def test_a_wheel_for_arm_has_extensions_for_it(tmp_path: Path) -> None:
    """tests/cross runs such an extension."""
    wheel, _, _ = built(tmp_path, sys.executable, ARCHITECTURE="aarch64")
    platform = re.search(r"manylinux_2_(\d+)_aarch64\.whl", wheel.name)
    assert platform and int(platform[1]) <= 28
    with zipfile.ZipFile(wheel) as files:
        libraries = {name.partition(".")[0]: name for name in files.namelist() if name.endswith(".so")}
        machines = {elf.machine(files.read(name)) for name in libraries.values()}
    extensions = {"halide_backend/launch/_native", "halide_backend/kernel_library/cuda/_intrinsics"}
    assert set(libraries) == extensions and machines == {elf.AARCH64}
    assert all(name.endswith("-aarch64-linux-gnu.so") for name in libraries.values())
