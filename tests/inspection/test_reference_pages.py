"""Pages of docs/ that repeat what the code says have to say it as it is."""

from __future__ import annotations

import argparse
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from halide_backend import cli, errors
from halide_backend.inspection import one_kernel_page, operations_page, options_page, records_page, refusals_page
from kernels_cache import cli as cache_cli

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_the_page_of_options_is_current() -> None:
    assert (REFERENCE / "options.md").read_text() == options_page.page(), "run `make reference`"


def test_the_page_of_operations_is_current() -> None:
    assert (REFERENCE / "operations.md").read_text() == operations_page.page(), "run `make reference`"


def test_the_page_of_refusals_is_current() -> None:
    assert (REFERENCE / "refusals.md").read_text() == refusals_page.page(), "run `make reference`"


def test_the_page_of_records_is_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(tmp_path))
    assert (REFERENCE / "records.md").read_text() == records_page.page(), "run `make reference`"


def test_the_page_of_one_kernel_is_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(tmp_path))
    page = one_kernel_page.page()
    assert (ROOT / "docs" / "design" / "one-kernel.md").read_text() == page, "run `make reference`"
    assert len(page.splitlines()) < 400


def test_the_page_of_errors_lists_every_error_with_its_python_meaning() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (?:`(\w+)`)? ?\|", (REFERENCE / "errors.md").read_text(), re.M))
    base = errors.HalideBackendError
    defined = {
        name: next((b.__name__ for b in cls.__bases__ if not issubclass(b, base)), "")
        for name, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, base) and cls is not base
    }
    assert rows == defined


@pytest.mark.parametrize(
    ("program", "parser"),
    [("halide-backend", cli._parser()), ("kernels-cache", cache_cli._parser())],
)
def test_the_page_of_commands_lists_every_command_and_option(program: str, parser: argparse.ArgumentParser) -> None:
    text = (REFERENCE / "cli.md").read_text()
    page = text[text.index(f"\n## {program}") :].partition("\n## ")[2]
    (commands,) = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for name, command in commands.choices.items():
        assert f"`{program} {name}" in page
        for action in command._actions:
            long = [o for o in action.option_strings if o.startswith("--") and o != "--help"]
            assert all(option in page for option in long if option != "--long")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / target).resolve() for target in re.findall(r"\]\(([^)#\s]+)\)", index.read_text())}
    assert {page for page in PAGES if page.is_relative_to(index.parent)} - linked == {index}


def test_the_example_of_the_readme_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len(example.strip().splitlines()) <= 5
    program = f"{example}\nimport halide_backend\nprint(halide_backend.stats()['native_kernels'])\n"
    # What pip leaves for torch to find; the environment of the tests may run from the sources.
    (tmp_path / "halide_backend-0.dist-info").mkdir()
    (tmp_path / "halide_backend-0.dist-info" / "entry_points.txt").write_text(
        "[torch_dynamo_backends]\nhalide_backend = halide_backend.plugin:compile_graph\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)]),
            "HALIDE_BACKEND_CACHE_DIR": str(tmp_path / "halide"),
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shape, native = done.stdout.splitlines()
    assert shape == "torch.Size([8, 64])"
    assert int(native) > 0
