"""Kernels that are resolved by their first call, and how launchers end."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from halide_backend import errors
from halide_backend.launch.launcher import Pipeline, make_launcher

Build = Callable[..., Any]


def test_pending_kernel_is_resolved_once_by_whichever_thread(add_pipeline: Build) -> None:
    calls = []

    def obtain() -> list[Pipeline]:
        calls.append(threading.get_ident())
        time.sleep(0.05)
        return [add_pipeline(64)]

    kernel = make_launcher("later", obtain, 3)
    assert kernel.pending
    assert not calls
    a, b = torch.randn(64), torch.randn(64)
    outs = [torch.zeros(64) for _ in range(8)]
    threads = [threading.Thread(target=kernel, args=(a, b, out)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert len(calls) == 1
    assert not kernel.pending
    assert all(torch.equal(out, a + b) for out in outs)


def test_pending_kernel_that_cannot_be_resolved(add_pipeline: Build) -> None:
    answers: list[Any] = [
        errors.WorkerCrashed("the worker died", where="kernel later"),
        errors.WorkerCrashed("the worker died again", where="kernel later"),
        [add_pipeline(64)._replace(address=0)],
        [add_pipeline(64)],
    ]

    def obtain() -> list[Pipeline]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    kernel = make_launcher("later", obtain, 3)
    a, b, out = torch.randn(64), torch.randn(64), torch.zeros(64)
    with pytest.raises(errors.KernelArgumentError, match="takes 3"):
        kernel(a)
    with pytest.raises(errors.WorkerCrashed, match="died"):
        kernel(a, b, out)
    with pytest.raises(errors.WorkerCrashed, match="died again"):
        kernel(a, b, out)
    with pytest.raises(ValueError, match="kernel later: a pipeline's address is 0"):
        kernel(a, b, out)
    assert kernel.pending
    kernel(a, b, out)
    assert torch.equal(out, a + b)


def test_resolve_that_calls_its_own_kernel_is_an_error() -> None:
    kernel = make_launcher("loop", lambda: kernel(), 0)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="kernel loop was called by its own resolve"):
            kernel()


def test_launchers_are_freed_with_their_code(add_pipeline: Build) -> None:
    class Owner:
        def __init__(self, code: object) -> None:
            self.code = code

    pipeline = add_pipeline(8)
    owner = Owner(pipeline.code)
    alive = weakref.ref(owner)
    kernel = make_launcher("add", [pipeline._replace(code=owner)], 3)
    del owner, pipeline
    gc.collect()
    assert alive() is not None
    kernel(torch.ones(8), torch.ones(8), torch.ones(8))
    del kernel
    gc.collect()
    assert alive() is None

    # A cycle through resolve() is found by the collector, before and after it was resolved.
    for resolved in (False, True):
        pipeline = add_pipeline(8)
        holder: Any = Owner(pipeline.code)
        alive = weakref.ref(holder)
        pipeline = pipeline._replace(code=holder)
        holder.kernel = make_launcher("cycle", lambda p=pipeline: [p], 3)
        if resolved:
            holder.kernel(torch.ones(8), torch.ones(8), torch.ones(8))
        del holder, pipeline
        gc.collect()
        assert alive() is None, f"leaked while resolved={resolved}"
