"""Parallel loops: torch's threads and their number, Python threads, nesting, errors, fork."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import halide as hl
import pytest
import torch
from launch_manifests import buffer

from halide_backend import errors
from halide_backend.launch.launcher import Pipeline, make_launcher, native

Build = Callable[..., Any]

# A parallel loop over `count` tasks; task i of {task} gets the first buffer's memory in %out.
LOOP = """
declare i32 @halide_do_par_for(ptr, ptr, i32, i32, ptr)
declare ptr @halide_malloc(ptr, i64)
declare void @halide_free(ptr, ptr)
declare i32 @gettid()
declare i32 @usleep(i32)
define i32 @task(ptr %context, i32 %i, ptr %out) {{
  %at = getelementptr i32, ptr %out, i32 %i
  {task}
}}
define i32 @kernel(ptr %arguments) {{
  %1 = load ptr, ptr %arguments
  %2 = getelementptr i8, ptr %1, i64 16
  %out = load ptr, ptr %2
  %3 = getelementptr ptr, ptr %arguments, i64 1
  %4 = load ptr, ptr %3
  %count = load i32, ptr %4
  %r = call i32 @halide_do_par_for(ptr null, ptr @task, i32 0, i32 %count, ptr %out)
  ret i32 0
}}
"""  # The result of the loop is ignored, as in objects compiled with no_asserts.
WHO = "%t = call i32 @gettid()\n store i32 %t, ptr %at\n ret i32 0"
COUNT = 64
ARGUMENTS = [buffer("out", COUNT, code=0), {"kind": "int32", "name": "count"}]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def run_loop(kernel: Any, count: int = COUNT) -> torch.Tensor:
    out = torch.zeros(COUNT, dtype=torch.int32)
    kernel(out, count)
    return out


@pytest.mark.parametrize("release_gil", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_set_num_threads_is_followed(kernel_of_ir: Build, threads: int, release_gil: bool) -> None:
    kernel = kernel_of_ir(LOOP.format(task=WHO), ARGUMENTS, release_gil=release_gil)
    torch.set_num_threads(threads)
    for _ in range(20):
        ids = run_loop(kernel).tolist()
        assert len(set(ids)) == threads
        assert ids[0] == threading.get_native_id()
        changes = sum(a != b for a, b in itertools.pairwise(ids))
        assert changes == threads - 1, "a thread's range is not contiguous"
        assert max(ids.count(i) for i in set(ids)) <= -(-COUNT // threads)
    assert len(set(run_loop(kernel, 1).tolist()) - {0}) == 1
    assert not run_loop(kernel, 0).any()
    assert not run_loop(kernel, -5).any()


def test_workers_are_those_of_torch(kernel_of_ir: Build) -> None:
    torch.set_num_threads(2)
    kernel = kernel_of_ir(LOOP.format(task=WHO), ARGUMENTS)
    torch.ones(1 << 20).add_(1)
    before = set(os.listdir("/proc/self/task"))
    ids = {str(i) for i in run_loop(kernel).tolist()}
    assert ids <= before, "the kernel started threads of its own"


def test_a_new_python_thread_follows_torch_too(kernel_of_ir: Build) -> None:
    kernel = kernel_of_ir(LOOP.format(task=WHO), ARGUMENTS)
    torch.set_num_threads(2)
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(len(set(run_loop(kernel).tolist()))))
    thread.start()
    thread.join(20)
    assert seen == [2]


def test_nested_loops_run_serially(kernel_of_ir: Build) -> None:
    text = LOOP.format(
        task="""%base = mul i32 %i, 8
  %row = getelementptr i32, ptr %out, i32 %base
  %r = call i32 @halide_do_par_for(ptr null, ptr @inner, i32 0, i32 8, ptr %row)
  ret i32 0"""
    )
    text += "define i32 @inner(ptr %c, i32 %i, ptr %o) {\n%at = getelementptr i32, ptr %o, i32 %i\n"
    text += WHO + "\n}"
    kernel = kernel_of_ir(text, ARGUMENTS)
    torch.set_num_threads(2)
    rows = run_loop(kernel, 8).reshape(8, 8)
    assert all(len(set(row.tolist())) == 1 for row in rows)
    assert len(set(rows[:, 0].tolist())) == 2
    # One outer task is no parallel region: the inner loop may use the threads.
    assert len(set(run_loop(kernel, 1)[:8].tolist())) == 2


FAILURES = {
    "Halide error -22": """%bad = icmp eq i32 %i, 40
  %r = select i1 %bad, i32 -22, i32 0
  ret i32 %r""",
    "not enough memory": """%p = call ptr @halide_malloc(ptr null, i64 1152921504606846976)
  store i32 1, ptr %p
  ret i32 0""",
    "Halide error 17": """
  %r = call i32 @halide_do_par_for(ptr null, ptr @inner, i32 0, i32 8, ptr %out)
  ret i32 0""",
}


@pytest.mark.parametrize("release_gil", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("message", FAILURES)
def test_error_of_a_task_is_raised(kernel_of_ir: Build, message: str, threads: int, release_gil: bool) -> None:
    text = LOOP.format(task=FAILURES[message])
    text += "define i32 @inner(ptr %c, i32 %i, ptr %o) { ret i32 17 }"
    torch.set_num_threads(threads)
    failing = kernel_of_ir(text, ARGUMENTS, release_gil=release_gil, name="halide_bad_0")
    working = kernel_of_ir(LOOP.format(task=WHO), ARGUMENTS)
    for _ in range(50):
        with pytest.raises(errors.KernelRuntimeError, match=f"kernel halide_bad_0: {message}"):
            run_loop(failing)
        assert len(set(run_loop(working).tolist())) == threads


def parallel_sum_of_sines(compile_halide: Build, rows: int, columns: int) -> Any:
    """out[y] = sum over x of sin(a[x, y]), rows in parallel, with scratch per row."""
    a, x, y = hl.ImageParam(hl.Float(32), 1, "a"), hl.Var("x"), hl.Var("y")
    sines, out = hl.Func("sines"), hl.Func("out")
    r = hl.RDom([(0, columns)], "r")
    sines[x, y] = hl.sin(a[x + y * columns])
    total = hl.Func("total")
    total[y] = hl.f32(0)
    total[y] += sines[r.x, y]
    out[y] = total[y]
    out.parallel(y)
    sines.compute_at(out, y).store_in(hl.MemoryType.Heap)
    total.compute_at(out, y)
    address, code, image = compile_halide([a], [out])
    assert b"halide_malloc" in image
    assert b"halide_do_par_for" in image
    arguments = [buffer("a", rows * columns), buffer("out", rows)]
    return make_launcher("sines", [Pipeline(address, arguments, (0, 1), (), True, code)], 2)


def test_sixteen_python_threads(compile_halide: Build, add_pipeline: Build) -> None:
    rows, columns = 24, 500
    kernels = [parallel_sum_of_sines(compile_halide, rows, columns)]
    add = make_launcher("add", [add_pipeline(64, release_gil=True)], 3)
    torch.set_num_threads(2)
    problems: list[str] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        a = torch.randn(rows, columns, generator=generator)
        expected = a.double().sin().sum(1)
        b, c = torch.full((64,), float(seed)), torch.ones(64)
        for _ in range(1000):
            out, total = torch.zeros(rows), torch.zeros(64)
            kernels[0](a, out)
            add(b, c, total)
            if not torch.allclose(out.double(), expected, rtol=0, atol=1e-3):
                problems.append(f"sines, thread {seed}")
            if not torch.equal(total, b + 1):
                problems.append(f"add, thread {seed}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
        assert not thread.is_alive()
    assert not problems


def test_other_threads_run_only_where_the_gil_is_released(kernel_of_ir: Build) -> None:
    nap = LOOP.format(task="%r = call i32 @usleep(i32 300000)\n ret i32 0")
    for release_gil in (False, True):
        kernel = kernel_of_ir(nap, ARGUMENTS, release_gil=release_gil)
        ticks: list[float] = []
        stop = threading.Event()

        def tick(stop: threading.Event = stop, ticks: list[float] = ticks) -> None:
            while not stop.is_set():
                ticks.append(time.monotonic())
                time.sleep(0.002)

        out = torch.zeros(COUNT, dtype=torch.int32)
        kernel(out, 0)
        thread = threading.Thread(target=tick)
        thread.start()
        time.sleep(0.05)
        start = time.monotonic()
        kernel(out, 1)
        end = time.monotonic()
        stop.set()
        thread.join(20)
        during = [t for t in ticks if start + 0.05 < t < end - 0.05]
        assert (len(during) > 10) is release_gil


def in_child(work: Callable[[], None], seconds: float = 20) -> int:
    """The exit status of `work` in a forked child; -SIGKILL where it hung."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(f"child: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_kernels_work_after_fork(kernel_of_ir: Build, compile_halide: Build) -> None:
    torch.set_num_threads(2)
    who = kernel_of_ir(LOOP.format(task=WHO), ARGUMENTS)
    sines = parallel_sum_of_sines(compile_halide, 24, 500)
    a, out = torch.randn(24, 500), torch.zeros(24)
    expected = a.double().sin().sum(1)
    assert len(set(run_loop(who).tolist())) == 2  # the parent's pool runs

    def work() -> None:
        for _ in range(3):
            assert set(run_loop(who).tolist()) == {threading.get_native_id()}
            sines(a, out)
            assert torch.allclose(out.double(), expected, rtol=0, atol=1e-3)
        assert in_child(lambda: sines(a, out)) == 0  # and in a grandchild

    assert in_child(work) == 0
    assert len(set(run_loop(who).tolist())) == 2  # the parent is as before


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_while_another_thread_resolves(add_pipeline: Build) -> None:
    parent, entered, finish = os.getpid(), threading.Event(), threading.Event()
    pipeline = add_pipeline(64)

    def obtain() -> list[Pipeline]:
        if os.getpid() == parent:
            entered.set()
            finish.wait(30)
        return [pipeline]

    kernel = make_launcher("later", obtain, 3)
    a, b, out, mine = torch.randn(64), torch.randn(64), torch.zeros(64), torch.zeros(64)
    thread = threading.Thread(target=kernel, args=(a, b, out))
    thread.start()
    assert entered.wait(20)

    def work() -> None:
        kernel(a, b, mine)
        assert torch.equal(mine, a + b)

    status = in_child(work)
    finish.set()
    thread.join(20)
    assert status == 0
    assert torch.equal(out, a + b)


def test_serial_without_openmp() -> None:
    """In a process without torch there is no OpenMP: a parallel loop runs serially."""
    program = """
import ctypes, threading
from halide_backend.launch import _native as native

class Tensor: pass
refuse = lambda *a: None
address = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value
found = native.configure(tensor_type=Tensor, parameter_type=Tensor, data_ptr=address,
    convert=refuse, check_call=refuse, wrong_call=refuse, on_failure=refuse,
    profiler_flags={}, profiler_range=refuse)
assert found == {"openmp": "", "torch_threads": False, "profiler": False}, found
task_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
seen = []
task = task_type(lambda context, i, closure: seen.append((i, threading.get_native_id())) or 0)
loop = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, task_type, ctypes.c_int, ctypes.c_int,
    ctypes.c_void_p)(native.symbols()["halide_do_par_for"])
assert loop(None, task, 3, 5, None) == 0
assert seen == [(i, threading.get_native_id()) for i in range(3, 8)], seen
failing = task_type(lambda context, i, closure: seen.append(i) or -i)
assert loop(None, failing, 3, 5, None) == -3
assert seen[-1] == 3
print("serial")
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert answer.stdout == "serial\n", answer.stderr


def test_symbols_cover_what_halide_objects_call(compile_halide: Build) -> None:
    a, x, y = hl.ImageParam(hl.Float(32), 2, "a"), hl.Var("x"), hl.Var("y")
    scratch, out = hl.Func("scratch"), hl.Func("out")
    scratch[x, y] = a[x, y] * 2
    out[x, y] = scratch[x, y] + scratch[x + 1, y]
    scratch.compute_at(out, y).store_in(hl.MemoryType.Heap)
    out.parallel(y)
    _, _, image = compile_halide([a], [out])
    called = {name.decode() for name in re.findall(rb"\0(halide_[a-z_]+)(?=\0)", image)}
    assert {"halide_do_par_for", "halide_malloc", "halide_free"} <= called
    known = native().symbols()
    assert called <= set(known)
    assert all(address > 0 for address in known.values())
