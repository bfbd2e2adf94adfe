from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_texts import DOUBLED

from halide_backend import sources
from halide_backend.build import fingerprint
from halide_backend.build.pool import WorkerPool
from halide_backend.build.target import Target
from halide_backend.errors import KernelTextError, UnsupportedVersionError
from kernels_cache import Key

HOST = Target.host()
PACKAGE = Path(sources.__file__).parent


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
    known = {digest(), digest(DOUBLED + " "), digest(target=Target.named("avx2"))}
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


def test_a_comment_changes_the_key_where_it_may_change_a_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What texts import and what builds them changes it, in a copy of all sources; rules and writers do not."""
    package = tmp_path / "halide_backend"
    shutil.copytree(PACKAGE, package, ignore=lambda folder, names: {n for n in names if n.endswith((".so", ".pyc"))})
    monkeypatch.setattr(sources, "__file__", str(package / "sources.py"))
    before = sources.sources_digest(fingerprint.SOURCES)
    changing = set()
    for path in package.rglob("*.py"):
        text = path.read_bytes()
        path.write_bytes(text + b"# a comment\n")
        if sources.sources_digest(fingerprint.SOURCES) != before:
            changing.add(path.relative_to(package).as_posix())
        path.write_bytes(text)
    assert sources.sources_digest(fingerprint.SOURCES) == before
    assert {path.partition("/")[0] for path in changing} == {"build", "kernel_library", "program", "schedule"}
    assert {"kernel_library/operations.py", "kernel_library/cuda/memory.py", "build/ptx/calls.py"} < changing
    assert {path for path in changing if path.startswith(("program/", "schedule/"))} == {
        "program/dtypes.py",
        *(f"schedule/{name}.py" for name in ("apply", "stage", "steps", "tiling")),
        *(path.relative_to(package).as_posix() for path in (package / "schedule" / "legality").glob("*.py")),
    }


def test_the_extension_of_texts_for_a_gpu_is_in_their_keys() -> None:
    pytest.importorskip("halide")
    module = pytest.importorskip("halide_backend.kernel_library.cuda._intrinsics")
    fields = fingerprint.key_fields(DOUBLED, Target.cuda(9, 0))
    assert fields["intrinsics"] == hashlib.sha256(Path(module.__file__).read_bytes()).hexdigest()
    assert "intrinsics" not in fingerprint.key_fields(DOUBLED, HOST)


#: What a worker has loaded when it has run a text that imports all that a text can.
TEXT = """
import importlib, pkgutil, sys
import halide_backend.kernel_library as library
from halide_backend.schedule import apply, steps

for module in pkgutil.walk_packages(library.__path__, f"{library.__name__}."):
    importlib.import_module(module.name)
raise RuntimeError(*sorted(name for name in sys.modules if name.partition(".")[0] == "halide_backend"))
"""
#: What is loaded without a say in what a text compiles to: packages that are empty, errors, the plugin's switch, and
#: what a worker is.
WITHOUT_A_SAY = {
    "halide_backend",
    "halide_backend.autoload",
    "halide_backend.errors",
    "halide_backend.refusals",
    "halide_backend.program",
    "halide_backend.schedule",
    *(f"halide_backend.workers{module}" for module in ("", ".serving", ".task")),
}


def test_all_that_a_worker_loads_is_in_the_key(pool: WorkerPool) -> None:
    with pytest.raises(KernelTextError) as caught:
        pool.compile(TEXT, HOST, "k", "modules")
    loaded = set(re.findall(r"'([\w.]+)'", caught.value.what))
    assert {"halide_backend.build.compiler", "halide_backend.kernel_library.cuda.scans"} < loaded
    known = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for part in fingerprint.SOURCES
        for path in [PACKAGE / part, *(PACKAGE / part).rglob("*.py")]
    }
    # Texts for a GPU have it in their keys.
    extension = {"halide_backend.kernel_library.cuda._intrinsics"}
    assert loaded - known - WITHOUT_A_SAY <= extension, "add them to fingerprint.SOURCES"
    for name in WITHOUT_A_SAY & {"halide_backend.program", "halide_backend.schedule"}:
        tree = ast.parse(Path(PACKAGE.parent, *name.split("."), "__init__.py").read_text())
        assert all(isinstance(statement, (ast.Expr, ast.ImportFrom)) for statement in tree.body)
