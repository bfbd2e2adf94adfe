r"""Figures, sizes and stores for the tests of kernels_cache.

Every test of the K series records the figure it measured. `--figures FILE` writes them as a
table between the two markers of a Markdown file, when everything passed:

    python -m pytest tests/kernels_cache -m "long or not long" \
        --figures docs/design/kernels-cache.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import figures
import pytest

from kernels_cache import Store, trouble

_FIGURES: figures.Figures = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--figures", metavar="FILE", help="write the measured figures into FILE")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        for name, value in report.user_properties:
            if name == "figure":
                identity, claim, text = value
                _FIGURES[identity] = (claim, text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    if not _FIGURES:
        return
    terminalreporter.section("figures of kernels_cache")
    for identity, (claim, text) in figures.in_order(_FIGURES):
        terminalreporter.write_line(f"{identity:5} {claim}: {text}")
    target = config.getoption("figures")
    if target and exitstatus == pytest.ExitCode.OK:
        figures.write(Path(target), _FIGURES)


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
