"""Binary searches as they are recorded for CUDA, run on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.exc import InductorError
from torch.utils._ordered_set import OrderedSet

from halide_backend.capture.scheduling import HalideScheduling

Check = Callable[..., dict[str, object]]
NAN, INF = float("nan"), float("inf")


@pytest.fixture(autouse=True)
def searched_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise Inductor calls ATen on a CPU, where no other backend could do it if this one refused."""
    features = HalideScheduling.get_backend_features

    def with_bucketize(self: HalideScheduling, device: torch.device) -> OrderedSet[BackendFeature]:
        return features(self, device) | OrderedSet([BackendFeature.BUCKETIZE])

    monkeypatch.setattr(HalideScheduling, "get_backend_features", with_bucketize)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9, 100])
@pytest.mark.parametrize("right", [False, True])
def test_any_number_of_boundaries(check: Check, count: int, right: bool) -> None:
    boundaries = torch.randn(count).sort()[0]
    values = torch.cat([torch.randn(101), boundaries, torch.tensor([NAN, INF, -INF])])
    stats = check(lambda x, b: torch.bucketize(x, b, right=right), values, boundaries)
    assert stats["native_kernels"] == 1


def test_unordered_boundaries_are_searched_as_eager_does(check: Check) -> None:
    for boundaries in (torch.tensor([0.0, 1.0, 2.0, NAN, NAN]), torch.randn(37)):
        check(lambda x, b: torch.bucketize(x, b, out_int32=True), torch.tensor([NAN, 0.0, 1.5, 3.0]), boundaries)


def test_each_row_has_boundaries_of_its_own(check: Check) -> None:
    rows, values = torch.randn(4, 5, 33).sort(-1)[0], torch.randn(4, 5, 17)
    check(lambda s, v: torch.searchsorted(s, v, side="right"), rows, values)
    columns = torch.randn(33, 4).sort(0)[0]
    check(lambda s, v: torch.searchsorted(s.t(), v) * 2 + 1, columns, torch.randn(4, 9))


def test_boundaries_in_the_order_of_a_sorter(check: Check) -> None:
    unsorted = torch.randn(4, 33)
    check(lambda s, v, o: torch.searchsorted(s, v, sorter=o), unsorted, torch.randn(4, 17), unsorted.argsort(-1))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16, torch.float64, torch.float16], ids=str)
def test_numbers_of_any_type(check: Check, dtype: torch.dtype) -> None:
    check(torch.bucketize, torch.randint(0, 50, (100,)).to(dtype), torch.arange(4, 40, 3).to(dtype))


def test_bytes_are_refused() -> None:
    with pytest.raises(InductorError, match="bucketize-of-small-integers"):
        torch.compile(torch.bucketize)(torch.arange(9).byte(), torch.arange(4).byte())


def test_equal_searches_in_different_boundaries(check: Check) -> None:
    def both(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return torch.bucketize(x, a), torch.bucketize(y, b)

    check(both, torch.randn(50), torch.randn(50), torch.randn(10).sort()[0], torch.randn(10).sort()[0])


def test_a_number_of_boundaries_that_only_the_call_knows(check: Check) -> None:
    check(torch.bucketize, torch.randn(50), torch.randn(10).sort()[0], dynamic=True)


def test_fewer_boundaries_take_fewer_steps(texts: list[str]) -> None:
    """Of a number that only the call knows all 31 were twice as slow as Triton's loop."""
    search = torch.compile(lambda x, b: torch.bucketize(x, b), dynamic=True)
    values = torch.randn(50)
    for count, steps in ((100, 8), (255, 8), (256, 12), (5000, 16), (17, 8)):
        boundaries = torch.randn(count).sort()[0]
        found = len(texts)
        assert torch.equal(search(values, boundaries), torch.bucketize(values, boundaries))
        # 255 and 17 have the code of 100.
        compiled = texts[found:]
        assert [text.count(" = in_ptr1[") for text in compiled] == ([] if count in (255, 17) else [steps])
