"""Which cores measure and which compile, by how many threads kernels have; nothing is started."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from halide_backend.build.target import Target
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import Device
from halide_backend.tune import local_session as module
from halide_backend.tune.compilation import Compilation
from halide_backend.tune.space import RULES, Space
from halide_backend.tune.trial_log import Recorded

Made = Callable[..., LoopProgram]


@pytest.mark.parametrize(
    ("cores", "threads", "measuring", "compiling"),
    [
        # All compile, and then one rests while the last one measures.
        (range(2), 1, [1], [0, 1]),
        (range(4), 2, [2, 3], [0, 1, 2, 3]),
        (range(4), 0, [0, 1, 2, 3], [0, 1, 2, 3]),
        # More are left over than measure: they compile meanwhile.
        (range(3, 6), 1, [5], [3, 4]),
        (range(1), 1, [0], [0]),
    ],
)
def test_the_last_cores_measure(
    monkeypatch: pytest.MonkeyPatch, cores: range, threads: int, measuring: list[int], compiling: list[int]
) -> None:
    allowed = [set(cores)]
    asked: list[Any] = []

    class NoMeasurer:
        def __init__(self, *, cores: list[int]) -> None:
            asked.append(cores)

        def __enter__(self) -> NoMeasurer:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def start(self) -> None:
            pass

    monkeypatch.setattr(os, "sched_getaffinity", lambda process: allowed[-1])
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, wanted: allowed.append(set(wanted)))
    monkeypatch.setattr(module, "Measurer", NoMeasurer)
    log: Any = None
    with module.local_session(Target.host(), log, Recorded(), threads=threads) as session:
        assert asked == [measuring]
        assert sorted(allowed[-1]) == compiling
        assert session._compilation.at_once == len(compiling)
        assert session._conditions.overlap == (not set(measuring) & set(compiling))


def test_what_is_compiled_ahead_is_compiled_once(doubled: Made, device: Device) -> None:
    text = Space(doubled(1000), device).kernel(RULES).text
    with Compilation(Target.host(), workers=1) as compilation:
        begun = compilation.ahead(text, "k")
        assert compilation.begin(text, "k") is begun
        # Whoever asks again has asked for another one.
        assert compilation.begin(text, "k") is not begun
