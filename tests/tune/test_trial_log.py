"""The log of trials: whole lines whatever happens, read by whoever comes later."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from halide_backend.errors import TrialLogError
from halide_backend.program import serialization
from halide_backend.program.loop_program import LoopProgram
from halide_backend.tune.trial import Outcome, Trial
from halide_backend.tune.trial_log import TrialLog, documents, read

Made = Callable[..., LoopProgram]

MEASURED = Trial(
    "d" * 64,
    "x86-64-512",
    (("parallel.threads", False), ("transposes.side", 16)),
    Outcome.MEASURED,
    proposer="random",
    chosen=(("transposes.side", 16), ("parallel.threads", False), ("loads.hint", "none")),
    samples=(1e-6, 2e-6),
    incumbent=(2e-6, 2e-6),
    against=(("parallel.threads", True),),
    gain=1.5,
    low=1.25,
    high=1.75,
    won=True,
    compile_seconds=0.25,
    cold=True,
    threads=2,
    when="2026-11-23T12:00:00+00:00",
    versions={"halide": "21.0.0"},
)
FAILED = Trial("d" * 64, "x86-64-512", (("transposes.side", 4),), Outcome.TIMEOUT, "too long")


def test_what_is_written_is_read(tmp_path: Path, row_sums: Made) -> None:
    path, program = tmp_path / "new" / "trials.jsonl", row_sums()
    digest = serialization.digest(program)
    with TrialLog(path) as log:
        for _ in range(2):
            log.program(digest, program, "halide_fused_sum_0")
        log.trial(MEASURED)
        log.trial(FAILED)
    found = read(path)
    assert found.programs == {digest: program} and found.names == {digest: "halide_fused_sum_0"}
    assert found.trials == [MEASURED, FAILED] and found.torn == []
    assert len(path.read_text().splitlines()) == 3
    assert found.of("d" * 64, "x86-64-512", 2) == [MEASURED]
    assert found.of("d" * 64, "x86-64-512", 1) == [FAILED]
    assert found.of("d" * 64, "sm_90", 1) == []


def test_settings_keep_their_types_and_order(tmp_path: Path) -> None:
    with TrialLog(tmp_path / "log") as log:
        log.trial(MEASURED)
    (again,) = read(tmp_path / "log").trials
    assert [type(setting) for _, setting in again.chosen] == [int, bool, str]
    assert [key for key, _ in again.chosen] == ["transposes.side", "parallel.threads", "loads.hint"]


def test_any_cut_leaves_all_lines_before_it_and_the_log_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with TrialLog(path) as log:
        log.trial(MEASURED)
        log.trial(FAILED)
    content = path.read_bytes()
    first = content.index(b"\n") + 1
    for cut in range(first + 1, len(content) - 1, 17):
        path.write_bytes(content[:cut])
        found = read(path) if cut > first else None
        assert found is None or (found.trials == [MEASURED] and found.torn == [2])
        with TrialLog(path) as log:
            log.trial(FAILED)
        found = read(path)
        assert found.trials == [MEASURED, FAILED] and found.torn == [2], cut


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\x00\xff nothing\n", "no line of it is JSON"),
        (b'{"schema": 99, "trial": {}}\n', "schema 99 of a trial is not 1"),
        (b'{"name": "Anna"}\n', "no line of a log"),
        (b"[1, 2]\n", "no line of a log"),
        (b'{"schema": 1, "trial": {"settings": 3}}\n', "not a trial"),
        (b'{"schema": 1, "trial": {"outcome": "glorious"}}\n', "not a trial"),
        (b'{"schema": 1, "digest": "d", "program": {"schema": 99}}\n', "schema 99 of a program"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(TrialLogError, match=what) as caught:
        read(path)
    assert str(path) in caught.value.where and caught.value.cure


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for reads in (read, lambda path: list(documents(path))):
        with pytest.raises(TrialLogError, match="No such file"):
            reads(tmp_path / "none")


def test_a_folder_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(TrialLogError, match="directory") as caught:
        TrialLog(tmp_path)
    assert caught.value.where == str(tmp_path)


def test_two_tuners_do_not_share_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    attempt = (
        "import sys; from pathlib import Path\n"
        "from halide_backend.tune.trial_log import TrialLog\n"
        "TrialLog(Path(sys.argv[1]))\n"
    )
    with TrialLog(path):
        with pytest.raises(TrialLogError, match="another tuner"):
            TrialLog(path)
        done = subprocess.run([sys.executable, "-c", attempt, path], capture_output=True, text=True, check=False)
        assert "another tuner writes to it" in done.stderr
    TrialLog(path).close()


def test_a_full_disk_is_an_error_that_says_so() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    with TrialLog(full) as log, pytest.raises(TrialLogError, match="the disk is full") as caught:
        log.trial(MEASURED)
    assert "--resume" in caught.value.cure


def test_half_a_line_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    write = os.write
    with TrialLog(path) as log:
        log.trial(MEASURED)
        monkeypatch.setattr(os, "write", lambda file, line: write(file, line[: len(line) // 2]))
        with pytest.raises(TrialLogError, match="the disk is full"):
            log.trial(FAILED)
        monkeypatch.undo()
        log.trial(FAILED)
    assert read(path).trials == [MEASURED, FAILED] and read(path).torn == []


def test_documents_are_those_of_lines_or_of_an_array(tmp_path: Path) -> None:
    values = [{"name": "a"}, {"name": "b"}]
    (tmp_path / "array").write_text(json.dumps(values))
    (tmp_path / "lines").write_text("".join(json.dumps(value) + "\n" for value in values))
    (tmp_path / "words").write_text("to be or not to be")
    assert list(documents(tmp_path / "array")) == list(documents(tmp_path / "lines")) == values
    with pytest.raises(TrialLogError, match="no JSON"):
        list(documents(tmp_path / "words"))
