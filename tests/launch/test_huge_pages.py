"""Large blocks of memory that a graph allocates ask for huge pages, before their first touch."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from halide_backend.inspection.compiled import compile_for
from halide_backend.launch.freed_memory import in_huge_pages
from halide_backend.launch.launcher import native

HUGE_PAGE, LARGE = 2 << 20, 32 << 20

pytestmark = pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="a system without transparent huge pages"
)


@pytest.fixture
def fresh() -> Iterator[Callable[[int], Tensor]]:
    """Makes a tensor of float32 in a mapping of its own, which nobody has touched; it begins 64 bytes behind a page."""
    mappings: list[mmap.mmap] = []

    def make(bytes_: int) -> Tensor:
        mappings.append(mmap.mmap(-1, bytes_ + 4 * HUGE_PAGE))
        return torch.frombuffer(mappings[-1], dtype=torch.float32, count=bytes_ // 4, offset=64)

    yield make


def advised(tensor: Tensor) -> int:
    """Bytes of `tensor` for which huge pages were asked for."""
    first, last = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    found, begin, end = 0, 0, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head = line.split()[0]
        if "-" in head and not head.endswith(":"):
            begin, end = (int(part, 16) for part in head.split("-"))
        elif head == "VmFlags:" and "hg" in line.split():
            found += max(0, min(end, last) - max(begin, first))
    return found


@pytest.mark.parametrize(("size", "large"), [(LARGE, True), (3 * LARGE + 4, True), (LARGE - 4, False)])
def test_whole_pages_of_large_blocks(size: int, large: bool, fresh: Callable[[int], Tensor]) -> None:
    block = fresh(size)
    assert advised(block) == 0
    assert in_huge_pages(block) is block
    begin, end = -(-block.data_ptr() // HUGE_PAGE), (block.data_ptr() + size) // HUGE_PAGE
    assert advised(block) == ((end - begin) * HUGE_PAGE if large else 0)


def test_a_block_that_is_no_memory_is_nobodys_trouble() -> None:
    native().huge_pages(1 << 46, 2 * LARGE)  # madvise says ENOMEM
    with pytest.raises(TypeError):
        native().huge_pages("block", LARGE)


ROWS = LARGE // 4 // 1024 + 5


def added(x: Tensor) -> Tensor:
    return x + 1


def multiplied(x: Tensor) -> Tensor:
    return x @ x[:1024]


@pytest.mark.parametrize("function", [added, multiplied])
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_a_graph_allocates(function: Callable[[Tensor], Tensor], dynamic: bool) -> None:
    """For kernels of this backend, and for those of libraries."""
    x = torch.randn(ROWS, 1024)
    compiled = compile_for("halide_backend", function, dynamic=dynamic)
    out = compiled(x)
    assert advised(out) >= LARGE - 2 * HUGE_PAGE
    torch.testing.assert_close(out, function(x))
    small = compiled(x[:1500])
    torch.testing.assert_close(small, function(x[:1500]))


def test_what_is_small_is_allocated_as_before() -> None:
    compiled = compile_for("halide_backend", added)
    compiled(torch.randn(ROWS // 2, 1024))
    assert in_huge_pages.__name__ not in "".join(compiled.codes)


def test_graphs_of_other_backends_are_left_alone() -> None:
    compiled = compile_for("cpp", added)
    compiled(torch.randn(ROWS, 1024))
    assert in_huge_pages.__name__ not in "".join(compiled.codes)
