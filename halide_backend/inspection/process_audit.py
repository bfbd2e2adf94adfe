"""Counts the programs this process starts, by an audit hook: ours, and others."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field

#: Events that Python raises before it starts a program;
#: https://docs.python.org/3/library/audit_events.html
EVENTS = ("subprocess.Popen", "os.posix_spawn", "os.exec", "os.system", "os.startfile")
WORKER = "halide_backend.build.worker"
SESSION = "halide_backend.demonstration.session"


@dataclass
class StartedProcesses:
    """Programs started, by kind; `others` holds the command lines that are neither of ours."""

    workers: int = 0
    sessions: int = 0
    others: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, object]:
        return {"workers": self.workers, "sessions": self.sessions, "others": dict(self.others)}

    def add(self, counted: dict[str, object]) -> None:
        """Add what another process counted (its `to_json`)."""
        self.workers += int(str(counted["workers"]))
        self.sessions += int(str(counted["sessions"]))
        others = counted["others"]
        if isinstance(others, dict):
            self.others.update(others)


def watch() -> StartedProcesses:
    """Count from now on; an audit hook cannot be removed, so call this once in a process."""
    started = StartedProcesses()
    lock = threading.Lock()

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event not in EVENTS:
            return
        words = _command(event, arguments)
        own_python = bool(words) and os.path.realpath(words[0]) == os.path.realpath(sys.executable)
        with lock:
            if own_python and any(WORKER in word for word in words):
                started.workers += 1
            elif own_python and SESSION in words:
                started.sessions += 1
            else:
                started.others[" ".join(words)] += 1

    sys.addaudithook(hook)
    return started


def _command(event: str, arguments: tuple[object, ...]) -> list[str]:
    if event == "os.system":
        return [_text(arguments[0])]
    # subprocess.Popen(executable, args, cwd, env), os.posix_spawn(path, argv, env), os.exec(path,
    # args, env)
    program, rest = arguments[0], arguments[1] if len(arguments) > 1 else ()
    words = [rest] if isinstance(rest, (str, bytes)) else list(rest) if isinstance(rest, (list, tuple)) else []
    texts = [_text(word) for word in words]
    if program is not None and texts:
        texts[0] = _text(program)
    return texts or [_text(program)]


def _text(word: object) -> str:
    if isinstance(word, (str, bytes, os.PathLike)):
        return os.fsdecode(word)
    return str(word)
