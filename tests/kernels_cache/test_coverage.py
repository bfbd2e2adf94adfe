"""K19: the tests reach the branches of the package, and notice when its code is wrong."""

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


@pytest.mark.long
def test_mutants(figure: Figure) -> None:
    """Break the code in 40 places, one at a time; a test has to fail for nearly each."""
    done = subprocess.run(
        [sys.executable, str(HERE / "mutants.py"), "--count", "40", "--seed", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["tried"] == 40
    assert answer["killed"] >= 0.85 * answer["tried"], done.stdout
    figure(
        "K19.2",
        f"{answer['tried']} mutants drawn from {answer['possible']}, seed 1",
        f"{answer['killed']} noticed by the quick tests",
    )
