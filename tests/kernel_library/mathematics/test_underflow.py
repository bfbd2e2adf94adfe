"""Exponentials that are zero raise no underflow: on Intel's processors each would take some 150 cycles."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import Tensor
from vector_kernel import HOST, WITHOUT_FMA, vector_kernel

from halide_backend.build.target import Target
from halide_backend.inspection.compiled import compile_for

_C_LIBRARY = ctypes.CDLL(None)
#: Bits of the exceptions in x86's MXCSR: denormal operand, underflow.
_TINY = 0x02 | 0x10


@contextmanager
def tiny_numbers() -> Iterator[Callable[[], int]]:
    """What says which exceptions of tiny numbers were raised since the beginning."""
    _C_LIBRARY.feclearexcept(_TINY)
    yield lambda: int(_C_LIBRARY.fetestexcept(_TINY))
    _C_LIBRARY.feclearexcept(_TINY)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Exceptions are those of a thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("target", [HOST, WITHOUT_FMA], ids=["host", "without_fma"])
@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_results_that_are_zero_do_not_underflow(name: str, target: Target, bits: int) -> None:
    kernel = vector_kernel(name, 1, bits, target)
    dtype = np.float32 if bits == 32 else np.float64
    below = [-152.0, -1e3, -1e30] if bits == 32 else [-1077.0, -1e4, -1e300]
    zero = np.resize(np.array([*below, -np.inf], dtype), 64)
    with tiny_numbers() as raised:
        values = kernel(zero)
        assert not raised()
    assert not values.any()
    # The exceptions are seen where there are any.
    with tiny_numbers() as raised:
        kernel(np.full(64, (-100.3 if bits == 32 else -740.3) * (1.0 if name == "exp" else 1.44), dtype))
        assert raised()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("masked", [-torch.inf, -1e9], ids=["infinity", "large"])
@pytest.mark.usefixtures("one_thread")
def test_masked_softmax_does_not_underflow(masked: float, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x, mask = torch.randn(64, 203).to(dtype), torch.rand(64, 203) > 0.5
    softmax = compile_for("halide_backend", lambda x, mask: _softmax(x, mask, masked))
    found = softmax(x, mask)
    with tiny_numbers() as raised:
        softmax(x, mask)
        assert not raised()
    exact = _softmax(x.double(), mask, masked)
    torch.testing.assert_close(found.double(), exact, rtol=1e-6 if dtype == torch.float32 else 8e-3, atol=0)


def _softmax(x: Tensor, mask: Tensor, masked: float) -> Tensor:
    return torch.softmax(x.masked_fill(mask, masked), -1)
