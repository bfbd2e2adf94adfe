"""Kernels whose text is known when a graph is lowered are built from then on, and are those that the code loads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from halide_backend import pipeline
from halide_backend.build import artifacts
from halide_backend.graph_passes import attention_call
from halide_backend.inspection.compiled import compile_for


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of the kernels that are built ahead."""
    texts: list[str] = []
    present = pipeline.get_or_compile

    def noted(text: str, *arguments: Any, **named: Any) -> artifacts.Build:
        if named.get("ahead"):
            texts.append(text)
        return present(text, *arguments, **named)

    monkeypatch.setattr(pipeline, "get_or_compile", noted)
    artifacts._memory.ahead.clear()
    return texts


def gradients(function: Callable[..., Any], *given: torch.Tensor, **options: Any) -> list[str]:
    """The code of forward and backward graph, which has been run."""
    compiled = compile_for("halide_backend", function, options=options)
    compiled(*given).square().sum().backward()
    assert len(compiled.codes) == 2
    return compiled.codes


def test_attention_and_its_gradients(ahead: list[str]) -> None:
    attention_call._kernels.clear()
    given = [torch.randn(2, 3, 41, 32).requires_grad_() for _ in range(3)]
    gradients(F.scaled_dot_product_attention, *given, **{"halide_backend.attention": "halide"})
    assert len(ahead) == 2 and "attend(" in ahead[0] and "differentiate(" in ahead[1]
    assert not artifacts._memory.ahead, "the kernels that ran are others"


def test_convolutions_and_their_gradients(ahead: list[str]) -> None:
    codes = gradients(nn.Conv2d(32, 32, 3, padding=1), torch.randn(2, 32, 13, 18).requires_grad_())
    assert len(ahead) == 2 and all(text in code for text, code in zip(ahead, codes, strict=True))
    assert not artifacts._memory.ahead, "the kernels that ran are others"
