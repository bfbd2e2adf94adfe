"""Schedules of files, functions and stores become those of kernels, in the documented order, or say why not."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import config as inductor_config

import halide_backend
from halide_backend import config, pipeline
from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.errors import HalideCompileError, ScheduleError, ScheduleFileError
from halide_backend.launch import first_call
from halide_backend.launch.first_call import FirstCall
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import Device, device_of
from halide_backend.schedule.plan import Plan
from halide_backend.schedule.steps import Parallel, Unroll
from halide_backend.schedules import choice, packaged
from halide_backend.schedules.choice import Sources
from halide_backend.schedules.entry import ScheduleEntry
from halide_backend.schedules.schedule_file import write
from halide_backend.schedules.size_class import SizeRange
from halide_backend.schedules.thread_class import ThreadRange, thread_class
from halide_backend.schedules.tuned_store import tuned_store
from halide_backend.schedules.usage import usage

Entries = Callable[..., list[ScheduleEntry]]
Edit = Callable[[ScheduleEntry], ScheduleEntry]


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(300, 1000, generator=torch.Generator().manual_seed(0))


def run(function: Callable[..., Any], *arguments: Any, dynamic: bool = False, **options: Any) -> Any:
    """Compile and call; the results have to be eager's."""
    halide_backend.reset_stats()
    torch._dynamo.reset()
    with inductor_config.patch(force_disable_caches=True), config.patch(delegate=False, **options):
        found = torch.compile(function, backend="halide_backend", dynamic=dynamic)(*arguments)
    torch._dynamo.reset()
    torch.testing.assert_close(found, function(*arguments))
    return found


def schedules() -> list[tuple[str, bool]]:
    """Where the schedules of the kernels come from, and whether threads share their loops."""
    return [(record.schedule, "    Parallel(" in record.text) for record in halide_backend.records()]


def raised(call: Callable[[], object]) -> Exception:
    with pytest.raises(Exception, match=r".") as caught:
        call()
    return getattr(caught.value, "inner_exception", None) or caught.value


def test_a_named_file_is_used_and_the_record_says_so(entries: Entries, serial: Edit, x: torch.Tensor) -> None:
    (entry,) = entries(softmax, x)
    run(softmax, x)
    assert schedules() == [("", True)]
    write("fast.toml", [serial(entry)])
    run(softmax, x, schedule_files=("fast.toml",))
    assert schedules() == [("fast.toml, line 4, kernel halide_fused__softmax_0: edited", False)]
    assert halide_backend.records()[0].to_json()["schedule"].startswith("fast.toml")


def test_order_of_precedence(
    entries: Entries, serial: Edit, x: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Function, files in their order, folder, store, package, rules."""
    (entry,) = entries(softmax, x)
    monkeypatch.setattr(packaged, "FOLDER", tmp_path / "package")

    def origin(**options: Any) -> str:
        run(softmax, x, **options)
        ((schedule, _),) = schedules()
        return schedule.rpartition(": ")[2]

    os.makedirs("package")
    write(f"package/{entry.device}.toml", [replace(serial(entry), origin="by package")])
    assert origin() == "by package"
    tuned_store().put(replace(serial(entry), origin="by store"))
    assert origin() == "by store"
    os.makedirs("halide_schedules")
    write("halide_schedules/b.toml", [replace(serial(entry), origin="by folder")])
    assert origin() == "by folder"
    write("one.toml", [replace(serial(entry), origin="by one")])
    write("two.toml", [replace(serial(entry), origin="by two")])
    files = ("two.toml", "one.toml")
    assert origin(schedule_files=files) == "by two"
    function = f"{__name__}:without_threads"
    run(softmax, x, schedule_files=files, schedule_function=function)
    assert schedules() == [(f"schedule function {function}", False)]
    # Only what is tuned is left out.
    assert origin(tune="never") == "by folder"
    assert origin(tune="never", schedule_folder="") == ""
    assert origin(schedule_folder="") == "by store"


def without_threads(program: LoopProgram, device: Device) -> Plan | None:
    plan = plan_kernel(program, device).plan
    return replace(plan, steps=tuple(step for step in plan.steps if not isinstance(step, Parallel)))


def none(program: LoopProgram, device: Device) -> Plan | None:
    return None


def number(program: LoopProgram, device: Device) -> int:
    return 3


def failing(program: LoopProgram, device: Device) -> None:
    raise KeyError("x")


def illegal(program: LoopProgram, device: Device) -> Plan:
    plan = plan_kernel(program, device).plan
    return replace(plan, steps=(*plan.steps, Unroll("nothing", "x0")))


def test_a_function_plans_kernels(x: torch.Tensor) -> None:
    name = f"{__name__}:without_threads"
    run(softmax, x, schedule_function=name)
    assert schedules() == [(f"schedule function {name}", False)]
    run(softmax, x, schedule_function=f"{__name__}:none")
    assert schedules() == [("", True)]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        (f"{__name__}:number", "it returned a int"),
        (f"{__name__}:failing", "it raised KeyError"),
        (f"{__name__}:illegal", "there is no Func 'nothing'"),
        (f"{__name__}:absent", "there is no function"),
        ("absent_module:f", "there is no function"),
        ("nonsense", "there is no function"),
        ("os:sep", "'os:sep' is a str"),
    ],
)
def test_a_function_that_fails_is_an_error_and_delegates_nothing(name: str, what: str, x: torch.Tensor) -> None:
    error = raised(lambda: run(softmax, x, schedule_function=name))
    assert isinstance(error, ScheduleError)
    assert what in error.what and error.cure
    assert halide_backend.stats()["delegated_kernels"] == 0


def test_an_illegal_edit_is_refused_with_file_step_and_reason(entries: Entries, x: torch.Tensor) -> None:
    (entry,) = entries(softmax, x)
    steps = (Unroll("out_ptr0", "x9"),)
    write("edited.toml", [replace(entry, steps=steps, knobs=())])
    for delegate in (True, False):
        error = raised(
            lambda delegate=delegate: torch.compile(
                softmax, backend="halide_backend", options={"delegate": delegate, "schedule_files": ["edited.toml"]}
            )(x)
        )
        assert isinstance(error, ScheduleError)
        assert error.where == "edited.toml, line 4, kernel halide_fused__softmax_0"
        assert error.what.startswith("step 0, Unroll('out_ptr0', 'x9'): the Func has no loop 'x9'")
        assert "it has x" in error.cure
        torch._dynamo.reset()


@pytest.mark.parametrize(
    ("knobs", "what"),
    [
        ((("parallel.threads", 3),), "parallel.threads: 3 is no value of this knob"),
        ((("rule.gone", 3),), "rule.gone: no rule of this kernel asks for this knob"),
    ],
)
def test_a_knob_of_a_named_file_that_does_not_fit_is_an_error(
    entries: Entries, x: torch.Tensor, knobs: Any, what: str
) -> None:
    (entry,) = entries(softmax, x)
    write("edited.toml", [replace(entry, knobs=knobs)])
    error = raised(lambda: run(softmax, x, schedule_files=("edited.toml",)))
    assert isinstance(error, ScheduleError) and error.what == what


@pytest.mark.parametrize("text", ["schema = 3\n", "schema = 1\n[[schedule]", None])
def test_a_named_file_that_cannot_be_read_is_an_error(text: str | None, x: torch.Tensor) -> None:
    if text is not None:
        Path("a.toml").write_text(text)
    error = raised(lambda: run(softmax, x, schedule_files=("a.toml",)))
    assert isinstance(error, ScheduleFileError) and error.where == "a.toml"


def test_a_tuned_schedule_that_no_longer_fits_is_left_out_with_one_warning(
    entries: Entries, x: torch.Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    (entry,) = entries(softmax, x)
    tuned_store().put(replace(entry, knobs=(("rule.gone", 3),)))
    for _ in range(2):
        run(softmax, x)
        assert schedules() == [("", True)]
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "no longer fits" in warning and "rule.gone" in warning


def test_a_tuned_schedule_that_cannot_be_built_is_left_out_and_a_users_is_an_error(
    entries: Entries, serial: Edit, x: torch.Tensor, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (entry,) = entries(softmax, x)
    whole = pipeline.get_or_compile

    def broken(text: str, *rest: Any, **options: Any) -> Any:
        build = whole(text, *rest, **options)
        if "    Parallel(" not in text:
            failed: Future[Any] = Future()
            failed.set_exception(HalideCompileError("no"))
            return replace(build, artifact=failed)
        return build

    monkeypatch.setattr(pipeline, "get_or_compile", broken)
    tuned_store().put(serial(entry))
    run(softmax, x)
    assert schedules() == [("", True)]
    assert "it cannot be built" in caplog.text
    write("a.toml", [serial(entry)])
    error = raised(lambda: run(softmax, x, schedule_files=("a.toml",)))
    assert isinstance(error, ScheduleError) and error.where.startswith("a.toml, line 4")


def test_records_deleted_means_back_to_the_rules(entries: Entries, serial: Edit, x: torch.Tensor) -> None:
    (entry,) = entries(softmax, x)
    tuned_store().put(serial(entry))
    run(softmax, x)
    assert schedules()[0][1] is False
    assert tuned_store().discard(entry)
    run(softmax, x)
    assert schedules() == [("", True)]


def test_a_schedule_for_other_kernels_or_devices_is_not_used_and_named_at_the_end(
    entries: Entries, serial: Edit, x: torch.Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    (entry,) = entries(softmax, x)
    other = replace(serial(entry), program="0" * 64, name="halide_fused_gone_0")
    on_gpu = replace(serial(entry), device="sm_90")
    write("a.toml", [other, on_gpu])
    run(softmax, x, schedule_files=("a.toml",))
    assert schedules() == [("", True)]
    assert usage.unused() == (other,)
    usage.report()
    named = "a.toml, line 4, kernel halide_fused_gone_0 (program 000000000000);"
    assert f"No kernel of this process has this schedule: {named}" in caplog.text
    write("a.toml", [serial(entry)])
    usage.reset()
    run(softmax, x, schedule_files=("a.toml",))
    assert usage.unused() == ()


def test_many_unused_schedules_are_one_warning(
    entries: Entries, serial: Edit, x: torch.Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    (entry,) = entries(softmax, x)
    others = [replace(serial(entry), program=f"{k:064x}", name=f"gone_{k}") for k in range(5)]
    write("a.toml", [*others, serial(entry)])
    run(softmax, x, schedule_files=("a.toml",))
    usage.report()
    (warning,) = [record for record in caplog.records if "No kernel of this process" in record.getMessage()]
    text = warning.getMessage()
    assert "has these 5 schedules: a.toml, line 4, kernel gone_0 (program 000000000000), " in text
    assert "kernel gone_2 (program 000000000000), and 2 more; " in text and "gone_3" not in text


def test_schedules_in_the_folder_are_named_only_if_a_kernel_of_their_name_is_there(
    entries: Entries, serial: Edit, x: torch.Tensor
) -> None:
    """The folder may have schedules of other programs of the same project."""
    (entry,) = entries(softmax, x)
    os.makedirs("halide_schedules")
    stranger = replace(serial(entry), program="0" * 64, name="halide_fused_gone_0")
    outdated = replace(serial(entry), program="1" * 64)
    write("halide_schedules/a.toml", [stranger, outdated])
    run(softmax, x)
    assert usage.unused() == (outdated,)


def test_schedules_are_for_size_classes(entries: Entries, serial: Edit) -> None:
    small, large = torch.randn(20, 1000), torch.randn(3000, 1000)
    (entry,) = entries(softmax, large, dynamic=True)
    assert entry.sizes
    write("a.toml", [serial(entry)])
    run(softmax, large, dynamic=True, schedule_files=("a.toml",))
    assert [parallel for _, parallel in schedules()] == [False]
    run(softmax, small, dynamic=True, schedule_files=("a.toml",))
    assert [schedule for schedule, _ in schedules()] == [""]
    assert usage.unused() == ()
    write("a.toml", [replace(serial(entry), sizes=(SizeRange(entry.sizes[0].axis, 1, 100),))])
    run(softmax, small, dynamic=True, schedule_files=("a.toml",))
    assert [schedule != "" for schedule, _ in schedules()] == [True]
    # The store has one for each class.
    tuned_store().put(replace(serial(entry)))
    for argument, tuned in ((large, True), (small, False)):
        run(softmax, argument, dynamic=True)
        assert [schedule != "" for schedule, _ in schedules()] == [tuned]


def test_schedules_are_for_numbers_of_threads_and_vendors(entries: Entries, serial: Edit, x: torch.Tensor) -> None:
    """Wherever they come from; what is for any of them comes after what is for this one."""
    (entry,) = entries(softmax, x)
    device = device_of(Target.host())
    here = replace(serial(entry), device=device.name, threads=ThreadRange(1, 1), origin="one thread")
    elsewhere = replace(here, device=f"{device.classes[-1]}-other", threads=None, origin="elsewhere")

    def origins(**options: Any) -> list[str]:
        found = []
        for threads in (1, 2, 3):
            before = torch.get_num_threads()
            torch.set_num_threads(threads)
            try:
                run(softmax, x, **options)
            finally:
                torch.set_num_threads(before)
            found += [schedule.rpartition(": ")[2] for schedule, _ in schedules()]
        return found

    tuned_store().put(here)
    assert origins() == ["one thread", "", ""]
    tuned_store().put(replace(here, threads=thread_class(3), origin="some"))
    assert origins() == ["one thread", "some", "some"]
    tuned_store().put(replace(here, device=device.classes[-1], threads=None, origin="wide"))
    tuned_store().discard(here)
    assert origins() == ["wide", "some", "some"]
    write("a.toml", [here, elsewhere])
    assert origins(schedule_files=("a.toml",)) == ["one thread", "some", "some"]
    # What is for other processors or other numbers of threads is not missed.
    assert usage.unused() == ()


def test_the_state_changes_with_every_schedule_that_applies(
    entries: Entries, serial: Edit, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    (entry,) = entries(softmax, x)
    sources = Sources(files=("a.toml",), folder="halide_schedules")
    states = [sources.state()]
    write("a.toml", [entry])
    states.append(sources.state())
    os.makedirs("halide_schedules")
    assert sources.state() == states[-1]
    write("halide_schedules/b.toml", [entry])
    states.append(sources.state())
    tuned_store().put(entry)
    states.append(sources.state())
    tuned_store().put(serial(entry))
    states.append(sources.state())
    states.append(replace(sources, tuned=False).state())
    states.append(replace(sources, function=f"{__name__}:none").state())
    assert len(set(states)) == len(states)
    tuned_store().put(entry)
    assert sources.state() == states[3]
    tuned_store().remember_checked("anything")
    assert sources.state() == states[3]
    tuned_store().discard(entry)
    assert sources.state() == states[2]
    # Two and three threads are of one class.
    assert len({replace(sources, threads=threads).state() for threads in (1, 2, 3)}) == 2
    assert len({Sources(threads=threads, tuned=False).state() for threads in (1, 2, 3)}) == 1


def test_a_wrong_kernel_is_found_at_the_first_call_and_remembered_if_right(
    entries: Entries, serial: Edit, x: torch.Tensor, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Legality is not the last word: here a plan comes with a text that computes something else."""
    (entry,) = entries(softmax, x)
    write("a.toml", [serial(entry)])
    plan_entry = choice.plan_entry

    def wrong(*arguments: Any) -> Any:
        kernel = plan_entry(*arguments)
        assert "ops.exp(" in kernel.text
        return replace(kernel, text=kernel.text.replace("ops.exp(", "ops.abs("))

    with monkeypatch.context() as patch:
        patch.setattr(choice, "plan_entry", wrong)
        run(softmax, x, schedule_files=("a.toml",))
    assert "edited: this schedule of halide_fused__softmax_0 is left out, " in caplog.text
    # The right one runs beside the rules' once, and is known to be right from then on.
    calls: list[str] = []
    compare = first_call.FirstCall._compared

    def compared(self: FirstCall, *arguments: Any) -> None:
        calls.append(self._name)
        compare(self, *arguments)

    monkeypatch.setattr(first_call.FirstCall, "_compared", compared)
    run(softmax, x, schedule_files=("a.toml",), check_schedules=False)
    assert calls == []
    for _ in range(2):
        run(softmax, x, schedule_files=("a.toml",))
    assert calls == ["halide_fused__softmax_0"]


def test_pipelines_of_one_launch_are_compared_together(entries: Entries, serial: Edit) -> None:
    """Two kernels in a launch, the second of which reads what the first one writes; one has a schedule."""

    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = x.sum(0)
        return total, (x - total).softmax(1)

    x = torch.randn(300, 400)
    found = entries(both, x)
    assert len(found) > 1
    for entry in found:
        write("a.toml", [serial(entry)])
        run(both, x, schedule_files=("a.toml",))
        assert [schedule != "" for schedule, _ in schedules()].count(True) == 1
