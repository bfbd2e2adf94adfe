"""Pictures of any size on a GPU, rotary embeddings and steps of an optimizer with dynamic sizes, sums at one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytestmark = pytest.mark.gpu
Native = Callable[[], int]

SIZES = ((2, 3, 9, 10), (5, 7, 33, 37), (3, 4, 64, 66), (2, 8, 129, 255))


def rotary(x: Tensor) -> Tensor:
    x = x.flatten(2)
    width = x.shape[-1] // 2 * 2
    first, second = x[..., : width // 2], x[..., width // 2 : width]
    angle = torch.arange(x.shape[1], device=x.device)[:, None] * 0.25
    return torch.cat([first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()], -1)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "nearest": lambda x: F.interpolate(x, scale_factor=2, mode="nearest") * 2,
    "nearest by three": lambda x: F.interpolate(x.relu(), scale_factor=(3.0, 1.0), mode="nearest"),
    "nearest to a size": lambda x: F.interpolate(x, size=(x.shape[2] * 2, x.shape[3] * 4), mode="nearest") + 1,
    "bilinear": lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear") * 2,
    "bicubic": lambda x: F.interpolate(x, scale_factor=2.0, mode="bicubic") * 2,
    "zero padding": lambda x: F.pad(x, (1, 2, 3, 1)) * 2,
    "reflected": lambda x: F.pad(x, (2, 2, 1, 3), mode="reflect") + 1,
    "replicated": lambda x: F.pad(x, (2, 1, 1, 3), mode="replicate").exp(),
    "rolled": lambda x: x.roll((1, -3), (2, 3)) - x,
    "average pool": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "average pool of two": lambda x: F.avg_pool2d(x, 2),
    "max pool": lambda x: F.max_pool2d(x, 3, 2, 1),
    "unfolded": lambda x: F.unfold(x, 3, padding=1),
    "rotary": rotary,
}


def operand(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator("cuda").manual_seed(seed), device="cuda")


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["first", "last"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_pictures_and_their_gradients(name: str, layout: torch.memory_format) -> None:
    function = FUNCTIONS[name]
    compiled = torch.compile(function, dynamic=True)
    for number, shape in enumerate(SIZES):
        x = operand(shape, number)
        found: list[Any] = []
        # Eager takes the channels first: its gradient of an average of padded pictures is wrong with the channels last
        # (pytorch issue 188344, of torch before 2.14).
        for run, given in ((compiled, x.to(memory_format=layout)), (function, x)):
            leaf = given.clone(memory_format=torch.preserve_format).requires_grad_()
            y = run(leaf)
            (y * y).sum().backward()
            found.append((y.detach(), leaf.grad))
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_old_values_of_dynamic_sizes(native: Native, dtype: torch.dtype) -> None:
    def step(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
        before = p * 2
        m.lerp_(g, 0.125)
        v.mul_(0.5).addcmul_(g, g, value=0.25)
        p.addcdiv_(m, v.sqrt() + 1, value=-0.5)
        return before

    compiled = torch.compile(step, dynamic=True)
    for rows, columns in ((37, 1003), (64, 128), (5, 40_961)):
        operands = [operand((rows, columns), seed).abs().to(dtype) for seed in range(4)]
        own = [each.clone() for each in operands]
        # bfloat16 is rounded after each operation in eager, once here.
        near = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-6}
        torch.testing.assert_close(compiled(*own), step(*operands), **near)
        for found, wanted in zip(own, operands, strict=True):
            torch.testing.assert_close(found, wanted, **near)
    assert native() >= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("texts", "width"), [((16, 128), 768), ((3, 7), 33), ((4, 509), 8)], ids=str)
def test_embeddings_of_one_type(native: Native, texts: tuple[int, int], width: int, dtype: torch.dtype) -> None:
    """Of all rows of gradients, small integers, the sum is exact."""
    rows = torch.randint(-2, 3, (*texts, width), device="cuda").to(dtype)

    def learned(weight: Tensor) -> Tensor:
        types = torch.ones(texts, dtype=torch.int64, device="cuda")
        return (F.embedding(types, weight) * rows).sum()

    weight = torch.zeros(3, width, dtype=dtype, device="cuda", requires_grad=True)
    torch.compile(learned, dynamic=False)(weight).backward()
    wanted = torch.zeros(3, width, dtype=torch.float64, device="cuda")
    wanted[1] = rows.double().sum((0, 1))
    assert torch.equal(weight.grad, wanted.to(dtype))
    assert native() >= 1
