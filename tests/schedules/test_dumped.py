"""`dump` writes what somebody edits: every kernel once, with its loops and the meaning of its knobs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch._inductor import config as inductor_config

import halide_backend
from halide_backend import cli
from halide_backend.errors import ScheduleFileError
from halide_backend.kernel_records.record import KernelRecord
from halide_backend.schedule.device import device_of
from halide_backend.schedules import dump, read
from halide_backend.schedules.planning import plan_entry


@pytest.fixture
def records() -> tuple[KernelRecord, ...]:
    halide_backend.reset_stats()
    torch._dynamo.reset()

    def softmax(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)

    def shifted(x: torch.Tensor) -> torch.Tensor:
        return x.t() + 1

    x = torch.randn(300, 1000)
    with inductor_config.patch(force_disable_caches=True):
        for function in (softmax, shifted):
            torch.compile(function, backend="halide_backend", dynamic=False)(x)
    torch._dynamo.reset()
    return halide_backend.records()


def test_what_is_dumped_is_what_the_kernels_have(records: tuple[KernelRecord, ...]) -> None:
    for with_steps in (False, True):
        written = dump("a.toml", with_steps=with_steps, replace=True)
        assert read("a.toml") == written and len(written) == 2
        for record, entry in zip(records, written):
            assert record.program is not None and record.target is not None
            assert (entry.steps is not None) is with_steps
            assert plan_entry(record.program, device_of(record.target), entry).text == record.text


def test_the_file_shows_loops_lines_values_and_steps(records: tuple[KernelRecord, ...]) -> None:
    dump("a.toml", records)
    text = Path("a.toml").read_text()
    assert "#   parallel x0 in [0, 299]:\n" in text
    assert "return torch.softmax(x, -1)" in text
    assert "# share loops among torch's threads: one of false, true. The rules choose true:" in text
    assert "#     \"Parallel('out_ptr0', 'x0')\",\n" in text
    assert max(map(len, text.splitlines())) < 250


def test_a_pattern_chooses_kernels_and_a_file_is_not_replaced_unasked(records: tuple[KernelRecord, ...]) -> None:
    (entry,) = dump("a.toml", records, kernels="*softmax*")
    assert "softmax" in entry.name
    with pytest.raises(ScheduleFileError, match="there already"):
        dump("a.toml", records)
    with pytest.raises(ScheduleFileError, match="no kernel 'nothing'") as caught:
        dump("b.toml", records, kernels="nothing")
    assert "softmax" in caught.value.cure and not Path("b.toml").exists()
    with pytest.raises(ScheduleFileError, match="no kernel"):
        dump("b.toml", [])


def test_equal_kernels_are_written_once(records: tuple[KernelRecord, ...]) -> None:
    assert len(dump("a.toml", [*records, *records])) == 2


@pytest.fixture
def record_file(records: tuple[KernelRecord, ...], tmp_path: Path) -> str:
    path = tmp_path / "records.json"
    path.write_text(json.dumps([record.to_json() for record in records]))
    return str(path)


def test_the_command_dumps_and_checks(record_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    def command(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(["schedules", *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    assert command("dump", record_file, "--output", "a.toml", "--kernels", "*softmax*")[0] == 0
    code, out, _ = command("check", "a.toml", record_file)
    assert code == 0 and "legal, and what the rules choose" in out
    edited = Path("a.toml").read_text().replace('"parallel.threads" = true', '"parallel.threads" = false')
    Path("a.toml").write_text(edited)
    code, out, _ = command("check", "a.toml", record_file)
    assert code == 0 and out.strip().endswith(": legal")
    Path("b.toml").write_text(edited.replace('"parallel.threads" = false', '"parallel.threads" = 7'))
    code, out, _ = command("check", "b.toml", record_file)
    assert code == 1 and "refused: parallel.threads: 7 is no value of this knob" in out
    lines = [f'program = "{"0" * 64}"' if line.startswith("program") else line for line in edited.splitlines()]
    Path("c.toml").write_text("\n".join(lines))
    code, out, _ = command("check", "c.toml", record_file)
    assert code == 1 and "no kernel of the program has this schedule" in out
    assert command("check", "c.toml")[0] == 0
    Path("d.toml").write_text("schema = 9")
    code, _, err = command("check", "d.toml")
    assert code == 1 and "d.toml: its schema is 9" in err
    code, _, err = command("dump", record_file, "--output", "a.toml")
    assert code == 1 and "there already" in err


def test_names_of_the_interface(records: tuple[KernelRecord, ...]) -> None:
    program = "import halide_backend; assert callable(halide_backend.schedules.dump); halide_backend.config"
    subprocess.run([sys.executable, "-c", program], check=True)
    interface = halide_backend.schedules
    assert all(callable(getattr(interface, name)) for name in interface.__all__)
    uses: Callable[..., object] = interface.tuned_store
    assert uses() is interface.tuned_store()
