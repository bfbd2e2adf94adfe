"""K19: the tests reach the branches of the package; mutants.py asks whether they notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from crew import HERE, ROOT

Figure = Callable[[str, str, str], None]


@pytest.mark.long
def test_branch_coverage(tmp_path: Path, figure: Figure) -> None:
    """Of the short tests in one process; scenarios in other processes are not even counted."""
    environment = {**os.environ, "COVERAGE_FILE": str(tmp_path / "data")}
    coverage = [sys.executable, "-m", "coverage"]
    command = ["run", "--branch", f"--source={ROOT / 'kernels_cache'}", "-m", "pytest", str(HERE)]
    # Tracing makes look-ups slow, and their speed is not the question here.
    command += ["--ignore", str(HERE / "test_latency.py"), "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*coverage, *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    report = [*coverage, "json", "-o", str(tmp_path / "report.json")]
    subprocess.run(report, cwd=ROOT, env=environment, check=True, capture_output=True)
    totals = json.loads((tmp_path / "report.json").read_text())["totals"]
    branches = 100.0 * totals["covered_branches"] / totals["num_branches"]
    lines = 100.0 * totals["covered_lines"] / totals["num_statements"]
    assert branches >= 95.0
    assert lines >= 95.0
    figure(
        "K19.1",
        "coverage by the short tests, without the child processes",
        f"{branches:.1f} % of {totals['num_branches']} branches, {lines:.1f} % of lines",
    )
