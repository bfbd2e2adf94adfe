from __future__ import annotations

import json
import subprocess
import sys

import pytest

# An audit hook cannot be removed again, hence a process of its own for every case.
PROGRAM = """
import json, os, subprocess, sys
from halide_backend.inspection import process_audit
started = process_audit.watch()
{actions}
print(json.dumps(started.to_json()))
"""


def counted(actions: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(actions=actions)],
        capture_output=True,
        text=True,
        check=True,
    )
    report: dict[str, object] = json.loads(done.stdout)
    return report


def test_nothing_started_counts_nothing() -> None:
    assert counted("") == {"workers": 0, "sessions": 0, "others": {}}


def test_a_compile_worker_and_a_session_are_ours() -> None:
    report = counted(
        "command = [sys.executable, '-c', 'pass # halide_backend.build.worker']\n"
        "subprocess.run(command)\n"
        "command = [sys.executable, '-c', 'pass', '-m', 'halide_backend.demonstration.session']\n"
        "subprocess.run(command)\n"
    )
    assert report == {"workers": 1, "sessions": 1, "others": {}}


@pytest.mark.parametrize(
    ("actions", "command"),
    [
        ("subprocess.run(['true', 'x.cpp'])", "true x.cpp"),
        ("subprocess.run('true x.cpp', shell=True)", "/bin/sh -c true x.cpp"),
        ("os.system('true x.cpp')", "true x.cpp"),
        ("os.waitpid(os.posix_spawn('/bin/true', ['true', 'x'], {}), 0)", "/bin/true x"),
        # Python, but not the one that runs our workers.
        (
            "subprocess.run(['true', 'halide_backend.build.worker'])",
            "true halide_backend.build.worker",
        ),
    ],
)
def test_any_other_program_is_counted_by_its_command(actions: str, command: str) -> None:
    assert counted(actions) == {"workers": 0, "sessions": 0, "others": {command: 1}}


def test_replacing_a_forked_process_is_seen_before_it_happens() -> None:
    actions = "try: os.execv('/nowhere/g++', ['g++', 'x.cpp'])\nexcept FileNotFoundError: pass\n"
    assert counted(actions)["others"] == {"/nowhere/g++ x.cpp": 1}


def test_counts_of_several_processes_add_up() -> None:
    report = counted(
        "other = {'workers': 2, 'sessions': 1, 'others': {'g++ x.cpp': 3}}\nstarted.add(other)\nstarted.add(other)\n"
    )
    assert report == {"workers": 4, "sessions": 2, "others": {"g++ x.cpp": 6}}
