"""Layouts around convolutions: which graphs keep contiguous pictures, and that values and strides are eager's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._inductor import config

from halide_backend import config as own_config
from halide_backend.inspection.compiled import Compiled, compile_for
from halide_backend.products.processor import Processor

_BACKWARD = torch.ops.aten.convolution_backward.default


@pytest.fixture(autouse=True)
def convolutions_are_onednns() -> Iterator[None]:
    """Those of 3 x 3, too, whose kernels take weights of any layout."""
    with own_config.patch(winograd=False):
        yield


def layers(channels: int, size: int, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Tensor]:
    """Two convolutions of 3 x 3 with something between them, and `size` x `size` pictures for them."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(16, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1, stride=2)
    )
    return model.to(dtype), torch.randn(2, 16, size, size, dtype=dtype)


def inference(model: nn.Module, **options: Any) -> Compiled:
    def infer(x: Tensor) -> Tensor:
        with torch.no_grad():
            return model(x) * 2

    return compile_for("halide_backend", infer, options=options)


def exact(model: nn.Module, x: Tensor) -> Tensor:
    found: Tensor = model.double()(x.double()).detach() * 2
    model.to(x.dtype)
    return found


def copies_weights(compiled: Compiled) -> bool:
    """Whether a weight of 3 x 3 gets another order of its elements."""
    (code,) = compiled.codes
    return bool(re.search(r"empty_strided_cpu\(\(\d+, \d+, 3, 3\)", code))


def check(compiled: Compiled, model: nn.Module, x: Tensor) -> Tensor:
    truth, found = exact(model, x), compiled(x)
    torch.testing.assert_close(found.double(), truth, rtol=0, atol=2e-6 * float(truth.abs().max()))
    return found


def test_large_weights_are_not_copied() -> None:
    model, x = layers(128, 8)
    compiled = inference(model)
    assert check(compiled, model, x).is_contiguous()
    assert not copies_weights(compiled)
    assert compiled.codes[0].count("extern_kernels.convolution(") == 2


@pytest.mark.parametrize("features", [("amx_bf16", "avx512_bf16", "avx512f"), ("avx512_bf16", "avx512f")], ids=len)
def test_a_matrix_unit_gets_bfloat16_in_channels_last(
    features: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ResNet-18 of 4 pictures in bfloat16 was at 0.90 of C++'s speed on a processor with AMX."""
    monkeypatch.setattr(Processor, "host", staticmethod(lambda: Processor("GenuineIntel", 6, "", features)))
    for dtype in (torch.float32, torch.bfloat16):
        model, x = layers(128, 8, dtype)
        with own_config.patch(bfloat16_products="bfloat16"):
            compiled = inference(model)
            found = compiled(x)
        truth = exact(model, x)
        bound = 0.02 if dtype == torch.bfloat16 else 2e-6
        torch.testing.assert_close(found.double(), truth, rtol=0, atol=bound * float(truth.abs().max()))
        assert copies_weights(compiled) == (dtype == torch.bfloat16 and "amx_bf16" in features)
        # A training step copies gradients of weights, too, and keeps contiguous pictures.
        with own_config.patch(bfloat16_products="bfloat16"):
            trained = compile_for("halide_backend", model)
            trained(x).float().sum().backward()
        assert not re.search(r"empty_strided_cpu\(\(\d+, \d+, 3, 3\)", "".join(trained.codes))


def test_for_large_pictures_weights_are_copied() -> None:
    model, x = layers(128, 64)
    compiled = inference(model)
    check(compiled, model, x)
    assert copies_weights(compiled)


def test_weights_in_channels_last_keep_it() -> None:
    model, x = layers(128, 8)
    model = model.to(memory_format=torch.channels_last)
    compiled = inference(model)
    check(compiled, model, x)
    assert not copies_weights(compiled)
    # Pictures are brought into that layout: `convolution` writes it.
    assert re.search(r"assert_size_stride\(buf\d+, \(2, 128, 8, 8\), \(8192, 1, 1024, 128\)", compiled.codes[0])


@pytest.mark.parametrize(
    "options", [{"force_layout_optimization": True}, {"max_autotune": True}, {"max_autotune_gemm": True}], ids=str
)
def test_what_somebody_asked_for_stays(options: dict[str, Any]) -> None:
    model, x = layers(128, 8)
    with config.patch(options):
        compiled = inference(model)
        check(compiled, model, x)
    assert copies_weights(compiled)


def test_packed_weights_stay_packed() -> None:
    model, x = layers(128, 8)
    with config.patch(freezing=True), torch.no_grad():  # outside, too: Inductor asks before it traces
        compiled = inference(model.eval())
        check(compiled, model, x)
    assert "mkldnn._convolution_pointwise" in compiled.codes[0]


def test_other_convolutions_of_the_same_graph() -> None:
    """One and three dimensions, without a batch, transposed, in groups, and one by one."""
    torch.manual_seed(0)
    large, one = nn.Conv2d(64, 256, 3, padding=1), nn.Conv2d(256, 64, 1)
    turned, grouped = nn.ConvTranspose2d(64, 32, 2, stride=2), nn.Conv2d(32, 64, 3, groups=4, dilation=2)
    line, space = nn.Conv1d(64, 16, 3), nn.Conv3d(1, 4, 3)
    parts = nn.ModuleList([large, one, turned, grouped, line, space])

    def call(x: Tensor) -> list[Tensor]:
        y = grouped(turned(torch.relu(one(large(x)))))
        return [y, large(x[0]), line(y.flatten(2)), space(y[:, :1, None].repeat(1, 1, 3, 1, 1)) + 1]

    x = torch.randn(2, 64, 5, 6)
    truth = [each.detach() for each in parts.double() and call(x.double())]
    parts.float()
    compiled = compile_for("halide_backend", call)
    with torch.no_grad():
        for value, expected in zip(compiled(x), truth, strict=True):
            torch.testing.assert_close(value.double(), expected, rtol=0, atol=3e-6 * float(expected.abs().max()))
    assert not copies_weights(compiled)


def test_sizes_that_may_change() -> None:
    model, _ = layers(128, 8)

    def infer(x: Tensor) -> Tensor:
        with torch.no_grad():
            return model(x) * 2

    compiled = compile_for("halide_backend", infer, dynamic=True)
    for size in (8, 11, 64):
        check(compiled, model, torch.randn(3, 16, size, size + 1))
    assert not copies_weights(compiled)


def test_training_step_has_gradients_in_the_layout_of_weights() -> None:
    model, x = layers(128, 8)
    truth = torch.autograd.grad((model.double()(x.double()) ** 2).mean(), list(model.parameters()))
    model.float()

    def step(x: Tensor) -> Tensor:
        return (model(x) ** 2).mean()

    compiled = compile_for("halide_backend", step)
    found = torch.autograd.grad(compiled(x), list(model.parameters()))
    for value, expected, parameter in zip(found, truth, model.parameters(), strict=True):
        assert value.stride() == parameter.stride()
        torch.testing.assert_close(value.double(), expected, rtol=0, atol=5e-6 * float(expected.abs().max()))


def depthwise_step(
    channels: int, dtype: torch.dtype, channels_last: tuple[bool, bool] = (True, True), **steps: Any
) -> tuple[Callable[..., list[Tensor]], list[Tensor], list[Tensor]]:
    """A function with the backward step of filters of 3 x 3, its operands, and the exact gradients."""
    torch.manual_seed(0)
    x, weight = torch.randn(2, channels, 9, 11).to(dtype), torch.randn(channels, 1, 3, 3).to(dtype)
    operands = [each.double().requires_grad_() for each in (x, weight)]
    result = F.conv2d(operands[0], operands[1], groups=channels, **steps)
    gradient = torch.randn(result.shape).to(dtype)
    truth = torch.autograd.grad(result, operands, gradient.double())
    gradient, x = (
        each.contiguous(memory_format=torch.channels_last) if wanted else each
        for each, wanted in zip((gradient, x), channels_last, strict=True)
    )
    stride, padding, dilation = (
        [steps.get(name, default)] * 2 for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))
    )

    def step(gradient: Tensor, x: Tensor, weight: Tensor) -> list[Tensor]:
        rest = (stride, padding, dilation, False, [0, 0], channels, [True, True, True])
        of_x, of_weight, of_bias = _BACKWARD(gradient, x, weight, [channels], *rest)
        return [of_x + 1, of_weight, of_bias]

    return step, [gradient, x, weight], [truth[0] + 1, truth[1], gradient.double().sum((0, 2, 3))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("steps", [{"padding": 1}, {"stride": 2}, {"padding": 2, "dilation": 2}], ids=str)
def test_depthwise_backward_step_is_of_channels_last(dtype: torch.dtype, steps: dict[str, int]) -> None:
    step, operands, truth = depthwise_step(24, dtype, **steps)
    # Elsewhere bfloat16 may be computed in float32.
    compiled = compile_for("halide_backend", step, options={"halide_backend.bfloat16_products": "bfloat16"})
    found = compiled(*operands)
    tolerance = 5e-6 if dtype == torch.float32 else 0.02
    for value, expected in zip(found, truth, strict=True):
        torch.testing.assert_close(value.double(), expected, rtol=0, atol=tolerance * float(expected.abs().max()))
    assert found[0].is_contiguous(memory_format=torch.channels_last)
    (code,) = compiled.codes
    # The one kernel is the addition: no operand is copied.
    assert code.count("= load_kernel(") == 1
    assert "torch.ops.aten.convolution_backward.default(arg" in code


@pytest.mark.parametrize("channels_last", [(False, True), (True, False), (False, False)], ids=str)
def test_depthwise_backward_step_of_mixed_layouts(channels_last: tuple[bool, bool]) -> None:
    step, operands, truth = depthwise_step(24, torch.float32, channels_last, padding=1)
    for value, expected in zip(compile_for("halide_backend", step)(*operands), truth, strict=True):
        torch.testing.assert_close(value.double(), expected, rtol=0, atol=5e-6 * float(expected.abs().max()))


def test_generated_cpp_calls_the_same_functions() -> None:
    """One compilation by g++: a training step whose weights are large, and a depthwise filter in channels-last."""
    model, x = layers(128, 8)
    step, operands, truth = depthwise_step(24, torch.float32, padding=1)

    def both(x: Tensor, *operands: Tensor) -> list[Tensor]:
        with torch.no_grad():
            return [model(x) * 2, *step(*operands)]

    compiled = compile_for("halide_backend", both, options={"cpp_wrapper": True})
    for value, expected in zip(compiled(x, *operands), [exact(model, x), *truth], strict=True):
        torch.testing.assert_close(value.double(), expected, rtol=0, atol=5e-6 * float(expected.abs().max()))
    (code,) = compiled.codes
    assert code.count("aoti_torch_cpu_convolution(") == 2
