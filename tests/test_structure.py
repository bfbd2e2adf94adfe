"""Rules of the house that no type checker knows: who imports whom, how long a file may be."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import subprocess
import sys
from collections.abc import Callable, Container, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("halide_backend", "kernels_cache")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

#: The way of a kernel, and below it what its stages are made of; a folder may import those that come after it, never
#: one before it.
STAGES = (
    "tune", "graph_passes", "products", "capture", "schedules", "kernel_records", "codegen", "schedule", "build",
    "launch", "kernel_library", "program", "workers",
)  # fmt: skip
#: What a folder never imports, not even inside a function or by way of another module.
FREE_OF = {
    "halide_backend/capture": ("halide",),
    "halide_backend/kernel_library": ("torch",),
    "halide_backend/kernel_records": ("torch", "halide"),
    "halide_backend/tune/search": ("torch", "halide"),
    "halide_backend/schedule": ("torch",),
    "halide_backend/schedules": ("torch", "halide"),
    "halide_backend/build": ("torch",),
    "halide_backend/workers": ("torch", "halide", "llvmlite", "numpy", "sympy"),
    "kernels_cache": ("torch", "halide", "llvmlite", "numpy", "halide_backend"),
}
#: Folders and files that talk to the user: printing is what they are for.
PRINTING = (
    "halide_backend/bench/",
    "halide_backend/inspection/",
    "halide_backend/demonstration/",
    "halide_backend/opinfo/",
    "halide_backend/packages/command.py",
    "halide_backend/products/command.py",
    "halide_backend/tune/run.py",
    "halide_backend/tune/comparison.py",
    "halide_backend/cli.py",
    "kernels_cache/cli.py",
)
VAGUE_NAMES = ("util", "utils", "common", "helper", "helpers", "misc", "tools")
LONGEST_MODULE = 400


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def name_of(path: Path) -> str:
    return relative(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports(path: Path) -> Iterator[str]:
    """Dotted names that a module imports anywhere, but for the type checker alone."""
    yield from imports_of(tree_of(path), name_of(path), path.name == "__init__.py")


def imports_of(tree: ast.AST, module: str, is_package: bool) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = source_of(node, module, is_package)
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (str(a.value) for a in node.args if isinstance(a, ast.Constant))
        yield from imports_of(node, module, is_package)


def source_of(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """The absolute name of what `module` imports from."""
    parents = module.split(".")
    parents = parents[: len(parents) - node.level + is_package] if node.level else []
    return ".".join(filter(None, [*parents, node.module or ""]))


def modules_needed(tree: ast.AST, module: str, is_package: bool, modules: Container[str]) -> set[str]:
    """Those of `modules` that `module` imports, wherever it does, and be it for the type checker alone.

    `from package import module` needs the module; the package itself runs before any of its modules, whoever imports.
    """
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = source_of(node, module, is_package)
            names = [f"{source}.{alias.name}" for alias in node.names]
            found.update(name if name in modules else source for name in names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found.update(str(a.value) for a in node.args if isinstance(a, ast.Constant))
    return {name for name in found if name in modules}


def is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def test_the_reader_of_imports_sees_every_form() -> None:
    text = (
        "import a.b\nfrom c import d\nfrom . import e\nfrom ..f import g\n"
        "if TYPE_CHECKING:\n    import never\n"
        "def late():\n    import h\n    importlib.import_module('i.j')\n"
    )
    seen = list(imports_of(ast.parse(text), "top.middle.leaf", False))
    assert seen == ["a.b", "c", "c.d", "top.middle", "top.middle.e", "top.f", "top.f.g", "h", "i.j"]
    assert list(imports_of(ast.parse("from . import e"), "top.middle", True)) == [
        "top.middle",
        "top.middle.e",
    ]


def test_there_is_something_to_look_at() -> None:
    folders = {relative(path).rsplit("/", 1)[0] for path in MODULES}
    assert {f"halide_backend/{stage}" for stage in STAGES} | {"kernels_cache"} <= folders


def each_module(rule: Callable[[Path], None]) -> Callable[[], None]:
    """One test that `rule` holds for every module, which names those that break it: a test for each module and rule,
    3,300 of them, took minutes of a slow machine."""

    def test() -> None:
        broken = [text for path in MODULES if (text := broken_by(rule, path))]
        assert not broken, "\n".join(broken)

    test.__name__ = rule.__name__
    return test


def broken_by(rule: Callable[[Path], None], path: Path) -> str:
    """What `rule` says of the module if it breaks it, else ""."""
    try:
        rule(path)
    except AssertionError as error:
        return f"{relative(path)}: {error}"
    return ""


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@each_module
def test_imports_point_down_the_way_of_a_kernel(path: Path) -> None:
    package, stage, *_ = relative(path).split("/")
    if package != "halide_backend" or stage not in STAGES:
        return
    before = STAGES[: STAGES.index(stage)]
    assert not {name for name in imports(path) for s in before if is_in(name, f"halide_backend.{s}")}


def test_no_import_leads_back_to_its_module() -> None:
    names = {name_of(path): path for path in MODULES}
    needed = {
        name: modules_needed(tree_of(path), name, path.name == "__init__.py", names) for name, path in names.items()
    }
    try:
        graphlib.TopologicalSorter(needed).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" is imported by ".join(error.args[1]))


def test_a_circle_may_be_closed_by_any_import() -> None:
    text = (
        "import p.a\nfrom p import b, value\nfrom .c import d\nfrom elsewhere import p\n"
        "if TYPE_CHECKING:\n    from p.e import Type\n"
        "def late():\n    import p.f\n    importlib.import_module('p.g')\n"
    )
    modules = {"p", *(f"p.{name}" for name in "abcdefgh")}
    needed = modules_needed(ast.parse(text), "p.h", False, modules)
    assert needed == {"p", *(f"p.{name}" for name in "abcefg")}
    assert modules_needed(ast.parse("from p import b"), "p.h", False, modules) == {"p.b"}


@pytest.mark.parametrize("folder", FREE_OF)
def test_libraries_stay_out_of_a_folder(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    unwanted = {
        f"{relative(path)}: {name}"
        for path in files
        for name in imports(path)
        for library in FREE_OF[folder]
        if is_in(name, library)
    }
    assert not unwanted
    # What other modules drag in shows only when everything is imported with the libraries blocked.
    modules = [name_of(path) for path in files if path.name != "__main__.py"]
    program = (
        "import importlib, sys\n"
        f"sys.modules.update(dict.fromkeys({FREE_OF[folder]!r}))\n"
        f"for module in {modules!r}: importlib.import_module(module)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_imports_no_library() -> None:
    program = (
        "import sys, halide_backend, halide_backend.cli\n"
        "heavy = {'torch', 'halide', 'llvmlite', 'numpy', 'sympy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


@each_module
def test_a_module_fits_on_a_few_screens(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST_MODULE


@each_module
def test_a_module_is_named_after_what_it_makes(path: Path) -> None:
    assert not set(relative(path).removesuffix(".py").split("/")) & set(VAGUE_NAMES)


@each_module
def test_annotations_are_postponed(path: Path) -> None:
    assert "\nfrom __future__ import annotations\n" in f"\n{path.read_text()}"


@each_module
def test_a_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(tree_of(path))


@each_module
def test_library_code_does_not_print(path: Path) -> None:
    if relative(path).startswith(PRINTING):
        return
    assert "print" not in called(path)


@pytest.mark.parametrize("path", [p for p in MODULES if "kernels_cache/" in relative(p)], ids=str)
def test_the_store_runs_nothing_it_reads(path: Path) -> None:
    # ctypes and dlopen would run machine code, the others Python code.
    loaders = {"pickle", "marshal", "shelve", "dill", "ctypes", "runpy", "imp"}
    assert not {name for name in imports(path) if name.split(".")[0] in loaders}
    assert not called(path) & {"eval", "exec", "compile", "__import__"}


def called(path: Path) -> set[str]:
    """Plain names that a module calls."""
    return {
        node.func.id
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


def test_modules_of_tests_have_names_of_their_own() -> None:
    """pytest imports them by their names alone; `conftest` is whichever was imported last."""
    modules = [path for path in (ROOT / "tests").rglob("*.py") if not (path.parent / "__init__.py").exists()]
    names = [path.stem for path in modules if path.stem != "conftest"]
    assert sorted(names) == sorted(set(names))
    assert [path for path in modules if re.search(r"^(from|import) conftest\b", path.read_text(), re.MULTILINE)] == []
