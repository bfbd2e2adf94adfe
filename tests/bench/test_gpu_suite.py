"""benchmarks/gpu_suite.py: who compiles and times which case, what becomes of the cases of a process that ends, what is
written and printed. Threads stand for processes, so that no GPU is needed."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from halide_backend.bench import suite
from halide_backend.bench.case import Case, Selection
from halide_backend.bench.contestants import Contestants
from halide_backend.bench.measurement import Result

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks/gpu_suite.py"
NAME = "halide_backend"
Answer = Callable[[str, int], Any]

REQUEST = suite.Request(
    "cuda", Contestants(("triton",)), Selection(only=("pointwise",), sizes=("large",), dtypes=("float32",))
)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "provenance", lambda *_: {"device": "none"})


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.fixture(scope="module")
def chosen() -> list[Case]:
    found = suite.chosen_cases(REQUEST)
    seen, held_back = ([case for case in found if case.held_back == hidden] for hidden in (False, True))
    return [*seen[:3], *held_back[:3]]


class Ends(Exception):
    """The process ends instead of an answer."""


@pytest.fixture
def crew(script: dict[str, Any]) -> Iterator[Callable[..., Any]]:
    """Makes a crew of threads, each of which answers as its function does."""
    crews = []

    def made(count: int, *answers: Answer) -> Any:
        workers = []
        for answer in answers:
            ours, theirs = Pipe()
            threading.Thread(target=serve, args=(theirs, answer), daemon=True).start()
            workers.append(script["Worker"](ours))
        crews.append(script["Crew"](workers, count))
        return crews[-1]

    yield made
    for each in crews:
        each.stop()


def serve(connection: Any, answer: Answer) -> None:
    connection.send(None)
    try:
        while True:
            connection.send(answer(*connection.recv()))
    except (EOFError, OSError, Ends):
        connection.close()


def compiled(case: Case, number: int) -> Result:
    seconds = {NAME: 1.0 + number, "triton": 10.0}
    return Result(case.name, case.group, case.held_back, True, ran={NAME: {NAME: 1}}, compile_s=seconds, bytes_moved=6)


def works(chosen: list[Case], *, slower: float = 1.0) -> Answer:
    def answer(order: str, number: int) -> Any:
        if order == "compile":
            return compiled(chosen[number], number)
        if order == "bandwidth":
            return 2.0
        return {NAME: [2.0 * slower] * 3, "triton": [3.0, 4.0, 100.0]}

    return answer


def soon() -> float:
    return time.monotonic() + 30


def test_all_cases_are_compiled_once_and_timed_in_every_round(
    script: dict[str, Any], crew: Any, chosen: list[Case]
) -> None:
    some = crew(6, works(chosen), works(chosen))
    some.compile(soon())
    assert sorted(number for worker in some.workers for number in worker.cases) == list(range(6))
    rate = some.call("bandwidth", soon())
    rounds = [script["document"](REQUEST, some, chosen, some.time(soon()), rate) for _ in range(2)]
    for each in rounds:
        assert [case["name"] for case in each["results"]] == [case.name for case in chosen[:3]]
        assert [case["name"] for case in each["held_back_results"]] == [case.name for case in chosen[3:]]
        assert all(case["roofline_s"] == 3.0 for case in each["results"])
        assert (each["missing"], each["controls"], each["against"]) == ({}, [], ["triton"])
        assert each["figures"]["triton"]["all"]["geometric_mean"] == pytest.approx(2.0)
        assert sorted(name for names in each["processes"] for name in names) == sorted(case.name for case in chosen)


def test_cases_of_a_process_that_ends_are_missing(script: dict[str, Any], crew: Any, chosen: list[Case]) -> None:
    """The one that it compiles, and those that only it could time; the others are done by who is left."""

    def ends(order: str, number: int) -> Any:
        if number == 1:
            raise Ends
        return works(chosen)(order, number)

    some = crew(6, ends)
    some.compile(soon())
    assert some.missing == {
        **dict.fromkeys((0, 1), "its process ended"),
        **dict.fromkeys(range(2, 6), "not compiled: no time or no process was left"),
    }
    both = crew(6, ends, works(chosen))
    both.compile(soon())
    written = script["document"](REQUEST, both, chosen, both.time(soon()), None)
    lost = written["missing"].get("its process ended", [])
    if lost:  # the first process took case 1
        assert chosen[1].name in lost
    kept = [case["name"] for case in (*written["results"], *written["held_back_results"])]
    assert sorted([*kept, *lost]) == sorted(case.name for case in chosen)
    assert f"{len(lost)} cases MISSING: its process ended" in script["told"]([written]) or not lost


def test_a_process_that_ends_while_it_times_loses_its_cases(
    script: dict[str, Any], crew: Any, chosen: list[Case]
) -> None:
    def ends(order: str, number: int) -> Any:
        if order == "time":
            raise Ends
        return works(chosen)(order, number)

    some = crew(2, ends)
    some.compile(soon())
    assert some.time(soon()) == {}
    written = script["document"](REQUEST, some, chosen[:2], {}, None)
    assert written["results"] == []
    assert written["missing"] == {"its process ended": [case.name for case in chosen[:2]]}


def test_no_case_begins_after_its_time_and_who_does_not_answer_is_stopped(crew: Any, chosen: list[Case]) -> None:
    def hangs(order: str, number: int) -> Any:
        threading.Event().wait(5)

    late = crew(2, works(chosen))
    late.compile(time.monotonic() - 1)
    assert late.missing == dict.fromkeys((0, 1), "not compiled: no time or no process was left")
    silent = crew(2, hangs)
    silent.compile(time.monotonic() + 0.1, grace=0.1)
    assert silent.missing[0] == "its process did not end in time"
    assert silent.workers == []


def test_what_a_case_could_not_be_timed_for_is_an_error(crew: Any, chosen: list[Case]) -> None:
    some = crew(1, lambda order, number: works(chosen)(order, number) if order == "compile" else "OutOfMemory: all")
    some.compile(soon())
    assert some.time(soon()) == {}
    assert (some.results[0].right, some.results[0].error) == (False, "OutOfMemory: all")


def test_held_back_cases_are_never_named(script: dict[str, Any], crew: Any, chosen: list[Case]) -> None:
    """But counted by group and type; of the others those that are low are named."""
    rounds = []
    for slower in (4.0, 3.0, 1.0):
        some = crew(6, works(chosen, slower=slower))
        some.compile(soon())
        rounds.append(script["document"](REQUEST, some, chosen, some.time(soon()), None))
    told = script["told"](rounds)
    assert not any(case.name in told for case in chosen[3:])
    assert f"{chosen[0].name} 0.667" in told  # the second of 4/8, 4/6, 4/2
    assert "held back, below 0.97: pointwise float32 3" in told
    rows = [line.split() for line in told.splitlines()]
    assert ["held", "back", "all", "3", "0.667", "0.667", "0.0", "%", "3", "3"] in rows
    assert "first calls: ours 21.0 s, triton 60.0 s: 0.350" in told
    assert "without each process's: ours 20.0 s, triton 50.0 s: 0.400" in told


@pytest.mark.gpu
def test_a_few_cases_on_a_gpu(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--only", "add_relu_", "--sizes", "odd", "--jobs", "2", "--rounds", "2"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "few")],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    rounds = [json.loads((tmp_path / f"few-{number}.json").read_text()) for number in (1, 2)]
    wanted = suite.chosen_cases(replace(REQUEST, selection=Selection(("add_relu_",), ("odd",), ())))
    for each in rounds:
        results = [*each["results"], *each["held_back_results"]]
        assert sorted(case["name"] for case in results) == sorted(case.name for case in wanted)
        assert each["roofline"]["copy_gb_s"] > 100
        for case in results:
            assert case["right"]
            assert case["compile_s"].keys() == case["samples"].keys() == {NAME, "triton"}
            assert case["ran"][NAME][NAME] > 0
    assert rounds[0]["results"][0]["samples"] != rounds[1]["results"][0]["samples"]
