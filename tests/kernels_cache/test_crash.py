"""K3: a process may die at any point of a put."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from crew import scenario


@pytest.mark.parametrize("repeats", [4, pytest.param(25, marks=pytest.mark.long)])
def test_kills_at_every_point_of_a_put(root: Path, figure: Callable[[str, str, str], None], repeats: int) -> None:
    report = scenario("crashes", "kills", root=str(root), repeats=repeats)
    assert report["bad"] == []
    assert report["kills"] == 12 * repeats
    # Killed after the rename: the entry is there. Before it: it is not. Nothing in between.
    assert report["hits"] == 3 * repeats
    assert report["misses"] == 9 * repeats
    figure(
        "K3",
        f"SIGKILL at 12 points of a put, {repeats} times each",
        f"{report['survived']} of {report['kills']} kills survived, 0 damaged entries readable",
    )
