"""K8 and the import promises: what the source says, and what the interpreter saw."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from crew import ROOT, scenario

import kernels_cache

PACKAGE = ROOT / "kernels_cache"
SOURCES = sorted(PACKAGE.glob("*.py"))
FORBIDDEN_MODULES = {
    "pickle",
    "marshal",
    "shelve",
    "ctypes",
    "dill",
    "cloudpickle",
    "numpy",
    "torch",
}
FORBIDDEN_MODULES |= {"halide", "subprocess", "importlib", "runpy", "code", "imp", "cffi", "mmap"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "system", "popen"}
Figure = Callable[[str, str, str], None]


def _modules(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_the_source_keeps_the_rules(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    allowed = set(sys.stdlib_module_names) | {"kernels_cache", "filelock", "platformdirs"}
    assert _modules(tree) <= allowed
    assert not _modules(tree) & FORBIDDEN_MODULES
    calls = {
        node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute))
    }
    assert not (calls & FORBIDDEN_CALLS) - ({"compile"} if "re.compile(" in text else set())
    if path.stem != "environment":
        assert "environ" not in text.replace("environment", "")
    assert len(text.splitlines()) < 400
    assert ast.get_docstring(tree)
    assert "from __future__ import annotations" in text


def test_only_environment_reads_the_environment() -> None:
    readers = [path.stem for path in SOURCES if "os.environ" in path.read_text(encoding="utf-8")]
    assert readers == ["environment"]


def test_nothing_stored_ever_becomes_code(root: Path, figure: Figure) -> None:
    answer = scenario("safety", "audited", root=str(root))
    assert answer["control"] is True
    assert answer["events"] > 1000
    assert answer["code"] == []
    figure(
        "K8",
        f"source scan of {len(SOURCES)} modules; {answer['events']} audit events",
        "0 uses of pickle, marshal, eval, exec, ctypes, subprocess",
    )


@pytest.mark.parametrize("blocked", ["torch", "halide", "llvmlite", "numpy"])
def test_the_package_stands_alone(blocked: str) -> None:
    script = f"""
import sys
sys.modules[{blocked!r}] = None  # any import of it raises
import kernels_cache, kernels_cache.cli, kernels_cache.bundle, kernels_cache.explanation
assert not any(name.split(".")[0] == "halide_backend" for name in sys.modules)
print(kernels_cache.__version__)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == kernels_cache.__version__, done.stderr


def test_the_maker_has_the_version_of_the_package() -> None:
    from kernels_cache import entry

    assert "kernels_cache " + ".".join(kernels_cache.__version__.split(".")[:2]) == entry.MAKER


def test_every_error_travels_between_processes_and_says_what_to_do() -> None:
    import pickle

    found = [
        item
        for item in vars(kernels_cache).values()
        if isinstance(item, type) and issubclass(item, kernels_cache.CacheError)
    ]
    assert len(found) == 11
    for kind in found:
        error = kind("what happened", "where", "Do this.")
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind
        assert str(copy) == "what happened (where). Do this."
        assert copy.__dict__ == error.__dict__
    timeout = kernels_cache.LockTimeout("a", "b", "c", 7, "machine", 1.5)
    copy = pickle.loads(pickle.dumps(timeout))
    assert (copy.pid, copy.host, copy.age_s) == (7, "machine", 1.5)


def test_threads_and_forks(root: Path, figure: Figure) -> None:
    answer = scenario("safety", "threads_and_forks", root=str(root))
    assert answer == {"wrong": 0, "children": 8, "spawned": [0, 0], "counted": True, "troubles": 0}
    figure("K18.2", "16 threads on one store, 8 forks and 2 fresh processes meanwhile", "0 wrong results, 0 deadlocks")
