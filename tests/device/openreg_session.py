"""torch_openreg, the device with which PyTorch tests PrivateUse1, compiled for by this backend. Its memory can be
accessed only between two calls to its library; with the argument "closed" launches are not enclosed in them.

Prints a JSON object: for each case its largest error, relative to the largest number on the CPU, and its kernels.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import torch_openreg
from torch import Tensor, nn

import halide_backend

NAME = "openreg"
library = ctypes.CDLL(str(Path(torch_openreg.__file__).parent / "lib/libopenreg.so"))


@contextmanager
def opened(*arguments: Any) -> Iterator[None]:
    places = [ctypes.c_void_p(each.untyped_storage().data_ptr()) for each in arguments if isinstance(each, Tensor)]
    library.orDeviceSynchronize()
    for place in places:
        assert library.orMemoryUnprotect(place) == 0
    try:
        yield
    finally:
        for place in places:
            assert library.orMemoryProtect(place) == 0


def pointwise_and_reductions(x: Tensor) -> tuple[Tensor, ...]:
    return torch.softmax(F.gelu(x), -1), torch.sin(x).t().sum(1), x.amax(0) + 1


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.expand, self.contract = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norm(x)
        attention = torch.softmax(hidden @ hidden.transpose(1, 2) * 32**-0.5, -1)
        return x + self.contract(F.gelu(self.expand(attention @ hidden)))


def static(device: str) -> list[Tensor]:
    x = torch.randn(37, 65).to(device)
    return list(
        (torch.compile(pointwise_and_reductions, dynamic=False) if device == NAME else pointwise_and_reductions)(x)
    )


def dynamic(device: str) -> list[Tensor]:
    function = torch.compile(pointwise_and_reductions, dynamic=True) if device == NAME else pointwise_and_reductions
    return [result for size in ((5, 7), (12, 33), (3, 4000)) for result in function(torch.randn(size).to(device))]


def training_step(device: str) -> list[Tensor]:
    block, x = Block().to(device), torch.randn(2, 9, 32).to(device)

    def loss_of(x: Tensor) -> Tensor:
        return block(x).square().mean()

    loss = (torch.compile(loss_of) if device == NAME else loss_of)(x)
    loss.backward()
    return [loss.detach(), *(parameter.grad for parameter in block.parameters())]


def outcome(case: Callable[[str], list[Tensor]]) -> dict[str, Any]:
    halide_backend.reset_stats()
    torch._dynamo.reset()
    results = []
    for device in ("cpu", NAME):
        torch.manual_seed(0)
        results.append(case(device))
        assert {result.device.type for result in results[-1]} == {device}
    stats = halide_backend.stats()
    errors = [float((b.cpu() - a).abs().max() / a.abs().max()) for a, b in zip(*results, strict=True)]
    return {"error": max(errors), "native": stats["native_kernels"], "delegated": stats["delegated_kernels"]}


def main() -> None:
    around = None if "closed" in sys.argv else opened
    halide_backend.register_device(NAME, delegate=None, around_launch=around)
    print("\n" + json.dumps({case.__name__: outcome(case) for case in (static, dynamic, training_step)}))


if __name__ == "__main__":
    main()
