"""Products that Inductor's graphs leave to oneDNN: their values against float64, and which code computed them."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halide_backend.inspection.compiled import Compiled, compile_for

#: Calls of torch's operator, and of layers that oneDNN compiled.
LAYERS = re.compile(r"= (?:torch\.ops\.mkldnn\._linear_pointwise\.default|onednn_linear_\d+)\(")
BOUND = 2e-6
#: A constant in oneDNN's layout.
PACKED = re.compile(r"_packed_weight\d+")


def compiled(function: Callable[..., Any], library: str = "onednn", dynamic: bool = False, **options: Any) -> Compiled:
    named = {"halide_backend.product_library": library, **options}
    return compile_for("halide_backend", function, dynamic=dynamic, options=named)


def products(callable_: Compiled) -> int:
    """How many of its products are oneDNN's."""
    return sum(map(products_of, callable_.codes))


def check(function: Callable[..., Tensor], *arguments: Tensor, calls: int = 1, **options: Any) -> Compiled:
    """`function` of the arguments against float64, relative to its largest value."""
    callable_ = compiled(function, **options)
    with torch.no_grad():
        assert_near(callable_(*arguments), function(*(each.double() for each in arguments)))
    assert products(callable_) == calls
    return callable_


def assert_near(got: Tensor, wanted: Tensor) -> None:
    assert got.shape == wanted.shape
    if wanted.numel():
        assert float((got.double() - wanted).abs().max() / wanted.abs().max().clamp(min=1e-30)) < BOUND


def mm(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def random(*sizes: int) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes)))


OPERANDS: dict[str, tuple[Tensor, Tensor]] = {
    "rows": (random(33, 20), random(20, 17)),
    "right transposed": (random(33, 20), random(17, 20).t()),
    "left transposed": (random(20, 33).t(), random(20, 17)),
    "both transposed": (random(20, 33).t(), random(17, 20).t()),
    "rows of a wider matrix": (random(33, 50)[:, 7:27], random(20, 40)[:, 5:22]),
    "columns of a taller matrix": (random(50, 33)[7:27].t(), random(40, 20)[5:22].t()),
    "every second element": (random(33, 40)[:, ::2], random(20, 34)[:, ::2]),
    "every second row": (random(66, 20)[::2], random(40, 17)[::2]),
    "one row for all": (random(1, 20).expand(33, 20), random(1, 17).expand(20, 17)),
    "one column for all": (random(33, 1).expand(33, 20), random(20, 1).expand(20, 17)),
    "windows that overlap": (random(52).as_strided((33, 20), (1, 1)), random(80).as_strided((20, 17), (3, 1))),
    "one row": (random(1, 20), random(20, 17)),
    "one column": (random(33, 20), random(20, 1)),
    "k of 1": (random(33, 1), random(1, 17)),
    "an offset that no vector divides": (random(33 * 20 + 1)[1:].view(33, 20), random(20 * 17 + 3)[3:].view(20, 17)),
}


@pytest.mark.parametrize("case", OPERANDS)
def test_operands_of_any_strides(case: str) -> None:
    check(mm, *OPERANDS[case])


@pytest.mark.parametrize("case", OPERANDS)
def test_onednn_has_a_fast_implementation_for_any_strides(case: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Its reference implementation is hundreds of times as slow, and parts of larger matrices got it."""
    callable_ = compiled(mm)
    with torch.no_grad():
        callable_(*OPERANDS[case])
        with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
            callable_(*OPERANDS[case])
    implementations = re.findall(r"exec,cpu,inner_product,([^,]+),", capfd.readouterr().out)
    assert implementations and not [each for each in implementations if each.startswith("ref")], implementations


@pytest.mark.parametrize(("m", "n", "k"), [(0, 5, 6), (5, 0, 6), (5, 6, 0)])
def test_empty_products_stay_with_aten(m: int, n: int, k: int) -> None:
    check(mm, random(m, k), random(k, n), calls=0)


BIASES = {"one each": (17,), "one row": (1, 17), "one column": (33, 1), "a matrix": (33, 17), "one": (1,)}


@pytest.mark.parametrize("shape", BIASES.values(), ids=BIASES)
def test_biases_of_any_shape(shape: tuple[int, ...]) -> None:
    check(torch.addmm, random(*shape), random(33, 20), random(20, 17))


def test_a_square_product_whose_bias_has_one_dimension() -> None:
    check(torch.addmm, random(17), random(17, 17), random(17, 17))


@pytest.mark.parametrize("scale", [{"alpha": 0.5}, {"beta": 2.0}, {"alpha": 0, "beta": 0}], ids=str)
def test_scaled_sums_have_eagers_values(scale: dict[str, float]) -> None:
    callable_ = compiled(lambda *a: torch.addmm(*a, **scale))
    arguments = random(17), random(33, 20), random(20, 17)
    assert_near(callable_(*arguments), torch.addmm(*(each.double() for each in arguments), **scale))


def test_operands_that_share_memory() -> None:
    x = random(24, 24)
    check(lambda a: a @ a.t() @ a, x, calls=2)
    check(lambda a: torch.addmm(a, a, a), x)


def test_what_changes_its_operand_afterwards() -> None:
    def step(a: Tensor, b: Tensor) -> Tensor:
        y = a @ b
        a.add_(y)
        return y * 2 + a @ b

    a, b = random(24, 24), random(24, 24)
    got, wanted = a.clone(), a.double()
    callable_ = compiled(step)
    result = callable_(got, b)
    assert_near(result, step(wanted, b.double()))
    assert_near(got, wanted)
    assert products(callable_) == 2


def test_forward_and_both_backward_products_of_layers() -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(40, 56), nn.GELU(), nn.Linear(56, 24, bias=False))
    wide = nn.Sequential(nn.Linear(40, 56), nn.GELU(), nn.Linear(56, 24, bias=False)).double()
    wide.load_state_dict({name: value.double() for name, value in layers.state_dict().items()})
    x = random(3, 11, 40).requires_grad_()
    y = x.detach().double().requires_grad_()
    callable_ = compiled(layers)
    got, wanted = callable_(x), wide(y)
    got.square().sum().backward()
    wanted.square().sum().backward()
    assert_near(got.detach(), wanted.detach())
    for ours, theirs in zip((x, *layers.parameters()), (y, *wide.parameters()), strict=True):
        assert ours.grad is not None and theirs.grad is not None
        assert ours.grad.stride() == theirs.grad.stride()
        assert_near(ours.grad, theirs.grad)
    assert [products_of(code) for code in callable_.codes] == [2, 4]


def products_of(code: str) -> int:
    return len(LAYERS.findall(code))


def test_sizes_that_change() -> None:
    callable_ = compiled(F.linear, dynamic=True)
    for m, n, k in ((33, 17, 20), (5, 40, 9), (64, 3, 2)):
        arguments = random(m, k), random(n, k), random(n)
        assert_near(callable_(*arguments), F.linear(*(each.double() for each in arguments)))
    assert len(callable_.codes) == 1 and products(callable_) == 1


def test_other_types_are_left_alone() -> None:
    check(lambda a, b: (a.double() @ b.double()).float(), random(33, 20), random(20, 17), calls=0)

    def automatic(a: Tensor, b: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return a @ b

    callable_ = compiled(automatic)
    a, b = random(33, 20), random(20, 17)
    assert torch.equal(callable_(a, b), automatic(a, b))
    assert products(callable_) == 0


def test_batches_stay_with_aten() -> None:
    check(torch.bmm, random(3, 33, 20), random(3, 20, 17), calls=0)


@pytest.mark.parametrize("cpp_wrapper", [False, True])
@torch._inductor.config.patch(freezing=True)
def test_weights_that_freezing_made_constants(cpp_wrapper: bool) -> None:
    """Each is a constant in oneDNN's layout."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(40, 56), nn.ReLU(), nn.Linear(56, 24, bias=False)).eval()
    x = random(33, 40)
    callable_ = compiled(layers, cpp_wrapper=cpp_wrapper)
    with torch.no_grad():
        got = callable_(x)
        assert_near(got, layers.double()(x.double()))
    (code,) = callable_.codes
    assert (code.count("_linear_pointwise(") if cpp_wrapper else products_of(code)) == 2
    assert len(set(PACKED.findall(code))) == 2
    assert "mkl_linear" not in code


@torch._inductor.config.patch(freezing=True)
def test_frozen_layers_of_a_changing_number_of_rows() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(40, 56).eval()
    callable_ = compiled(layer, dynamic=True)
    with torch.no_grad():
        for rows in (33, 57, 5):
            x = random(rows, 40)
            assert_near(callable_(x), x.double() @ layer.weight.double().t() + layer.bias.double())
    assert products(callable_) == 1


@torch._inductor.config.patch(freezing=True)
def test_two_frozen_layers_share_a_weight() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(40, 40).eval()
    callable_ = compiled(lambda x: layer(layer(x).relu()))
    x = random(33, 40)
    with torch.no_grad():
        wide = copy.deepcopy(layer).double()
        assert_near(callable_(x), wide(wide(x.double()).relu()))
    assert products(callable_) == 2
    assert len(set(PACKED.findall(callable_.codes[0]))) == 1


def test_a_search_among_templates_is_not_cut_short() -> None:
    check(mm, random(33, 20), random(20, 17), calls=0, max_autotune=True)


def test_inductors_own_backend_is_left_alone() -> None:
    callable_ = compile_for("cpp", mm, options={"halide_backend.product_library": "onednn"})
    a, b = random(33, 20), random(20, 17)
    assert_near(callable_(a, b), a.double() @ b.double())
    assert products(callable_) == 0


def test_switching_onednn_off_is_obeyed() -> None:
    with torch.backends.mkldnn.flags(enabled=False):
        check(mm, random(33, 20), random(20, 17), calls=0)
