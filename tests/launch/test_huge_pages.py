"""Large outputs of kernels ask for huge pages, before their first touch."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import halide as hl
import pytest
import torch
from launch_manifests import buffer
from torch import Tensor

from halide_backend.inspection.compiled import compile_for
from halide_backend.launch.launcher import Pipeline, make_launcher, native

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
    """Bytes for which huge pages were asked for in the mapping of `tensor`, all of them within it."""
    first, last = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    found, begin, end = 0, 0, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head = line.split()[0]
        if "-" in head and not head.endswith(":"):
            begin, end = (int(part, 16) for part in head.split("-"))
        elif head == "VmFlags:" and "hg" in line.split() and begin < last and end > first:
            assert begin % HUGE_PAGE == 0 == end % HUGE_PAGE
            assert begin >= tensor.data_ptr() and end <= last
            found += end - begin
    return found


@pytest.fixture
def counting(compile_halide: Callable[..., Any]) -> Callable[[int, bool], Any]:
    """Makes a kernel that writes as many numbers, said to be its output or not."""

    def make(count: int, output: bool) -> Any:
        x, out = hl.Var("x"), hl.Func("o")
        out[x] = hl.f32(x % 1000)
        address, code, _ = compile_halide([], [out])
        argument = {**buffer("o", count), **({"output": True} if output else {})}
        return make_launcher("count", [Pipeline(address, [argument], (0,), (), False, code)], 1)

    return make


@pytest.mark.parametrize(
    ("size", "output", "expected"),
    [(LARGE, True, True), (3 * LARGE, True, True), (LARGE - 4, True, False), (LARGE, False, False)],
)
def test_whole_pages_of_large_outputs(
    size: int, output: bool, expected: bool, fresh: Callable[[int], Tensor], counting: Callable[[int, bool], Any]
) -> None:
    out = fresh(size)
    assert advised(out) == 0
    counting(size // 4, output)(out)
    begin, end = -(-out.data_ptr() // HUGE_PAGE), (out.data_ptr() + size) // HUGE_PAGE
    assert advised(out) == ((end - begin) * HUGE_PAGE if expected else 0)
    assert torch.equal(out, (torch.arange(size // 4) % 1000).float())


def test_memory_is_prepared_for_who_measures_it(fresh: Callable[[int], Tensor]) -> None:
    large, small = fresh(LARGE + 4), fresh(LARGE - 4)
    for each in (large, small):
        native().huge_pages(each.data_ptr(), each.nbytes)
    assert LARGE - 2 * HUGE_PAGE < advised(large) <= LARGE
    assert advised(small) == 0


def test_an_output_that_is_less_than_its_dims_span(
    fresh: Callable[[int], Tensor], compile_halide: Callable[..., Any]
) -> None:
    """Every other line of a tensor, but for the rest of the last pair: nothing beyond the end is asked for."""
    x, y, out, count = hl.Var("x"), hl.Var("y"), hl.Func("o"), LARGE // 4
    out[x, y] = hl.f32(x + y)
    out.output_buffer().dim(1).set_stride(2 * HUGE_PAGE)
    address, code, _ = compile_halide([], [out])
    argument = {**buffer("o", 8, (count // HUGE_PAGE, 2 * HUGE_PAGE)), "output": True, "extent": count}
    tensor = fresh(4 * LARGE)
    make_launcher("lines", [Pipeline(address, [argument], (0,), (), False, code)], 1)(tensor)
    assert LARGE - 2 * HUGE_PAGE <= advised(tensor) <= LARGE


def test_kernels_of_the_backend_say_what_is_written() -> None:
    x = torch.randn(LARGE // 4 + 5)
    out = compile_for("halide_backend", lambda x: x + 1)(x)
    assert advised(out) >= LARGE - 2 * HUGE_PAGE
    assert torch.equal(out, x + 1)
