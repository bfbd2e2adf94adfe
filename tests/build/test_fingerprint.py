from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_texts import DOUBLED

from halide_backend.build import fingerprint
from halide_backend.build.target import Target
from halide_backend.errors import UnsupportedVersionError
from kernels_cache import Key

HOST = Target.host()


def digest(text: str = DOUBLED, target: Target = HOST) -> str:
    return Key(kind="cpu-object", fields=fingerprint.key_fields(text, target)).digest


def test_equal_in_another_process_without_halide_or_torch() -> None:
    script = (
        "import json, sys\n"
        "from halide_backend.build.fingerprint import key_fields\n"
        "from halide_backend.build.target import Target\n"
        f"fields = key_fields({DOUBLED!r}, Target.host())\n"
        "assert not {'halide', 'torch'} & set(sys.modules), 'imported what only workers need'\n"
        "print(json.dumps(fields))"
    )
    root = Path(fingerprint.__file__).parents[2]
    out = subprocess.check_output([sys.executable, "-c", script], cwd=root, text=True, timeout=60)
    assert json.loads(out) == fingerprint.key_fields(DOUBLED, HOST)


def test_every_part_changes_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {digest(), digest(DOUBLED + " "), digest(target=Target.level("avx2"))}
    assert len(known) == 3
    toolchain = fingerprint.toolchain()
    assert set(toolchain) == {"halide", "llvmlite", "llvm", "abi", "sources"}
    for name in toolchain:
        changed = {**toolchain, name: "another"}
        monkeypatch.setattr(fingerprint, "toolchain", lambda changed=changed: changed)
        known.add(digest())
    assert len(known) == 3 + len(toolchain)


def test_libraries_are_named_by_version_and_build() -> None:
    for package, library in (
        ("halide", "lib64/libHalide.so"),
        ("llvmlite", "binding/libllvmlite.so"),
    ):
        version, build = fingerprint.library_identity(package, library).split()
        assert version == importlib.metadata.version(package)
        assert len(bytes.fromhex(build)) == 20
    assert fingerprint.library_identity("halide", "no/such.so") == version_of("halide")


def version_of(package: str) -> str:
    return importlib.metadata.version(package)


def test_absent_package_is_a_typed_error() -> None:
    with pytest.raises(UnsupportedVersionError, match="no_such_package is not installed") as caught:
        fingerprint.library_identity("no_such_package", "lib.so")
    assert "pip install no_such_package" in caught.value.cure


def test_sources_are_those_that_compile_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for package in ("program", "kernel_library", "schedule", "build", "codegen"):
        (tmp_path / package / "inner").mkdir(parents=True)
        (tmp_path / package / "inner" / "part.py").write_text("x = 1\n")
    monkeypatch.setattr(fingerprint, "__file__", str(tmp_path / "build" / "fingerprint.py"))
    digests = [fingerprint.sources_digest.__wrapped__()]
    for package in ("codegen", "program", "kernel_library", "schedule", "build"):
        (tmp_path / package / "inner" / "part.py").write_text("x = 2\n")
        digests.append(fingerprint.sources_digest.__wrapped__())
    assert digests[0] == digests[1]
    assert len(set(digests)) == 5
