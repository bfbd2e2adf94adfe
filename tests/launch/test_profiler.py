"""Kernels show their names in torch.profiler, and only cost for it while it runs."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from halide_backend import errors
from halide_backend.launch.launcher import Pipeline, make_launcher

Build = Callable[..., Any]
NAME = "halide_fused_add_relu_7"


def calls_seen(profile: Any, name: str = NAME) -> int:
    """How often the profiler recorded a range of that name."""
    return sum(event.count for event in profile.key_averages() if event.key == name)


@pytest.mark.parametrize("release_gil", [False, True])
def test_name_and_number_of_calls(add_pipeline: Build, release_gil: bool) -> None:
    kernel = make_launcher(NAME, [add_pipeline(64, release_gil)], 3)
    a, b, out = torch.randn(64), torch.randn(64), torch.zeros(64)
    kernel(a, b, out)
    for number in (1, 3):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            for _ in range(number):
                out.zero_()
                kernel(a, b, out)
                assert torch.equal(out, a + b)
        kernel(a, b, out)
        assert calls_seen(profile) == number


def test_first_call_under_the_profiler(add_pipeline: Build) -> None:
    a, b, out = torch.randn(64), torch.randn(64), torch.zeros(64)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        make_launcher(NAME, lambda: [add_pipeline(64)], 3)(a, b, out)
    assert torch.equal(out, a + b)
    assert calls_seen(profile) == 1


def test_errors_are_raised_under_the_profiler(link_ir: Build) -> None:
    address, code = link_ir("define i32 @kernel(ptr %a) { ret i32 9 }", "kernel")
    kernel = make_launcher(NAME, [Pipeline(address, [], (), (), False, code)], 0)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(2):
            with pytest.raises(errors.KernelRuntimeError, match="Halide error 9"):
                kernel()
    assert calls_seen(profile) == 2


def test_other_threads_run_while_it_profiles(add_pipeline: Build) -> None:
    kernel = make_launcher(NAME, [add_pipeline(64, release_gil=True)], 3)
    outs = [torch.zeros(64) for _ in range(4)]
    one = torch.ones(64)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        threads = [threading.Thread(target=lambda o=out: [kernel(one, one, o) for _ in range(200)]) for out in outs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert all(torch.equal(out, one + one) for out in outs)


def test_a_torch_without_the_flag_only_loses_the_names() -> None:
    program = f"""
import torch, torch.autograd.profiler as profiler
del profiler._is_profiler_enabled
from halide_backend.launch import launcher
assert launcher.configure().profiler is False
profiler._is_profiler_enabled = True
profiler._is_profiler_enabled = False
print({NAME!r})
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert answer.stdout.strip() == NAME, answer.stderr
