"""Measured figures in, a table in a document out; used by conftest.py and mutants.py."""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path

import filelock

#: Identity ("K1") to what was tried and what came out.
Figures = dict[str, tuple[str, str]]

_MARKERS = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"


def in_order(figures: Figures) -> list[tuple[str, tuple[str, str]]]:
    """Return the rows by number: K2 before K10."""
    return sorted(figures.items(), key=lambda row: [int(row[0].split(".")[0][1:]), row[0]])


def write(target: Path, figures: Figures) -> None:
    """Put the rows in the table of `target`; rows of tests that did not run stay."""
    text = target.read_text(encoding="utf-8")
    begin, end = map(re.escape, _MARKERS)
    if re.search(f"{begin}.*{end}", text, flags=re.DOTALL) is None:
        raise SystemExit(f"{target} has no place for figures (markers {_MARKERS})")
    old = re.findall(r"^\| (K[\w.]+) \| (.*) \| (.*) \|$", text, flags=re.MULTILINE)
    rows = {identity: (claim, figure) for identity, claim, figure in old} | figures
    table = ["| test | what was tried | figure |", "|---|---|---|"]
    table += [f"| {one} | {claim} | {figure} |" for one, (claim, figure) in in_order(rows)]
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
