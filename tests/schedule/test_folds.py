"""Scatters of patches that overlap: pixels of a row side by side are added in vectors, rows one after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

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
