"""Elementwise kernels that differ in their length alone share an artifact; no other kernel is touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from halide_backend import pipeline
from halide_backend.build import artifacts

Check = Callable[..., dict[str, Any]]
#: Two that are not made of blocks, three of small blocks, three of large ones.
LENGTHS = (7, 70001, 64, 128, 192, 1024, 2048, 65536)
KERNELS = 4


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The different kernel texts that are asked for."""
    found: set[str] = set()

    def get_or_compile(text: str, *rest: Any, **named: Any) -> Any:
        found.add(text)
        return artifacts.get_or_compile(text, *rest, **named)

    monkeypatch.setattr(pipeline, "get_or_compile", get_or_compile)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int8], ids=str)
def test_one_kernel_for_each_kind_of_length(check: Check, texts: set[str], dtype: torch.dtype) -> None:
    def update(*parameters: Tensor) -> None:
        for p in parameters:
            p.mul_(3).add_(p.abs())

    check(update, *(torch.randint(-9, 9, (n,)).to(dtype) for n in LENGTHS))
    assert len(texts) == KERNELS


def test_optimizer_step(check: Check, texts: set[str]) -> None:
    """The outputs are the inputs' memory, beside scalars that every parameter has one of."""

    def step(rate: Tensor, *tensors: Tensor) -> None:
        for p, g, m in zip(tensors[::3], tensors[1::3], tensors[2::3]):
            m.lerp_(g, 0.1)
            p.sub_(m * rate / (m.abs() + 1e-8))

    check(step, torch.tensor(0.01), *(torch.randn(n) for n in LENGTHS for _ in range(3)))
    assert len(texts) == KERNELS


def test_shapes_of_one_length_are_one(check: Check, texts: set[str]) -> None:
    check(lambda *x: [a.sin() * 2 for a in x], torch.randn(64, 32), torch.randn(32, 64), torch.randn(2, 8, 64))
    assert len(texts) == 1
    assert "n0" in texts.pop()


def test_a_length_that_stands_alone_is_compiled_for_it(check: Check, texts: set[str]) -> None:
    check(lambda x, y: (x.sin() * 2, y.sin() * 2), torch.randn(1024), torch.randn(1000))
    assert len(texts) == 2
    assert not any("n0" in text for text in texts)


#: Functions of a vector whose kernels must know its length, or do not go through it in order.
KEPT: dict[str, Callable[[Tensor], Tensor]] = {
    "a position": lambda x: x + torch.arange(len(x), 0, -1),
    "the last element": lambda x: x - x[-1],
    "a view": lambda x: x.repeat(2)[1 : len(x) + 1] * 2,
    "a stride": lambda x: x.repeat(3)[::3] * 2,
    "flipped": lambda x: x.flip(0) + 1,
    "reduced": lambda x: x / x.sum(),
    "looked up": lambda x: x[x.abs().long().clamp(max=len(x) - 1)],
}


@pytest.mark.parametrize("name", KEPT)
def test_other_kernels_of_several_lengths_are_right(check: Check, name: str) -> None:
    def each(*vectors: Tensor) -> list[Tensor]:
        return [KEPT[name](x) for x in vectors]

    check(each, *(torch.rand(n) + 0.5 for n in (64, 128, 1024, 2048)), tolerance=1e-4)
