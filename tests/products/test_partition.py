"""Layers that oneDNN compiles once: values, layouts and threads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.products.partition import Operand, Partition, offer_partition, take_partition

LAST = Operand((2, 8, 6, 5), (240, 1, 40, 8))


def layer() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(4, 8, 3, 3), torch.randn(4)


def picture(*size: int) -> Tensor:
    return torch.randn(*size).contiguous(memory_format=torch.channels_last)


def test_values_and_layout() -> None:
    weight, bias = layer()
    partition = Partition(lambda x: F.relu(F.conv2d(x, weight, bias)), (LAST,))
    x = picture(2, 8, 6, 5)
    assert x.stride() == LAST.stride
    wanted = F.relu(F.conv2d(x.double(), weight.double(), bias.double()))
    got = partition(x)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-5)
    assert partition.result == Operand((2, 4, 4, 3), got.stride())


def test_a_call_is_one_of_onednn_graph() -> None:
    weight, bias = layer()
    partition = Partition(lambda x: torch.sigmoid(F.conv2d(x, weight, bias)), (LAST,))
    x = picture(2, 8, 6, 5)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        partition(x)
    names = {event.name for event in profile.events()}
    assert any(name.startswith("LlgaPartition") for name in names)
    assert not any("conv" in name or "sigmoid" in name for name in names)


def test_operands_with_other_sizes_and_strides_are_computed_by_aten() -> None:
    weight, bias = layer()
    partition = Partition(lambda x: F.relu(F.conv2d(x, weight, bias)), (LAST,))
    for x in (torch.randn(2, 8, 6, 5), picture(1, 8, 9, 9), picture(2, 8, 6, 5)):
        wanted = F.relu(F.conv2d(x.double(), weight.double(), bias.double()))
        torch.testing.assert_close(partition(x).double(), wanted, rtol=1e-5, atol=1e-5)


def test_other_values_than_the_layers_are_an_error() -> None:
    """oneDNN Graph has no `approximate`, and TorchScript drops it."""
    weight, bias = layer()
    with pytest.raises(ValueError, match="differs by"):
        Partition(lambda x: F.gelu(F.conv2d(x, weight, bias), approximate="tanh"), (LAST,))


def test_more_than_a_partition_is_an_error() -> None:
    weight, bias = layer()
    with pytest.raises(ValueError, match="leaves parts to others"):
        Partition(lambda x: F.conv2d(x, weight, bias).sin(), (LAST,))


def test_state_of_torch_stays() -> None:
    weight, bias = layer()
    state, before = torch.get_rng_state(), torch.jit.onednn_fusion_enabled()
    for enabled in (True, False):
        torch.jit.enable_onednn_fusion(enabled)
        Partition(lambda x: F.conv2d(x, weight, bias), (LAST,))
        assert torch.jit.onednn_fusion_enabled() == enabled
    torch.jit.enable_onednn_fusion(before)
    assert torch.equal(torch.get_rng_state(), state)


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize(
    "mode",
    [
        lambda: torch.inference_mode(),
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        lambda: torch.device("meta"),
        lambda: default_dtype(torch.float64),
    ],
)
def test_what_a_partition_is_made_in_does_not_matter(mode: Callable[[], AbstractContextManager[Any]]) -> None:
    weight, bias = layer()
    x = picture(2, 8, 6, 5)
    with mode():
        partition = Partition(lambda x: F.relu(F.conv2d(x, weight, bias)), (LAST,))
    got, wanted = partition(x), F.relu(F.conv2d(x.double(), weight.double(), bias.double()))
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-5)


def test_generated_code_takes_a_partition_once() -> None:
    weight, bias = layer()
    partition = Partition(lambda x: F.conv2d(x, weight, bias), (LAST,))
    keys = {offer_partition("layer", partition) for _ in range(2)}
    assert len(keys) == 2
    for key in keys:
        assert take_partition(key) is partition
        with pytest.raises(KeyError, match="compile the model again"):
            take_partition(key)
