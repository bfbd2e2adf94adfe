"""Layers of frozen graphs that oneDNN compiled once: values against float64, and which code ran."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._inductor import config
from torch._inductor.codecache import PyCodeCache

from halide_backend import config as own_config
from halide_backend.inspection.compiled import Compiled, compile_for
from halide_backend.products.choice import Choice
from halide_backend.products.partition import Partition

CALLS = re.compile(r"= onednn_(\w+?)_\d+\(")
OPERATOR = re.compile(r" torch\.ops\.mkldnn\._(\w+)\.\w+\(")
BOUND = 2e-6


@pytest.fixture(autouse=True)
def filters_are_onednns() -> Iterator[None]:
    """Those of 3 x 3, too."""
    with own_config.patch(winograd=False):
        yield


class Layer(nn.Module):
    """What follows a convolution, `after`, of its result and its input."""

    def __init__(self, after: Any, **options: Any) -> None:
        super().__init__()
        self.after = after
        self.filter = nn.Conv2d(16, 16, **{"kernel_size": 3, "padding": 1, **options})

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.after(self.filter(x), x)
        return result


def check(model: nn.Module, x: Tensor, backend: str = "halide_backend") -> Compiled:
    """The frozen `model` of x against float64, relative to its largest value."""
    model = model.eval()
    wanted = copy.deepcopy(model).double()(x.double())
    with config.patch(freezing=True), torch.no_grad():
        compiled = compile_for(backend, model)
        for _ in range(2):
            got = compiled(x)
            assert got.shape == wanted.shape
            assert float((got - wanted).abs().max() / wanted.abs().max()) < BOUND
    return compiled


def picture(side: int = 12) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(2, 16, side, side)


def test_inductor_packs_what_is_replaced() -> None:
    """So that the tests below say something."""
    (code,) = check(Layer(lambda y, x: F.relu(y)), picture(), "cpp").codes
    assert OPERATOR.findall(code) == ["convolution_pointwise"]


ACTIVATIONS: dict[str, Any] = {
    "none": lambda y, x: y,
    "relu": lambda y, x: F.relu(y),
    "sigmoid": lambda y, x: torch.sigmoid(y),
    "tanh": lambda y, x: torch.tanh(y),
    "silu": lambda y, x: F.silu(y),
    "gelu": lambda y, x: F.gelu(y),
    "relu6": lambda y, x: F.hardtanh(y, 0.0, 6.0),
    "hardtanh": lambda y, x: F.hardtanh(y, -0.5, 0.25),
    "leaky": lambda y, x: F.leaky_relu(y, 0.3),
    "hardswish": lambda y, x: F.hardswish(y),
}


@pytest.mark.parametrize("options", [{}, {"groups": 4, "bias": False}, {"stride": 2, "dilation": 2}])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_convolution_and_its_activation_are_one_call(activation: str, options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    (code,) = check(Layer(ACTIVATIONS[activation], **options), picture()).codes
    assert CALLS.findall(code) == ["convolution"] and not OPERATOR.search(code)


def test_few_filters() -> None:
    """Their bias is no constant: Inductor makes a loop of up to 8 numbers."""
    torch.manual_seed(1)
    (code,) = check(nn.Conv2d(16, 4, 3), picture()).codes
    assert OPERATOR.findall(code) == ["convolution_pointwise"]


def test_what_onednn_graph_does_not_have_is_the_operators() -> None:
    """TorchScript takes a GELU by tanh for the other one."""
    torch.manual_seed(1)
    (code,) = check(Layer(lambda y, x: F.gelu(y, approximate="tanh")), picture()).codes
    assert OPERATOR.findall(code) == ["convolution_pointwise"] and not CALLS.search(code)


@pytest.mark.parametrize("after", [lambda y, x: y + x.relu(), lambda y, x: F.relu(y + x.relu())])
def test_small_results_are_added_in_the_same_call(after: Any) -> None:
    torch.manual_seed(1)
    (code,) = check(Layer(after), picture()).codes
    assert CALLS.findall(code) == ["convolution_add"]
    (code,) = check(Layer(after), picture(64)).codes
    assert len(OPERATOR.findall(code)) == 1 and not CALLS.search(code)


def test_sums_with_other_factors_stay_right() -> None:
    torch.manual_seed(1)
    check(Layer(lambda y, x: torch.add(y, x.relu(), alpha=0.5)), picture())


def test_small_linear_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Choice, "library", lambda self, product: "onednn")
    monkeypatch.setattr(Choice, "may_be_onednn", lambda self: True)
    torch.manual_seed(1)
    for bias in (True, False):
        (code,) = check(nn.Linear(48, 40, bias=bias), torch.randn(8, 48)).codes
        assert CALLS.findall(code) == ["linear"]
    (code,) = check(nn.Linear(512, 512), torch.randn(256, 512)).codes
    assert OPERATOR.findall(code) == ["linear_pointwise"] and not CALLS.search(code)


def test_packed_weights_are_not_kept_besides(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, load = [], PyCodeCache.load_by_key_path

    def record(*arguments: Any, **options: Any) -> Any:
        loaded.append(load(*arguments, **options))
        return loaded[-1]

    monkeypatch.setattr(PyCodeCache, "load_by_key_path", record)
    torch.manual_seed(1)
    check(Layer(ACTIVATIONS["relu"]), picture())
    values = [value for module in loaded for value in vars(module).values()]
    assert any(isinstance(value, Partition) for value in values)
    assert not any(getattr(value, "is_mkldnn", False) for value in values)


def test_calls_with_other_numbers_of_threads() -> None:
    torch.manual_seed(1)
    model, x = Layer(ACTIVATIONS["silu"]), picture()
    compiled = check(model, x)
    wanted, threads = copy.deepcopy(model).double()(x.double()), torch.get_num_threads()
    try:
        for number in (2, 1, 3):
            torch.set_num_threads(number)
            with torch.no_grad():
                assert float((compiled(x) - wanted).abs().max() / wanted.abs().max()) < BOUND
    finally:
        torch.set_num_threads(threads)


class FullPrecision(Layer):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return super().forward(x)


@pytest.mark.parametrize("mode", [torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16)])
def test_what_a_call_is_made_in_does_not_matter(mode: Any) -> None:
    """TorchScript computes in bfloat16 where autocast is on; in generated code it is off."""
    torch.manual_seed(1)
    model, x = FullPrecision(ACTIVATIONS["silu"]).eval(), picture()
    wanted = copy.deepcopy(model).double()(x.double())
    with config.patch(freezing=True), torch.no_grad():
        compiled = compile_for("halide_backend", model)
        with mode:
            results = [compiled(x) for _ in range(2)]
    for got in results:
        assert got.dtype == torch.float32
        assert float((got - wanted).abs().max() / wanted.abs().max()) < BOUND
    assert CALLS.findall(compiled.codes[0]) == ["convolution"]


def test_c_plus_plus_wrappers_call_the_operator() -> None:
    torch.manual_seed(1)
    with config.patch(cpp_wrapper=True):
        compiled = check(Layer(ACTIVATIONS["relu"]), picture())
    assert "mkldnn__convolution_pointwise" in "".join(compiled.codes) and not CALLS.search("".join(compiled.codes))


def test_without_onednn_graph_the_operator_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.jit, "enable_onednn_fusion", lambda enabled: None)
    torch.manual_seed(1)
    (code,) = check(Layer(ACTIVATIONS["tanh"]), picture(13)).codes
    assert OPERATOR.findall(code) == ["convolution_pointwise"] and not CALLS.search(code)


def test_dynamic_sizes_stay_right() -> None:
    torch.manual_seed(1)
    model = Layer(ACTIVATIONS["relu"]).eval()
    with config.patch(freezing=True), torch.no_grad():
        compiled = torch.compile(model, backend="halide_backend", dynamic=True)
        for side in (9, 12, 17):
            x = picture(side)
            wanted = copy.deepcopy(model).double()(x.double())
            assert float((compiled(x) - wanted).abs().max() / wanted.abs().max()) < BOUND
