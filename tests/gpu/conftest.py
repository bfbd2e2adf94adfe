"""Tests on a real GPU; run them with `pytest -m gpu tests`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._inductor import config as inductor_config

import halide_backend


@pytest.fixture(autouse=True)
def on_cuda() -> Iterator[None]:
    """This backend for CUDA, Inductor's caches off, no search for schedules, random numbers from a fixed seed."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    torch._dynamo.reset()
    torch.manual_seed(0)
    halide_backend.reset_stats()
    inductor = inductor_config.patch(cuda_backend="halide_backend", force_disable_caches=True)
    with inductor, halide_backend.config.patch(tune_seconds=0.0):
        yield
    torch.cuda.synchronize()


@pytest.fixture
def native() -> Callable[[], int]:
    """The number of kernels that this backend compiled; fails if it left any to Triton."""

    def count() -> int:
        stats: dict[str, Any] = halide_backend.stats()
        assert stats["delegation_reasons"] == {}
        return int(stats["native_kernels"])

    return count
