"""Kernels have a version for the short sizes that they were compiled for; values are right for all sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.inspection.compiled import compile_for
from halide_backend.kernel_records.journal import journal

NAN, INF = float("nan"), float("inf")

FUNCTIONS: dict[str, Callable[[Tensor], object]] = {
    "sums": lambda x: x.sum(-1),
    "largest": lambda x: x.amax(-1),
    "product": lambda x: x.prod(-1),
    "place of the largest": lambda x: x.argmax(-1),
    "place of the smallest": lambda x: x.argmin(-1),
    "largest and its place": lambda x: x.max(-1),
    "softmax": lambda x: x.softmax(-1),
    "lengths": lambda x: x / x.norm(dim=-1, keepdim=True),
    "variances": lambda x: x.var(-1),
    "sum and scaled": lambda x: (x.sum(-1), x * x.amax(-1, keepdim=True)),
    "transposed": lambda x: x.t().contiguous(),
    "padded": lambda x: F.pad(x, (1, 2)),
    "repeated": lambda x: x.repeat(1, 3),
    "rolled": lambda x: x.roll(1, -1),
    "reduced in bfloat16": lambda x: x.bfloat16().sum(-1),
    "place of the largest integer": lambda x: (x.nan_to_num(0, 1, -1) * 9).int().argmax(-1),
    "overwritten": lambda x: x.clone().add_(1).mul_(x.sum(-1, keepdim=True)),
}


@pytest.fixture
def texts() -> Iterator[Callable[[], list[str]]]:
    journal.reset()
    yield lambda: [record.text for record in journal.records()]


def rows(count: int, length: int) -> Tensor:
    """Random rows, with what is easily compared wrongly."""
    x = torch.randn(count, length)
    if x.numel() > 8:
        x.view(-1)[1:6] = torch.tensor([NAN, INF, 0.0, -0.0, NAN])
        x.view(-1)[7] = x.view(-1)[6]
    return x


@pytest.mark.sampled(4)
@pytest.mark.parametrize("length", [3, 7, 12, 37, 64, 100, 197])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_values_for_all_sizes(
    function: Callable[[Tensor], object], length: int, texts: Callable[[], list[str]]
) -> None:
    compiled = compile_for("halide_backend", function, dynamic=True)
    for size in ((300, length), (301, length), (17, length), (2, length), (300, length + 1), (9, 40)):
        x = rows(*size)
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-4, atol=1e-4, equal_nan=True)
    compiled.check_code()
    assert len(compiled.codes) == 1 and not compiled.delegated
    assert any(re.search(rf"SIZES = {{'n\d': {length}}}", text) for text in texts())


def test_which_sizes_are_short(texts: Callable[[], list[str]]) -> None:
    """A batch of a few is not: nothing in memory depends on it. Nor is a row longer than sixteen vectors."""

    def doubled(x: Tensor) -> Tensor:
        return x.transpose(1, 2).contiguous() * 2

    compile_for("halide_backend", doubled, dynamic=True)(torch.randn(4, 5, 270))
    assert ["SIZES = {'n2': 5}" in text for text in texts()] == [True]
    journal.reset()
    compile_for("halide_backend", doubled, dynamic=True)(torch.randn(4, 280, 270))
    assert ["SIZES" in text for text in texts()] == [False]


PICTURES: dict[str, Callable[[Tensor], Tensor]] = {
    "reflected": lambda x: F.pad(x, (2,) * 4, mode="reflect"),
    "circular": lambda x: F.pad(x, (2,) * 4, mode="circular"),
    "mean": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "columns": lambda x: x.sum(2),
}


@pytest.mark.parametrize("function", PICTURES.values(), ids=PICTURES)
@pytest.mark.parametrize("target", ["", "avx2"])
def test_pictures_of_all_sizes(function: Callable[[Tensor], Tensor], target: str) -> None:
    options = {"halide_backend.target": target} if target else {}
    compiled = compile_for("halide_backend", function, dynamic=True, options=options)
    for shape in ((2, 3, 140, 141), (3, 2, 141, 140), (2, 3, 140, 300), (5, 2, 7, 9), (2, 3, 4, 3)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-4, atol=1e-4)
    compiled.check_code()
    assert not compiled.delegated


def test_the_version_for_short_sizes_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what the entry calls for these sizes, and for no others: here it is made to be wrong."""
    from halide_backend.codegen import planned_kernel

    def wrong(text: str, sizes: dict[str, int], variant: str) -> str:
        return with_variant(text, sizes, variant.replace("ops.stored('float32', ", "ops.stored('float32', 1 + "))

    with_variant = planned_kernel.with_variant
    monkeypatch.setattr(planned_kernel, "with_variant", wrong)
    compiled = compile_for("halide_backend", lambda x: x.sum(-1) + 0.5, dynamic=True)
    for length in (3, 4, 3, 5):
        x = torch.randn(100, length)
        torch.testing.assert_close(compiled(x), x.sum(-1) + 0.5 + (length == 3))


def test_without_a_version_that_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The general one is for all sizes, so it is for these."""
    from halide_backend.codegen import planned_kernel

    def refused(text: str, sizes: dict[str, int], variant: str) -> str:
        return with_variant(text, sizes, variant.replace("SCHEDULE = (", "SCHEDULE = (Unroll('out_ptr0', 'x0'),"))

    with_variant = planned_kernel.with_variant
    monkeypatch.setattr(planned_kernel, "with_variant", refused)
    compiled = compile_for("halide_backend", lambda x: x.sum(-1) + 0.75, dynamic=True)
    for length in (37, 38):
        x = torch.randn(100, length)
        torch.testing.assert_close(compiled(x), x.sum(-1) + 0.75)
    assert compiled.kernels() == {"halide_backend": 1} and not compiled.delegated


def test_checks_keep_their_loops() -> None:
    def function(x: Tensor, places: Tensor) -> Tensor:
        return x[places].sum()

    compiled = compile_for("halide_backend", function, dynamic=True)
    for count in (5, 6, 5):
        x, places = torch.randn(33), torch.randint(0, 33, (count,))
        torch.testing.assert_close(compiled(x, places), function(x, places))
    with pytest.raises(IndexError):
        compiled(x, places + 33)
    assert not compiled.delegated
