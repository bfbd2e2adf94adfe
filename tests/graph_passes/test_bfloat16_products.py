"""Products and convolutions of bfloat16 that are computed in float32: their values against float64, and what computed
them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from halide_backend import config
from halide_backend.graph_passes.bfloat16_products import compute_bfloat16_products
from halide_backend.inspection.compiled import Compiled, compile_for
from halide_backend.products import choice
from halide_backend.products.precision import float32_is_faster
from halide_backend.products.processor import Processor

#: Half a unit in the last place of bfloat16, and what sums in float32 add to it.
BOUND = 2**-8 * 1.01


def random(*sizes: int) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes))).bfloat16()


def compiled(function: Callable[..., Any], precision: str = "float32", **options: Any) -> Compiled:
    named = {"halide_backend.bfloat16_products": precision, **options}
    return compile_for("halide_backend", function, options=named)


def types_of_calls(callable_: Compiled) -> list[str]:
    """The types of what libraries compute, in order."""
    lines = [line.strip() for code in callable_.codes for line in code.splitlines()]
    made = {line.split(" = ")[0]: line for line in lines if "empty_strided" in line}
    results = [line.split("out=")[1].rstrip(")") for line in lines if "extern_kernels." in line and "out=" in line]
    return [made[result].rsplit("torch.", 1)[1].rstrip(")") for result in results]


def assert_near(got: Tensor, wanted: Tensor) -> None:
    """Each element is the exact one rounded, but for sums that cancel."""
    assert got.shape == wanted.shape and got.dtype == torch.bfloat16
    error = (got.double() - wanted).abs() - BOUND * wanted.abs()
    assert float(error.max()) < 1e-5 * float(wanted.abs().max()), float(error.max())


PRODUCTS: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "mm": (torch.mm, (random(33, 70), random(70, 41))),
    "linear": (F.linear, (random(33, 70), random(41, 70), random(41))),
    "addmm": (
        lambda c, a, b: torch.addmm(c, a, b.t(), beta=0.5, alpha=2),
        (random(33, 41), random(33, 70), random(41, 70)),
    ),
    "bmm": (torch.bmm, (random(3, 33, 70), random(3, 70, 41))),
    "baddbmm": (torch.baddbmm, (random(33, 41), random(3, 33, 70), random(3, 70, 41))),
    "transposed": (lambda a, b: a.t() @ b.t(), (random(70, 33), random(41, 70))),
    "batch transposed": (lambda a, b: a.transpose(1, 2) @ b, (random(3, 70, 33), random(3, 70, 41))),
    "columns": (lambda a, b: a[:, 3:53] @ b, (random(33, 70), random(50, 41))),
    "convolution": (lambda x, w, b: F.conv2d(x, w, b, 2, 1), (random(2, 8, 19, 17), random(12, 8, 3, 3), random(12))),
    "channels last": (
        lambda x, w: F.conv2d(x.to(memory_format=torch.channels_last), w),
        (random(2, 8, 19, 17), random(12, 8, 3, 3)),
    ),
    "groups": (lambda x, w: F.conv2d(x, w, groups=8, padding=2), (random(2, 8, 19, 17), random(8, 1, 5, 5))),
    "transposed convolution": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2),
        (random(2, 8, 9, 7), random(8, 6, 3, 3)),
    ),
    "one dimension": (lambda x, w: F.conv1d(x, w, padding=1), (random(2, 8, 50), random(12, 8, 3))),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_results_are_those_of_float64_rounded(name: str) -> None:
    function, arguments = PRODUCTS[name]
    callable_ = compiled(function)
    with torch.no_grad():
        assert_near(callable_(*arguments), function(*(each.double() for each in arguments)))
    text = "\n".join(callable_.codes)
    if convolves := "extern_kernels.convolution(" in text:
        assert "torch.float32)" in text  # its operands are converted; it allocates its result itself
    assert types_of_calls(callable_) == ([] if convolves else ["float32"])


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second, self.third = nn.Linear(70, 130), nn.Linear(70, 130), nn.Linear(130, 70)

    def forward(self, x: Tensor) -> Tensor:
        return self.third(torch.tanh(self.first(x)) * self.second(x)) + x


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.first, self.second = nn.Conv2d(4, 16, 3), nn.Conv2d(16, 16, 5, groups=16, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.second(torch.relu(self.first(x))))


@pytest.mark.parametrize(("make", "x"), [(Layers, random(65, 70)), (Pictures, random(2, 4, 20, 22))])
def test_training(make: Callable[[], nn.Module], x: Tensor) -> None:
    """Gradients are as near to float64's as those of torch's own products."""

    def gradients(model: nn.Module, run: Callable[..., Tensor], x: Tensor) -> list[Tensor]:
        given = x.clone().requires_grad_()
        run(given).square().sum().backward()
        assert given.grad is not None
        return [given.grad, *(p.grad for p in model.parameters() if p.grad is not None)]

    model = make().bfloat16()
    exact = make().bfloat16().double()
    wanted = gradients(exact, exact, x.double())
    own = make().bfloat16()
    errors = []
    for each, run in ((own, compiled(own)), (model, model)):
        found = gradients(each, run, x)
        errors.append([float((f.double() - w).norm() / w.norm()) for f, w in zip(found, wanted, strict=True)])
    assert all(ours < 1.2 * theirs + 2**-9 for ours, theirs in zip(*errors)), errors


def test_a_number_that_several_products_use_is_converted_once() -> None:
    """Also a weight that one of them uses as a transpose."""
    x, w = random(65, 70), random(70, 70)
    graph = make_fx(lambda x, w: (x @ w, x @ w.t(), torch.relu(x) @ w))(x, w)
    wanted = graph(x.double(), w.double())
    with config.patch(bfloat16_products="float32"):
        compute_bfloat16_products(graph)
    graph.graph.lint()
    kinds = [node.args[1] for node in graph.graph.nodes if node.target == torch.ops.prims.convert_element_type.default]
    assert (kinds.count(torch.float32), kinds.count(torch.bfloat16)) == (3, 3)
    for found, right in zip(graph(x, w), wanted, strict=True):
        assert_near(found, right)


def test_small_products_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    xeon = Processor("GenuineIntel", 6, "", ("avx512f", "avx512_bf16"))
    monkeypatch.setattr(choice.Processor, "host", staticmethod(lambda: xeon))
    large, small = compiled(torch.mm, "auto"), compiled(torch.mm, "auto")
    large(random(128, 128), random(128, 128))
    small(random(8, 128), random(128, 128))
    assert types_of_calls(large) == ["float32"] and types_of_calls(small) == ["bfloat16"]


@pytest.mark.parametrize("how", ["option", "precision", "search", "type"])
def test_products_that_stay_as_they_are(how: str) -> None:
    dtype = torch.float16 if how == "type" else torch.bfloat16
    options = {"max_autotune_gemm": True, "max_autotune_gemm_backends": "ATEN"} if how == "search" else {}
    callable_ = compiled(torch.mm, "bfloat16" if how == "option" else "float32", **options)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if how == "precision" else before)
    try:
        callable_(random(65, 70).to(dtype), random(70, 41).to(dtype))
    finally:
        torch.set_float32_matmul_precision(before)
    assert types_of_calls(callable_) == [str(dtype).removeprefix("torch.")]


def test_the_rule() -> None:
    def faster(vendor: str, *features: str) -> bool:
        return float32_is_faster(Processor(vendor, 6, "", features))

    assert faster("GenuineIntel", "avx512f") and faster("GenuineIntel", "avx512f", "avx512_bf16")
    assert not faster("GenuineIntel", "avx512f", "avx512_bf16", "amx_bf16")
    assert not faster("GenuineIntel") and not faster("AuthenticAMD", "avx512f", "avx512_bf16")


@pytest.mark.parametrize(
    ("stride", "groups", "precision", "wide"),
    [(2, 64, "auto", True), (1, 64, "auto", False), (2, 1, "auto", False), (2, 64, "bfloat16", False)],
)
def test_gradients_of_strided_depthwise_filters_are_computed_in_float32_on_any_processor(
    monkeypatch: pytest.MonkeyPatch, stride: int, groups: int, precision: str, wide: bool
) -> None:
    amd = Processor("AuthenticAMD", 26, "", ("avx512f", "avx512_bf16"))
    monkeypatch.setattr(choice.Processor, "host", staticmethod(lambda: amd))

    def step(gradient: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        steps = ([stride, stride], [1, 1], [1, 1], False, [0, 0], groups, [True, True, False])
        return torch.ops.aten.convolution_backward(gradient, x, weight, None, *steps)[:2]

    x, weight = random(2, 64, 14, 15), random(64, 64 // groups, 3, 3)
    exact = [each.double().requires_grad_() for each in (x, weight)]
    result = F.conv2d(*exact, stride=stride, padding=1, groups=groups)
    gradient = random(*result.shape)
    callable_ = compiled(step, precision)
    found = callable_(gradient, x, weight)
    truths = torch.autograd.grad(result, exact, gradient.double())
    for got, wanted, library in zip(found, truths, step(gradient, x, weight), strict=True):
        assert got.dtype == torch.bfloat16
        # Without AVX-512 the library itself rounds more than once.
        error = float((library.double() - wanted).abs().max())
        most = 2**-8 * float(wanted.abs().max())
        torch.testing.assert_close(got.double(), wanted, rtol=0, atol=most if wide else max(most, error))
    (code,) = callable_.codes
    assert ("torch.float32" in code) == wide


def test_features_are_those_of_the_first_processor() -> None:
    text = "vendor_id : GenuineIntel\nflags : fpu avx512f amx_bf16 amx_tile\n\nflags : avx512_bf16\n"
    assert Processor.read(text).features == ("amx_bf16", "avx512f")
