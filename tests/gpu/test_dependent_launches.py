"""Kernels that begin while the one before them ends see all that it stored, however often memory is used again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

pytestmark = pytest.mark.gpu
Native = Callable[[], int]

#: A few blocks, some on every multiprocessor, and more than run at a time.
SIZES = (300, 70_001, 5_000_011)


def shifted(x: Tensor) -> Tensor:
    """Every element is another thread's, most of them another block's."""
    return x.flip(0) + 1


@pytest.mark.parametrize("graph", [False, True], ids=["launched", "in a graph"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_a_chain_that_uses_two_tensors_again_and_again(
    native: Native, size: int, dtype: torch.dtype, graph: bool
) -> None:
    """What a kernel reads the one before it wrote, where the one before that read."""
    compiled = torch.compile(lambda x, out: out.copy_(shifted(x)), dynamic=False)
    first, second = torch.zeros(size, device="cuda", dtype=dtype), torch.empty(size, device="cuda", dtype=dtype)
    compiled(first, second)
    assert native() == 1

    def steps() -> None:
        for _ in range(50):
            compiled(first, second)
            compiled(second, first)

    if graph:
        stream, recorded = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            steps()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(recorded):
            steps()
        first.zero_()
        recorded.replay()
    else:
        steps()
    torch.cuda.synchronize()
    assert torch.equal(first, torch.full_like(first, 100))


@pytest.mark.parametrize("columns", [33, 4096])
def test_sums_of_what_a_library_wrote(native: Native, columns: int) -> None:
    """Products of cuBLAS and copies of the driver before and behind kernels of our own."""
    compiled = torch.compile(lambda x: torch.softmax(x, -1), dynamic=False)
    x = torch.randn(512, 512, device="cuda")
    w = torch.randn(512, columns, device="cuda")
    wanted = torch.softmax((x.double() @ w.double()), -1)
    other = torch.empty(512, columns, device="cuda")
    for _ in range(20):
        product = x @ w
        found = compiled(product)
        product.zero_()
        other.copy_(found)
        torch.testing.assert_close(other.double(), wanted, rtol=0, atol=2e-3)
        other.zero_()
    assert native() == 1
