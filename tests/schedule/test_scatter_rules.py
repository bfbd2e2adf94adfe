"""Scatters: patches that overlap are added in vectors along rows of pixels; what is stored as well is read again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import halide_backend
from halide_backend import pipeline
from halide_backend.inspection.compiled import compile_for
from halide_backend.schedules.choice import ScheduledKernel


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    whole = pipeline.schedule_kernel

    def kept(*arguments: Any) -> ScheduledKernel:
        scheduled = whole(*arguments)
        found.append(scheduled.kernel.text)
        return scheduled

    monkeypatch.setattr(pipeline, "schedule_kernel", kept)
    return found


def check(fold: Callable[[Tensor], Tensor], x: Tensor, dynamic: bool = False) -> None:
    """Its results are those of eager in float64, and all of its kernels are ours."""
    compiled = compile_for("halide_backend", fold, dynamic=dynamic)
    found, wanted = compiled.call(x), fold(x.double())
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
    compiled.check_code()
    assert not compiled.delegated


@pytest.mark.parametrize(
    ("image", "kernel", "stride"), [((32, 32), 3, 1), ((31, 29), 3, 1), ((17, 12), 5, 1), ((20, 20), 4, 2)]
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_patches_that_overlap_are_added_up(image: tuple[int, int], kernel: int, stride: int, dynamic: bool) -> None:
    count = [(size + 2 - kernel) // stride + 1 for size in image]
    x = torch.randn(2, 3 * kernel**2, count[0] * count[1])
    check(lambda x: F.fold(x, image, kernel, padding=1, stride=stride), x, dynamic)


def test_pixels_side_by_side_are_added_in_vectors(texts: list[str]) -> None:
    check(lambda x: F.fold(x, (32, 32), 3, padding=1), torch.randn(4, 27, 1024))
    scattered = [text for text in texts if "Role.SCATTER" in text]
    assert len(scattered) == 1
    assert "AllowRaceConditions('out_ptr0')" in scattered[0]
    assert "Vectorize('out_ptr0', 'r_0$x_v', update=0)" in scattered[0]


def test_pixels_that_lie_apart_are_added_one_by_one(texts: list[str]) -> None:
    """Every second one, of patches that are two pixels apart."""
    check(lambda x: F.fold(x, (64, 64), 4, padding=1, stride=2), torch.randn(2, 48, 1024))
    assert not any("AllowRaceConditions" in text for text in texts)


def test_places_that_are_data_may_be_equal(texts: list[str]) -> None:
    places = torch.randint(0, 7, (1000,))

    def counted(x: Tensor) -> Tensor:
        return torch.zeros(7, dtype=x.dtype).index_add(0, places, x)

    check(counted, torch.randn(1000))
    assert not any("AllowRaceConditions" in text for text in texts)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """With several, Inductor leaves additions to computed places to ATen."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("columns", "unrolled"), [(509, True), (100, True), (225, False)])
@pytest.mark.parametrize("added", [False, True])
def test_points_are_stored_four_at_a_time_in_order(columns: int, unrolled: bool, added: bool, texts: list[str]) -> None:
    """The last of several that meet at one place stays."""
    places = torch.randint(0, columns, (61, columns))

    def moved(x: Tensor) -> Tensor:
        zeros = torch.zeros_like(x)
        return zeros.scatter_add(-1, places, x) if added else zeros.scatter(-1, places, x)

    check(moved, torch.randn(61, columns))
    (scattered,) = [text for text in texts if "Role.SCATTER" in text]
    assert ("Unroll('out_ptr0', 'r_0$x_u', update=0)" in scattered) is unrolled


def gradients(x: Tensor, scale: Tensor, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of a norm and of the embedding before it."""
    first = x * scale
    second = first * x - first.sum(-1, keepdim=True) * 0 + scale
    return first, second, torch.zeros(11, x.shape[-1], dtype=x.dtype).index_add(0, places, second * 2)


@pytest.mark.parametrize("columns", [3, 13, 37, 100, 128])
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_stored_and_scattered_is_right(columns: int, dynamic: bool) -> None:
    compiled = compile_for("halide_backend", gradients, dynamic=dynamic)
    for rows in (40, 1, 7):
        x, scale, places = torch.randn(rows, columns), torch.randn(columns), torch.randint(0, 11, (rows,))
        found, wanted = compiled.call(x, scale, places), gradients(x.double(), scale.double(), places)
        for mine, truth in zip(found, wanted):
            torch.testing.assert_close(mine.double(), truth, rtol=1e-5, atol=1e-4)
    assert not compiled.delegated


def stored_and_scattered(x: Tensor, y: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    total = x * y + x
    return total, torch.zeros(11, x.shape[-1], dtype=x.dtype).index_add(0, places, total * 2)


READ_AGAIN = "= hl.Expr(out_ptr0[memory.place(x1, 100), memory.place(x0, 40)])"


# What is stored in 16 bits has been rounded.
@pytest.mark.parametrize(("dtype", "tolerance", "again"), [(torch.float32, 1e-5, True), (torch.bfloat16, 0.05, False)])
def test_a_scatter_reads_what_another_result_stores(
    dtype: torch.dtype, tolerance: float, again: bool, texts: list[str]
) -> None:
    x, y, places = torch.randn(40, 100).to(dtype), torch.randn(40, 100).to(dtype), torch.randint(0, 11, (40,))
    found = compile_for("halide_backend", stored_and_scattered).call(x, y, places)
    for mine, truth in zip(found, stored_and_scattered(x.double(), y.double(), places)):
        torch.testing.assert_close(mine.double(), truth, rtol=tolerance, atol=4 * tolerance)
    assert (READ_AGAIN in "".join(texts)) == again


def test_a_scatter_may_be_the_first_argument() -> None:
    """The kernel's Funcs are written in another order than its arguments. A heap was overwritten."""

    def added(x: Tensor, y: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        return x.index_add(0, rows, y, alpha=2), y.scatter_add(1, columns, y)

    x, y = torch.randn(9, 40), torch.randn(9, 40)
    rows, columns = torch.randperm(9), torch.randint(0, 40, (9, 40))
    unfused = halide_backend.stats()["unfusing_reasons"]
    compiled = compile_for("halide_backend", added)
    found, wanted = compiled.call(x, y, rows, columns), added(x.double(), y.double(), rows, columns)
    for mine, truth in zip(found, wanted):
        torch.testing.assert_close(mine.double(), truth, rtol=1e-5, atol=1e-4)
    assert halide_backend.stats()["unfusing_reasons"] == unfused
    assert not compiled.delegated


def test_a_scatter_into_a_copy_of_what_is_stored_adds_what_was_there() -> None:
    places = torch.randint(0, 5, (40,))

    def added(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        total = x * y + x
        return total, total.clone().index_add(0, places, total * 2)

    x, y = torch.randn(40, 100), torch.randn(40, 100)
    found, wanted = compile_for("halide_backend", added).call(x, y), added(x.double(), y.double())
    for mine, truth in zip(found, wanted):
        torch.testing.assert_close(mine.double(), truth, rtol=1e-5, atol=1e-4)


def columns_added(x: Tensor, places: Tensor) -> Tensor:
    return torch.zeros(7, x.shape[0], dtype=x.dtype).index_add(0, places, x.t())


@pytest.mark.parametrize("shape", [(384, 256), (37, 200), (100, 65), (16, 3), (20, 1)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_values_that_lie_across_are_added_in_tiles(shape: tuple[int, int], dynamic: bool, texts: list[str]) -> None:
    compiled = compile_for("halide_backend", columns_added, dynamic=dynamic)
    for rows in (shape[1], 130, 2):
        x, places = torch.randn(shape[0], rows), torch.randint(0, 7, (rows,))
        wanted = columns_added(x.double(), places)
        torch.testing.assert_close(compiled.call(x, places).double(), wanted, rtol=1e-5, atol=1e-4)
    assert not compiled.delegated
    if shape == (384, 256):
        assert any("Split('out_ptr0', 'r_0$x', 'r_0$x_o', 'r_0$x_i', 64, update=0)" in text for text in texts)


def test_rows_that_lie_along_the_columns_are_added_one_after_another(texts: list[str]) -> None:
    places = torch.randint(0, 7, (256,))
    compiled = compile_for("halide_backend", lambda x: torch.zeros(7, 384).index_add(0, places, x))
    x = torch.randn(256, 384)
    torch.testing.assert_close(compiled.call(x), torch.zeros(7, 384).index_add(0, places, x), rtol=1e-5, atol=1e-4)
    assert any("Role.SCATTER" in text for text in texts)
    assert not any("'r_0$x_o'" in text for text in texts)


def test_what_is_stored_across_and_scattered_along_has_two_kernels(texts: list[str]) -> None:
    """One of them would read and store element by element what the other one turns in tiles."""

    def both(x: Tensor, scale: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        scaled = x * scale
        return scaled, torch.zeros(7, x.shape[0], dtype=x.dtype).index_add(0, places, scaled.t())

    x, scale, places = torch.randn(96, 80), torch.randn(80), torch.randint(0, 7, (80,))
    compiled = compile_for("halide_backend", both)
    for mine, truth in zip(compiled.call(x, scale, places), both(x.double(), scale.double(), places)):
        torch.testing.assert_close(mine.double(), truth, rtol=1e-5, atol=1e-4)
    (scattered,) = (text for text in texts if "Role.SCATTER" in text)
    assert "Stage('out_ptr1'" not in scattered


@pytest.mark.parametrize(
    ("columns", "block", "unrolled"),
    [(16, 16, 0), (33, 48, 3), (100, 112, 7), (128, 128, 8), (200, 112, 7), (256, 128, 4), (384, 192, 4)],
)
def test_vectors_of_a_row_are_added_without_a_loop(columns: int, block: int, unrolled: int, texts: list[str]) -> None:
    """Rows of a few vectors are one block, others at least two."""

    def added(x: Tensor, places: Tensor) -> Tensor:
        return torch.zeros(60, columns, dtype=x.dtype).index_add(0, places, x)

    places, x = torch.randint(0, 60, (500,)), torch.randn(500, columns)
    compiled = compile_for("halide_backend", added)
    torch.testing.assert_close(compiled.call(x, places).double(), added(x.double(), places), rtol=1e-5, atol=1e-4)
    assert not compiled.delegated
    (scattered,) = (text for text in texts if "Role.SCATTER" in text)
    if "'x1_i_v', 16, update=0" in scattered:
        assert f"Split('out_ptr0', 'x1', 'x1_b', 'x1_i', {block}, update=0)" in scattered
        together = f"Split('out_ptr0', 'x1_i_o', 'x1_i_o', 'x1_i_u', {unrolled}, update=0)"
        assert (together in scattered) == (unrolled > 0)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("columns", [4, 37, 100, 601, 2100])
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_elements_of_a_row_that_go_to_places_of_their_own(
    columns: int, added: bool, dynamic: bool, texts: list[str]
) -> None:
    def moved(x: Tensor, places: Tensor) -> Tensor:
        zeros = torch.zeros(3, 30, x.shape[-1], dtype=x.dtype)
        return zeros.scatter_add(1, places, x) if added else zeros.scatter(1, places, x)

    compiled = compile_for("halide_backend", moved, dynamic=dynamic)
    for wide in (columns, 43) if dynamic else (columns,):
        x, places = torch.randn(3, 20, wide), torch.rand(3, 30, wide).argsort(1)[:, :20]
        if added:
            places %= 9
        wanted = moved(x.double(), places)
        torch.testing.assert_close(compiled.call(x, places).double(), wanted, rtol=1e-5, atol=1e-5)
    assert not compiled.delegated
    (scattered,) = (text for text in texts if "Role.SCATTER" in text and "ComputeAt" in text)
    assert "ComputeAt('scatter_position_0', 'out_ptr0', 'r_0$x')" in scattered
    assert "Unroll('out_ptr0', 'x2_i_u', update=0)" in scattered


@pytest.mark.parametrize(("size", "step"), [(25, 10), (16, 5), (400, 160), (40, 39)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_windows_of_a_line_are_added_in_vectors(size: int, step: int, dynamic: bool, texts: list[str]) -> None:
    """Inductor has one loop over the elements of all of them."""

    def gradient(x: Tensor) -> Tensor:
        return torch.ops.aten.unfold_backward(x, [3, 1600], 1, size, step)

    compiled = compile_for("halide_backend", gradient, dynamic=dynamic)
    x = torch.randn(3, (1600 - size) // step + 1, size)
    torch.testing.assert_close(compiled.call(x).double(), gradient(x.double()), rtol=1e-5, atol=1e-5)
    assert not compiled.delegated
    if not dynamic:
        (scattered,) = (text for text in texts if "Role.SCATTER" in text)
        assert "Vectorize('out_ptr0', 'r_0$x_v', update=0)" in scattered


@pytest.mark.parametrize("dynamic", [False, True])
def test_places_on_a_line_are_not_stored_before(dynamic: bool, texts: list[str]) -> None:
    """Those of every second pixel; of pixels that data chooses they are."""

    def chosen(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        zeros = torch.zeros(20, 9, 11, dtype=x.dtype)
        return torch.ops.aten._unsafe_index_put(zeros, [None, rows, columns], x.permute(2, 0, 1), True)

    check(lambda x: F.fold(x, (64, 64), 4, padding=1, stride=2), torch.randn(2, 48, 1024), dynamic)
    x, rows, columns = torch.randn(6, 7, 20), torch.randint(-3, 9, (6, 1)), torch.randint(0, 11, (7,))
    compiled = compile_for("halide_backend", chosen, dynamic=dynamic)
    wanted = chosen(x.double(), rows, columns)
    torch.testing.assert_close(compiled.call(x, rows, columns).double(), wanted, rtol=1e-5, atol=1e-5)
    assert not compiled.delegated
    scattered = [text for text in texts if "Role.SCATTER" in text]
    assert scattered and not any("ComputeAt('scatter_position_0'" in text for text in scattered)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.bool])
def test_what_is_stored_is_an_element_of_memory_before(dtype: torch.dtype, texts: list[str]) -> None:
    """Rounded in vectors, not one by one where they go."""
    x, places = torch.randn(29, 613).to(dtype), torch.argsort(torch.randn(29, 613), 1)[:, :200].contiguous()

    def moved(x: Tensor, places: Tensor) -> Tensor:
        return torch.zeros_like(x).scatter(1, places, (x * x)[:, :200])

    compiled = compile_for("halide_backend", moved)
    assert torch.equal(compiled.call(x, places), moved(x, places)) and not compiled.delegated
    (scattered,) = (text for text in texts if "Role.SCATTER" in text)
    (update,) = (line for line in scattered.splitlines() if line.startswith("    out_ptr0[memory.place("))
    assert update.endswith("= hl.Expr(scatter_value_0[r_0[0], x0])")


@pytest.mark.parametrize(("square", "stored"), [(False, 1), (True, 2)], ids=["moved", "computed"])
def test_elements_that_only_move_are_not_stored_before(square: bool, stored: int, texts: list[str]) -> None:
    """Each is at hand where it is; what is computed of them comes in vectors, as places of data do."""
    x, places = torch.randn(29, 613), torch.argsort(torch.randn(29, 613), 1).contiguous()

    def moved(x: Tensor, places: Tensor) -> Tensor:
        return torch.zeros_like(x).scatter(1, places, x * x if square else x)

    compiled = compile_for("halide_backend", moved)
    assert torch.equal(compiled.call(x, places), moved(x, places)) and not compiled.delegated
    (scattered,) = (text for text in texts if "Role.SCATTER" in text)
    assert scattered.count("ComputeAt('scatter_") == stored
