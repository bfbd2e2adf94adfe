"""The space of a program: what can be set, what opens and closes with it, what is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from halide_backend.errors import IllegalPlan
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import Device
from halide_backend.tune import space as spaces
from halide_backend.tune.space import RULES, Decision, Space, neighbours, random_settings, repaired

Made = Callable[..., LoopProgram]


def test_the_knobs_that_rules_ask_for_are_the_space(row_sums: Made, device: Device) -> None:
    space = Space(row_sums(), device)
    assert [decision.key for decision in space.decisions(RULES)] == [
        "vectors.bytes",
        "parallel.threads",
        "parallel.task_work",
        "rows.across",
        "vector_reduction.accumulators@sum_0",
        "vector_reduction.partial@sum_0",
    ]
    assert space.chosen(RULES) == space.kernel(RULES).plan.knobs
    # 4 other values for bytes, 1 for threads, 3, 1, 3 and 2 for the others.
    near = neighbours(space, RULES)
    assert len(near) == len(set(near)) == 14
    assert all(len(settings) == 1 for settings in near)


def test_every_random_walk_is_a_kernel(row_sums: Made, device: Device) -> None:
    space = Space(row_sums(), device)
    drawn = {random_settings(space, random.Random(seed)) for seed in range(100)}
    assert len(drawn) > 30
    for settings in drawn:
        chosen = dict(space.chosen(settings))
        assert all(chosen[key] == setting for key, setting in settings)
        assert settings == tuple(sorted(settings))


def test_the_same_seed_draws_the_same(row_sums: Made, device: Device) -> None:
    one, other = (
        [random_settings(Space(row_sums(), device), source) for _ in range(20)]
        for source in (random.Random(3), random.Random(3))
    )
    assert one == other


def test_decisions_that_change_no_other_are_planned_together(
    row_sums: Made, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_kernel, plans = spaces.plan_kernel, list[Any]()

    def counted(program: LoopProgram, device: Device, knobs: Any) -> Any:
        plans.append(knobs)
        return plan_kernel(program, device, knobs)

    monkeypatch.setattr(spaces, "plan_kernel", counted)

    wanted = {"parallel.task_work": 1000, "vector_reduction.accumulators@sum_0": 8}
    assert repaired(Space(row_sums(), device), tuple(wanted.items())) == tuple(wanted.items())
    assert plans == [{}, wanted]


def test_a_walk_asks_for_every_knob_once(row_sums: Made, device: Device) -> None:
    space = Space(row_sums(), device)
    for seed in range(20):
        asked: list[Decision] = []

        def decide(decision: Decision, seed: int = seed, asked: list[Decision] = asked) -> Any:
            asked.append(decision)
            return random.Random(f"{seed} {decision.key}").choice(decision.values)

        settings = space.walk(decide)
        assert len(asked) == len(set(asked))
        # Whatever is open in the end was decided as it is open.
        assert set(space.decisions(settings)) <= set(asked)


def test_settings_of_another_kernel_are_taken_as_far_as_they_go(row_sums: Made, device: Device) -> None:
    space = Space(row_sums(), device)
    wanted = (("parallel.threads", False), ("transposes.side", 16), ("vector_reduction.accumulators@sum_0", 5))
    assert repaired(space, wanted) == (("parallel.threads", False),)


def test_what_has_no_kernel_is_noted_and_the_rule_stays(
    row_sums: Made, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_kernel = spaces.plan_kernel

    def picky(program: LoopProgram, device: Device, knobs: Any) -> Any:
        if knobs.get("vector_reduction.accumulators@sum_0") == 8:
            raise IllegalPlan("eight are too many", where="step 3")
        return plan_kernel(program, device, knobs)

    monkeypatch.setattr(spaces, "plan_kernel", picky)
    space = Space(row_sums(), device)
    eight = (("vector_reduction.accumulators@sum_0", 8),)
    assert eight not in neighbours(space, RULES)
    assert space.refused == {eight: "step 3: eight are too many"}
    assert repaired(space, (("parallel.threads", False), *eight)) == (("parallel.threads", False),)


def test_a_setting_may_open_and_close_other_knobs() -> None:
    class Opening:
        """`second` exists only where `first` is on."""

        def walk(self, decide: Callable[[Decision], Any]) -> spaces.Settings:
            found: dict[str, Any] = {}
            if decide(Decision("first", (False, True), False)):
                found["first"] = True
                if (second := decide(Decision("second", (1, 2), 1))) != 1:
                    found["second"] = second
            return tuple(sorted(found.items()))

        def decisions(self, settings: spaces.Settings) -> tuple[Decision, ...]:
            first = Decision("first", (False, True), False)
            return (first, Decision("second", (1, 2), 1)) if dict(settings).get("first") else (first,)

        def chosen(self, settings: spaces.Settings) -> spaces.Settings:
            opened = {"first": True, "second": 1} if dict(settings).get("first") else {"first": False}
            return tuple({**opened, **dict(settings)}.items())

    space = Opening()
    on, both = (("first", True),), (("first", True), ("second", 2))
    assert neighbours(space, RULES) == [on]
    assert neighbours(space, on) == [RULES, both]
    assert neighbours(space, both) == [RULES, on]


def test_one_and_true_are_two_settings() -> None:
    assert spaces.same(1, 1) and not spaces.same(1, True) and not spaces.same("1", 1)


def test_one_thread_has_nothing_to_share(row_sums: Made, device: Device) -> None:
    one, some = (Space(row_sums(), device, threads=threads) for threads in (1, 2))
    keys = {decision.key for decision in some.decisions(RULES)}
    assert keys - {decision.key for decision in one.decisions(RULES)} == {"parallel.task_work"}
    # A kernel has a value for it all the same.
    assert one.chosen(RULES) == some.chosen(RULES)
