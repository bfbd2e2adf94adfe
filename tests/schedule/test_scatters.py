"""Scatters: patches that overlap are added in vectors along rows of pixels; what is stored as well is read again."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend import pipeline
from halide_backend.inspection.compiled import compile_for


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    whole = pipeline.schedule_kernel

    def kept(*arguments: object) -> object:
        scheduled = whole(*arguments)  # type: ignore[arg-type]
        found.append(scheduled.kernel.text)
        return scheduled

    monkeypatch.setattr(pipeline, "schedule_kernel", kept)
    return found


def check(fold: object, x: Tensor, dynamic: bool = False) -> None:
    compiled = compile_for("halide_backend", fold, dynamic=dynamic)  # type: ignore[arg-type]
    found, wanted = compiled.call(x), fold(x.double())  # type: ignore[operator]
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


def test_a_scatter_reads_what_another_result_stores(texts: list[str]) -> None:
    places = torch.randint(0, 11, (40,))

    def stored(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        total = x * y + x
        return total, torch.zeros(11, x.shape[-1], dtype=x.dtype).index_add(0, places, total * 2)

    def check_of(dtype: torch.dtype) -> str:
        texts.clear()
        x, y = torch.randn(40, 100).to(dtype), torch.randn(40, 100).to(dtype)
        found, wanted = compile_for("halide_backend", stored).call(x, y), stored(x.double(), y.double())
        for mine, truth in zip(found, wanted):
            low = dtype == torch.bfloat16
            torch.testing.assert_close(mine.double(), truth, rtol=0.05 if low else 1e-5, atol=0.2 if low else 1e-5)
        return "".join(texts)

    assert "= hl.Expr(out_ptr0[x1, x0])" in check_of(torch.float32)
    # What is stored in 16 bits has been rounded.
    assert "= hl.Expr(out_ptr0[x1, x0])" not in check_of(torch.bfloat16)


def test_a_scatter_into_a_copy_of_what_is_stored_adds_what_was_there() -> None:
    places = torch.randint(0, 5, (40,))

    def added(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        total = x * y + x
        return total, total.clone().index_add(0, places, total * 2)

    x, y = torch.randn(40, 100), torch.randn(40, 100)
    found, wanted = compile_for("halide_backend", added).call(x, y), added(x.double(), y.double())
    for mine, truth in zip(found, wanted):
        torch.testing.assert_close(mine.double(), truth, rtol=1e-5, atol=1e-4)
