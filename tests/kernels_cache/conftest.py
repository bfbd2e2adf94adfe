r"""Figures, sizes and stores for the tests of kernels_cache.

Every test of the K series records the figure it measured. `--figures FILE` writes them as a
table between the two markers of a Markdown file:

    python -m pytest tests/kernels_cache -m "long or not long" \
        --figures docs/design/kernels-cache.md
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock
import pytest

from kernels_cache import Store, trouble

_FIGURES: dict[str, tuple[str, str]] = {}
_MARKERS = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--figures", metavar="FILE", help="write the measured figures into FILE")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: the long version of a test; not run by default")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "long" in config.getoption("markexpr"):
        return
    here = Path(__file__).parent
    long = [item for item in items if here in item.path.parents and item.get_closest_marker("long")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        for name, value in report.user_properties:
            if name == "figure":
                identity, claim, text = value
                _FIGURES[identity] = (claim, text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = _in_order(_FIGURES)
    if not rows:
        return
    terminalreporter.section("figures of kernels_cache")
    for identity, (claim, text) in rows:
        terminalreporter.write_line(f"{identity:5} {claim}: {text}")
    target = config.getoption("figures")
    if target:
        _write(Path(target), rows)


def _in_order(figures: dict[str, tuple[str, str]]) -> list[tuple[str, tuple[str, str]]]:
    return sorted(figures.items(), key=lambda row: [int(row[0].split(".")[0][1:]), row[0]])


def _write(target: Path, rows: list[tuple[str, tuple[str, str]]]) -> None:
    """Put the rows in the table of `target`; rows of tests that did not run stay."""
    text = target.read_text(encoding="utf-8")
    begin, end = map(re.escape, _MARKERS)
    if re.search(f"{begin}.*{end}", text, flags=re.DOTALL) is None:
        raise SystemExit(f"{target} has no place for figures (markers {_MARKERS})")
    old = re.findall(r"^\| (K[\w.]+) \| (.*) \| (.*) \|$", text, flags=re.MULTILINE)
    figures = {identity: (claim, figure) for identity, claim, figure in old} | dict(rows)
    table = ["| test | what was tried | figure |", "|---|---|---|"]
    table += [f"| {one} | {claim} | {figure} |" for one, (claim, figure) in _in_order(figures)]
    made = (
        f"Made on {platform.system()} {platform.release()}, {_processor()}, {os.cpu_count()} "
        f"processors, Python {platform.python_version()}, filelock {filelock.__version__}.\n\n"
    )
    body = _MARKERS[0] + made + "\n".join(table) + "\n" + _MARKERS[1]
    text = re.sub(f"{begin}.*{end}", lambda _: body, text, flags=re.DOTALL)
    target.write_text(text, encoding="utf-8")


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str, str, str], None]:
    """Record what a test measured: identity ("K1"), what was tried, the figure."""

    def record(identity: str, claim: str, text: str) -> None:
        request.node.user_properties.append(("figure", (identity, claim, text)))
        print(f"{identity} {claim}: {text}")

    return record


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test sees the developer's cache, nor the warning another test gave."""
    monkeypatch.delenv("HALIDE_BACKEND_CACHE_DIR", raising=False)
    monkeypatch.delenv("HALIDE_BACKEND_CACHE_STRICT", raising=False)
    trouble.forget()
    yield
    trouble.forget()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def store(root: Path) -> Store:
    """A strict store: a test that expects trouble opens its own."""
    return Store.open(root, strict=True)
