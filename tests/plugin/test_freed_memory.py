"""Memory that a call frees is there for the next one, unless the user says otherwise; what is not has huge pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., dict[str, Any]]

#: A result of 40 MB, 10,240 pages. glibc by itself gives blocks of more than 32 MB back as soon as they are freed; of
#: smaller ones it depends on what lies behind them. Reports how many pages the system gave a call, in the median, and
#: what `doctor` says. With `SMALL` all pages have 4 KB (PR_SET_THP_DISABLE of prctl).
SMALL = """
import ctypes
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)
"""
SCRIPT = """
import resource
import statistics
import torch
from halide_backend.inspection.checks import CHECKS
def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
x = torch.rand(10 * 1024, 1024)
compiled = torch.compile(lambda x: x * 5 + 1, backend="halide_backend", options=OPTIONS)
given = []
for _ in range(25):
    before = pages()
    compiled(x)
    given.append(pages() - before)
torch.testing.assert_close(compiled(x), x * 5 + 1)
report(pages=statistics.median(given), doctor=CHECKS["freed memory"]().finding)
"""


def test_calls_get_no_fresh_pages(run: Run) -> None:
    assert run(SMALL + SCRIPT.replace("OPTIONS", "{'kept_memory_mb': 1024}"))["pages"] < 1000


@pytest.mark.parametrize(
    ("megabytes", "environment", "doctor"),
    [
        ("256", {}, "up to 256 MB are kept"),
        ("0", {}, "as glibc decides"),
        ("4096", {"MALLOC_TRIM_THRESHOLD_": "131072"}, "as MALLOC_TRIM_THRESHOLD_ says"),
        ("4096", {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072"}, "as GLIBC_TUNABLES says"),
    ],
)
def test_what_is_not_kept(run: Run, megabytes: str, environment: dict[str, str], doctor: str) -> None:
    """A block of more than an eighth of what is kept, and any where the user has set glibc's thresholds himself."""
    found = run(SMALL + SCRIPT.replace("OPTIONS", "{}"), HALIDE_BACKEND_KEPT_MEMORY_MB=megabytes, **environment)
    assert found["pages"] > 9000
    assert found["doctor"] == doctor


def test_the_most_that_can_be_kept(run: Run) -> None:
    found = run(SMALL + SCRIPT.replace("OPTIONS", "{}"), HALIDE_BACKEND_KEPT_MEMORY_MB="4096")
    assert found["pages"] < 1000
    assert found["doctor"] == "up to 2047 MB are kept"


_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not _HUGE_PAGES.exists() or "[never]" in _HUGE_PAGES.read_text(), reason="a system without transparent huge pages"
)
def test_a_fresh_block_has_huge_pages(run: Run) -> None:
    """Those of 4 KB are what lies before the first page of 2 MB, and behind the last one: 1,024 at most."""
    assert run(SCRIPT.replace("OPTIONS", "{}"), HALIDE_BACKEND_KEPT_MEMORY_MB="0")["pages"] < 1100
