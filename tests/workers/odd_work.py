"""A server whose workers do what they are told, most of it bad."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from halide_backend.errors import KernelTextError
from halide_backend.workers.serving import serve

Report = Callable[[Any], None]
done = 0


def echo(report: Report, value: Any) -> Any:
    return value


def count(report: Report) -> tuple[int, int]:
    """Process, and how many tasks it has run."""
    return os.getpid(), done


def collects(report: Report) -> bool:
    return gc.isenabled()


def server(report: Report) -> int:
    return os.getppid()


def reports(report: Report, number: int, seconds: float) -> str:
    for each in range(number):
        report(each)
        time.sleep(seconds)
    return "done"


def prints(report: Report, text: str) -> None:
    print(text)
    print(text, file=sys.stderr)


def cores(report: Report) -> set[int]:
    return os.sched_getaffinity(0)


def loops(report: Report) -> None:
    while True:
        pass


def sleeps(report: Report) -> None:
    report(os.getpid())
    time.sleep(1000)


def sleeps_deep_down(report: Report, depth: int = 80) -> None:
    sleeps_deep_down(report, depth - 1) if depth else sleeps(report)


def loops_in_c(report: Report) -> None:
    re.match("(a*)*b", "a" * 40)


def ignores_terminate(report: Report) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(1000)


def stands_still(report: Report) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def hangs_up(report: Report) -> None:
    os.closerange(3, 100)
    time.sleep(1000)


def starts(report: Report, then: str) -> None:
    """Start a program that would outlive this process, and tell both."""
    program = subprocess.Popen(["sleep", "1000"])
    report((os.getpid(), program.pid))
    globals()[then](report)


def allocates(report: Report, size: int) -> None:
    bytearray(size)


def allocates_in_c(report: Report, size: int) -> None:
    malloc = ctypes.CDLL(None).malloc
    malloc.restype = ctypes.c_void_p
    if not malloc(ctypes.c_size_t(size)):
        os.write(2, b"std::bad_alloc")
        os.abort()


def grows(report: Report) -> None:
    """Touch one MiB after the other, telling how many."""
    kept = []
    while True:
        kept.append(b"x" * (1 << 20))
        report(len(kept))


def aborts(report: Report) -> None:
    os.abort()


def reads_null(report: Report) -> None:
    ctypes.string_at(0)


def ends(report: Report, status: int) -> None:
    os._exit(status)


def kills_itself(report: Report) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kills_its_server(report: Report) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)


def has_a_mistake(report: Report) -> None:
    raise ZeroDivisionError("a mistake")


def refuses(report: Report) -> None:
    raise KernelTextError("not this one", where="line 1", cure="another one")


def breaks_off(report: Report) -> None:
    """Answer, but be killed in the middle of it."""
    (conversation,) = [fd for fd in range(3, 50) if _is_socket(fd)]
    os.write(conversation, pickle.dumps(("answer", b"x" * 1000))[:500])
    os.kill(os.getpid(), signal.SIGKILL)


def _is_socket(fd: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False


def work(content: tuple[Any, ...], report: Report) -> Any:
    global done
    done += 1
    name, *arguments = content
    return globals()[name](report, *arguments)


if __name__ == "__main__":
    serve(work)
