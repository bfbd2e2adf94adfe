"""`halide-backend package` and `halide-backend inspect`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from halide_backend import cli
from halide_backend.build import package_note
from halide_backend.build.package_note import KernelNote
from halide_backend.errors import PackageError
from halide_backend.packages.contents import contents

SCRIPT = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(torch.sin(x), -1)
def exported_program():
    return torch.export.export(Model(), (torch.ones(8, 30),), dynamic_shapes=({0: torch.export.Dim("n", min=2)},))
other = 5
def failing():
    raise KeyError("of the user")
"""


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH", "HALIDE_BACK"))}
    environment = {
        **kept,
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "HALIDE_BACKEND_CACHE_DIR": str(folder / "kernels"),
        "TORCHINDUCTOR_VEC_ISA_OK": "0",
        "AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL": "O0",
    }
    return subprocess.run(
        [sys.executable, "-m", "halide_backend.cli", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_script_is_packaged_and_the_package_tells_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    made = command(tmp_path, "package", "script.py", "--targets", "avx2, sse41", "--out", "model.pt2")
    assert made.returncode == 0, made.stderr
    inspected = command(tmp_path, "inspect", "model.pt2")
    assert inspected.stdout == made.stdout
    assert "  native kernels: 1\n    halide_fused_" in made.stdout and "  delegated kernels: 0\n" in made.stdout
    assert "  targets: sse41,avx2\n" in made.stdout and f"  torch: {torch.__version__}\n" in made.stdout
    (model,) = json.loads(command(tmp_path, "inspect", "model.pt2", "--json").stdout)["models"]
    assert model["metadata"]["AOTI_DEVICE_KEY"] == "cpu"
    assert [note["c_interface"] for note in model["native"]] == [1]
    x = torch.randn(33, 30)
    package = torch._inductor.aoti_load_package(str(tmp_path / "model.pt2"))
    torch.testing.assert_close(package(x), torch.softmax(torch.sin(x), -1))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("package", "none.py", "--out", "a.pt2"), "none.py: there is no such file"),
        (("package", "script.py:nothing", "--out", "a.pt2"), "script.py: it defines no 'nothing'"),
        (("package", "script.py:other", "--out", "a.pt2"), "script.py: 'other' is of type int"),
        (("package", "script.py:failing", "--out", "a.pt2"), "script.py: it ended with KeyError: 'of the user'"),
        (("package", "script.py", "--out", "a.so"), "a.so: the name of a package ends with .pt2"),
        (("package", "script.py", "--out", "no/a.pt2"), "no/a.pt2: its folder cannot be written to"),
        (("package", "script.py", "--targets", "mips", "--out", "a.pt2"), "'mips' is not allowed"),
        (("package", "bad.pt2", "--out", "a.pt2"), "bad.pt2: torch.export.load cannot read it"),
        (("inspect", "none.pt2"), "none.pt2: it cannot be read"),
        (("inspect", "bad.pt2"), "bad.pt2: it cannot be read"),
        (("inspect", "empty.pt2"), "empty.pt2: it has no model of AOTInductor"),
    ],
)
def test_what_cannot_be_packaged_or_read_is_an_error_that_says_so(
    arguments: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import halide_backend

    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "bad.pt2").write_text("no archive")
    with zipfile.ZipFile(tmp_path / "empty.pt2", "w") as files:
        files.writestr("readme", "nothing")
    with halide_backend.config.patch(aot_targets=""):
        assert cli.main(arguments) == 1
    error = capsys.readouterr().err
    assert said in error and "What to do: " in error
    assert not list(tmp_path.glob("a.*"))


def test_a_compilation_that_fails_leaves_the_package_that_was_there(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "model.pt2").write_text("the old one")
    empty = tmp_path / "empty"
    empty.mkdir()
    failed = subprocess.run(
        [sys.executable, "-m", "halide_backend.cli", "package", "script.py", "--out", "model.pt2"],
        cwd=tmp_path,
        env={**os.environ, "PATH": str(empty), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"), "CXX": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert failed.returncode == 1
    assert "model.pt2: torch cannot compile it: " in failed.stderr, failed.stderr
    assert (tmp_path / "model.pt2").read_text() == "the old one"
    assert not list(tmp_path.glob("*.unfinished*"))


def test_kernels_are_found_in_libraries_and_in_sources(tmp_path: Path) -> None:
    text = package_note.note("halide_fused_add_0", ("avx2", "avx512"), "2.13.0+cpu")
    wanted = KernelNote("halide_fused_add_0", ("avx2", "avx512"), 1, "2.13.0+cpu")
    with zipfile.ZipFile(tmp_path / "a.pt2", "w") as files:
        folder = "a/data/aotinductor/"
        files.writestr(f"{folder}one/x.wrapper.so", b"\x7fELF" + text.encode() + b"\0cpp_fused_sub_3\0other\0")
        files.writestr(f"{folder}two/x.kernel.cpp", f"__asm__({text}); void cpp_fused_mul_1(float*) {{}}")
        files.writestr(f"{folder}two/x.wrapper_metadata.json", '{"AOTI_DEVICE_KEY": "cpu"}')
    one, two = contents(str(tmp_path / "a.pt2")).models
    assert (one.kind, one.native, one.delegated) == ("library", (wanted,), ("cpp_fused_sub_3",))
    assert (two.kind, two.native, two.delegated) == ("source", (wanted,), ("cpp_fused_mul_1",))
    assert two.metadata == {"AOTI_DEVICE_KEY": "cpu"}
    with pytest.raises(PackageError):
        contents(str(tmp_path))
