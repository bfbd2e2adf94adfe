"""Parts of a concatenation that lie across its result are stored by kernels of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from halide_backend.device_type import CPU
from halide_backend.graph_passes import transposed_parts
from halide_backend.inspection.compiled import compile_for

LAST = torch.channels_last

CASES: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...], bool]] = {
    "below": (lambda x, y: torch.cat((x.t(), y), 0), (torch.randn(70, 64), torch.randn(64, 70)), True),
    "beside, computed": (lambda x, y: torch.cat((y, x.t() + 1), 1), (torch.randn(70, 64), torch.randn(64, 70)), True),
    "negative dimension": (
        lambda x, y: torch.cat((x.mT, y), -2),
        (torch.randn(2, 70, 64), torch.randn(2, 64, 70)),
        True,
    ),
    "as it lies": (lambda x, y: torch.cat((x, y), 0), (torch.randn(64, 70), torch.randn(64, 70)), False),
    "short": (lambda x, y: torch.cat((x.t(), y), 0), (torch.randn(8, 64), torch.randn(64, 8)), False),
    "a small part": (lambda x, y: torch.cat((x.t(), y), 0), (torch.randn(70, 40), torch.randn(640, 70)), False),
    "channels last": (
        lambda x, y: torch.cat((x, y.relu()), 1),
        tuple(torch.randn(2, 32, 40, 40).contiguous(memory_format=LAST) for _ in range(2)),
        False,
    ),
}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether each concatenation was lowered as parts, on a CPU, of any size."""
    found: list[bool] = []

    def noted(kind: object, lower: Callable[..., object], *rest: object) -> None:
        def lowered(*arguments: object, **options: object) -> object:
            result = lower(*arguments, **options)
            found.append(result is not None)
            return result

        real(kind, lowered, CPU)

    real = transposed_parts.prefer
    from torch._inductor.lowering import lowerings

    before = lowerings[torch.ops.aten.cat.default]
    monkeypatch.setattr(transposed_parts, "prefer", noted)
    monkeypatch.setattr(transposed_parts, "_MANY", 1)
    transposed_parts.store_transposed_parts_apart.__wrapped__(CPU)
    yield found
    lowerings[torch.ops.aten.cat.default] = before


@pytest.mark.parametrize("case", CASES)
def test_parts(case: str, made: list[bool]) -> None:
    function, tensors, apart = CASES[case]
    with torch._inductor.config.patch(force_disable_caches=True):
        compiled = compile_for("halide_backend", function, dynamic=False)
        assert torch.equal(compiled(*tensors), function(*tensors))
    assert made == [apart]


def test_sizes_that_are_not_known_are_left_to_masks(made: list[bool]) -> None:
    x, y = torch.randn(70, 64), torch.randn(64, 70)
    with torch._inductor.config.patch(force_disable_caches=True):
        compiled = compile_for("halide_backend", lambda x, y: torch.cat((x.t(), y), 0), dynamic=True)
        assert torch.equal(compiled(x, y), torch.cat((x.t(), y), 0))
    assert made == [False]
