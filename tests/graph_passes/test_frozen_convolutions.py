"""Convolutions of frozen graphs that are not left to oneDNN as they are: values against float64, and which code ran."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halide_backend.inspection.compiled import Compiled, compile_for

CALL = "mkldnn._convolution_pointwise"
BOUND = 2e-6
#: Calls of convolutions that oneDNN compiled, or of torch's operator.
LAYERS = re.compile(r"= (?:onednn_convolution_\w+\(|torch\.ops\.mkldnn\._convolution_pointwise)")
#: Calls of this backend's kernels for depthwise filters.
DEPTHWISE = re.compile(r"^ +halide_depthwise_\d+\(", re.MULTILINE)
#: A kernel that pads.
PADS = re.compile(r"halide_fused\w*constant_pad")


class Padded(nn.Module):
    """A convolution of 1 x 1, padding, a depthwise filter, and an activation."""

    def __init__(self, sides: tuple[int, ...], activation: nn.Module | None = None, **options: Any) -> None:
        super().__init__()
        self.sides = sides
        self.first = nn.Conv2d(48, 48, 1)
        self.filter = nn.Conv2d(48, 48, **{"groups": 48, **options})
        self.activation = activation or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        filtered: Tensor = self.activation(self.filter(F.pad(self.first(x), self.sides)))
        return filtered


class SqueezeAndExcite(nn.Module):
    def __init__(self, channels: int, fewer: int, inner: nn.Module, outer: nn.Module, bias: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, fewer, 1, bias=bias),
            inner,
            nn.Conv2d(fewer, channels, 1, bias=bias),
            outer,
        )

    def forward(self, x: Tensor) -> Tensor:
        scaled: Tensor = x * self.layers(x)
        return scaled


def check(model: nn.Module, x: Tensor, backend: str = "halide_backend") -> Compiled:
    """The frozen `model` of x against float64, relative to its largest value."""
    model = model.eval()
    wanted = copy.deepcopy(model).double()(x.double())
    with torch._inductor.config.patch(freezing=True), torch.no_grad():
        compiled = compile_for(backend, model)
        got = compiled(x)
    assert got.shape == wanted.shape
    assert float((got - wanted).abs().max() / wanted.abs().max()) < BOUND
    return compiled


def picture(channels: int = 48, height: int = 17, width: int = 20, pictures: int = 2) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(pictures, channels, height, width)


FOLDED: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "behind, stride 2": ((0, 1, 0, 1), {"kernel_size": 3, "stride": 2}),
    "more behind": ((1, 2, 1, 2), {"kernel_size": 5, "stride": 2}),
    "before": ((1, 0, 1, 0), {"kernel_size": 3}),
    "behind along one axis": ((0, 1, 0, 0), {"kernel_size": 3, "stride": (1, 2)}),
    "before and behind": ((2, 1, 0, 1), {"kernel_size": (3, 4), "stride": (3, 1)}),
    "both sides alike": ((1, 1, 2, 2), {"kernel_size": 3}),
    "besides padding of the filter's own": ((0, 1, 1, 0), {"kernel_size": 5, "padding": (1, 2)}),
    "without a bias": ((0, 1, 0, 1), {"kernel_size": 3, "bias": False}),
}


@pytest.mark.parametrize("activation", [None, nn.SiLU(), nn.ReLU()])
@pytest.mark.parametrize("case", FOLDED)
def test_padding_is_in_the_weights(case: str, activation: nn.Module | None) -> None:
    sides, options = FOLDED[case]
    torch.manual_seed(1)
    (code,) = check(Padded(sides, activation, **options), picture()).codes
    assert "with_padding_of" in code and not PADS.search(code)
    assert len(LAYERS.findall(code)) == 1 and len(DEPTHWISE.findall(code)) == 1


def test_padding_in_three_quarters_of_the_products_stays() -> None:
    (code,) = check(Padded((0, 2, 0, 2), kernel_size=2), picture()).codes
    assert "with_padding_of" not in code and PADS.search(code)


def test_padding_of_other_filters_stays() -> None:
    for options in ({"groups": 1}, {"dilation": 2}, {"groups": 24}):
        (code,) = check(Padded((0, 1, 0, 1), kernel_size=3, **options), picture()).codes
        assert "with_padding_of" not in code and PADS.search(code)


def test_padding_of_what_a_loop_computes_stays_in_it() -> None:
    class Loop(Padded):
        def forward(self, x: Tensor) -> Tensor:
            filtered: Tensor = self.filter(F.pad(self.first(x).sin(), self.sides))
            return filtered

    (code,) = check(Loop((0, 1, 0, 1), kernel_size=3), picture()).codes
    assert "with_padding_of" not in code and PADS.search(code)


def test_padding_with_something_else_than_zeros_stays() -> None:
    class Ones(Padded):
        def forward(self, x: Tensor) -> Tensor:
            filtered: Tensor = self.filter(F.pad(self.first(x), self.sides, value=1.0))
            return filtered

    (code,) = check(Ones((0, 1, 0, 1), kernel_size=3), picture()).codes
    assert "with_padding_of" not in code


def test_a_padded_picture_that_something_else_reads_stays() -> None:
    class Twice(Padded):
        def forward(self, x: Tensor) -> Tensor:
            padded = F.pad(self.first(x), self.sides)
            both: Tensor = self.filter(padded) + padded[:, :, 2:, 2:].sin()
            return both

    (code,) = check(Twice((0, 1, 0, 1), kernel_size=3), picture()).codes
    assert "with_padding_of" not in code


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("inner", "outer"), [(nn.SiLU(), nn.Sigmoid()), (nn.ReLU(), nn.Sigmoid()), (nn.Identity(), nn.Identity())]
)
def test_squeeze_and_excitation_calls_no_library(inner: nn.Module, outer: nn.Module, bias: bool) -> None:
    torch.manual_seed(1)
    compiled = check(SqueezeAndExcite(48, 5, inner, outer, bias), picture())
    assert not LAYERS.search(compiled.codes[0])


def test_many_products_are_a_librarys() -> None:
    torch.manual_seed(1)
    layers = SqueezeAndExcite(1024, 512, nn.SiLU(), nn.Sigmoid(), True)
    (code,) = check(layers, picture(1024, 3, 3)).codes
    assert len(LAYERS.findall(code)) == 2


def test_inductors_own_backend_calls_the_library() -> None:
    """Its lowering is wrapped for the process; it must not notice."""
    torch.manual_seed(1)
    layers = SqueezeAndExcite(48, 5, nn.SiLU(), nn.Sigmoid(), True)
    check(layers, picture())
    (code,) = check(layers, picture(), "cpp").codes
    assert code.count(f"{CALL}.default(") == 2
    (code,) = check(Padded((0, 1, 0, 1), kernel_size=3, stride=2), picture(), "cpp").codes
    assert "with_padding_of" not in code


class Audio(nn.Module):
    """A filter along one dimension, and a layer whose weights Inductor packs."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.filter, self.layer = nn.Conv1d(24, 32, 3, **options), nn.Linear(32, 64)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layer(F.gelu(self.filter(x)).permute(0, 2, 1))
        return result


@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1}, {"dilation": 2, "groups": 8, "bias": False}])
def test_filters_along_one_dimension_are_packed(options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    (code,) = check(Audio(**options), torch.randn(3, 24, 60)).codes
    assert len(LAYERS.findall(code)) == 1 and "extern_kernels.convolution(" not in code


def test_filters_along_one_dimension_of_a_graph_that_the_cache_may_keep_stay() -> None:
    torch.manual_seed(1)
    (code,) = check(nn.Conv1d(24, 32, 3), torch.randn(3, 24, 60)).codes
    assert not LAYERS.search(code) and "extern_kernels.convolution(" in code
