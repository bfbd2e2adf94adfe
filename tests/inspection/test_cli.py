"""The command line as a whole: help, exit codes, errors."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from halide_backend import cli
from halide_backend.errors import HalideBackendError
from halide_backend.inspection import doctor, machine


def test_help_names_every_command_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["--help"])
    assert end.value.code == 0
    commands, codes = capsys.readouterr().out.split("exit codes:")
    assert re.findall(r"^    (\w+)", commands.partition("commands:")[2], re.MULTILINE) == [
        *("doctor", "demo", "opinfo", "bench", "tune", "calibrate", "schedules", "package", "inspect")
    ]
    assert re.findall(r"^  (\d+)", codes, re.MULTILINE) == ["0", "1", "2", "130"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "required: command"),
        (["frobnicate"], "invalid choice: 'frobnicate'"),
        (["doctor", "--jason"], "unrecognized arguments: --jason"),
        (["demo", "--only", "bert"], "invalid choice: 'bert'"),
        # Abbreviations would turn into other options when new ones arrive.
        (["demo", "--qui"], "unrecognized arguments: --qui"),
    ],
)
def test_what_is_not_understood_exits_with_2(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    assert end.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_typed_error_is_a_message_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(as_json: bool) -> int:
        raise HalideBackendError("it is broken", where="here", cure="Mend it.")

    monkeypatch.setattr(doctor, "run", broken)
    assert cli.main(["doctor"]) == 1
    assert capsys.readouterr().err == ("halide-backend: here: it is broken\n  What to do: Mend it.\n")


def test_a_reader_that_has_enough_ends_a_command_quietly() -> None:
    command = [sys.executable, "-m", "halide_backend.cli", "schedules", "list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None and running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 0


def test_another_broken_pipe_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(as_json: bool) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(doctor, "run", broken)
    with pytest.raises(BrokenPipeError):
        cli.main(["doctor"])


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out.split() == [
        "halide-backend",
        *(machine.version("halide-backend") or "not installed").split(),
    ]


def test_help_is_quick_because_nothing_heavy_is_imported() -> None:
    program = (
        "import sys\nfrom halide_backend import cli\n"
        "try: cli.main(['demo', '--help'])\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'halide', 'llvmlite', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
