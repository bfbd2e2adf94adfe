"""Filters of 3 x 3 of frozen graphs by Winograd's algorithm: values against float64, and which code ran."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._inductor import config

from halide_backend import config as own_config
from halide_backend.codegen.cpu.winograd_text import blocks
from halide_backend.inspection.compiled import Compiled, compile_for
from halide_backend.kernel_library.window import Window
from halide_backend.kernel_library.winograd import Winograd

KERNEL = re.compile(r"^ +halide_winograd_\d+\(", re.MULTILINE)
#: Relative to the largest result; oneDNN's convolutions of as many channels have 1e-7 to 5e-7.
BOUND = 1e-6


class Added(nn.Module):
    """A block of a ResNet: two filters, the picture added to the second one's result, activations."""

    def __init__(self, channels: int, after: nn.Module) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.after = after

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.after(self.second(self.after(self.first(x))) + x)
        return added


def filters(channels: int, number: int, after: nn.Module | None = None, **options: Any) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(channels, number, **{"kernel_size": 3, "padding": 1, **options}), after or nn.Identity()
    )


def picture(channels: int, height: int = 13, width: int = 18, pictures: int = 2) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(pictures, channels, height, width)


def check(model: nn.Module, x: Tensor, kernels: int) -> Compiled:
    """The frozen `model` of x against float64, and the number of kernels that compute it."""
    model = model.eval()
    wanted = copy.deepcopy(model).double()(x.double())
    with config.patch(freezing=True), torch.no_grad():
        compiled = compile_for("halide_backend", model)
        for _ in range(2):
            got = compiled(x)
            assert got.shape == wanted.shape
            assert float((got - wanted).abs().max() / wanted.abs().max()) < BOUND
    (code,) = compiled.codes
    assert len(KERNEL.findall(code)) == kernels
    return compiled


SIZES = ((4, 4), (5, 5), (1, 9), (8, 1), (7, 12), (2, 3))
PADDINGS = ((0, 0), (1, 1), (2, 2), (0, 2), (3, 1))
#: Pictures, with their padding, that a filter fits into.
GEOMETRIES = [
    (size, padding) for size in SIZES for padding in PADDINGS if all(n + 2 * p >= 3 for n, p in zip(size, padding))
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("size", "padding"), GEOMETRIES)
def test_sizes_and_padding(size: tuple[int, int], padding: tuple[int, int]) -> None:
    """Where a side of the result is odd, the last tiles reach beyond it."""
    rows, columns = (n + 2 * p - 2 for n, p in zip(size, padding))
    tiles = -(-rows // 2) * -(-columns // 2)
    check(filters(32, 48, padding=padding), picture(32, *size), kernels=int(16 * tiles < 9 * rows * columns))


@pytest.mark.parametrize("after", [None, nn.ReLU(), nn.SiLU()])
@pytest.mark.parametrize("bias", [True, False])
def test_activation_and_bias(after: nn.Module | None, bias: bool) -> None:
    check(filters(64, 64, after, bias=bias), picture(64), kernels=1)


@pytest.mark.parametrize("target", ["avx2", "avx512"])
@pytest.mark.parametrize("number", [16, 32, 48, 64, 80, 96, 192])
@pytest.mark.parametrize("channels", [16, 80])
def test_numbers_of_channels_and_filters(
    channels: int, number: int, target: str, has_target: Callable[[str], bool]
) -> None:
    if not has_target(target):
        pytest.skip(f"no {target} here")
    with own_config.patch(target=target):
        check(filters(channels, number), picture(channels), kernels=1)


@pytest.mark.parametrize("after", [nn.Identity(), nn.ReLU()])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_what_is_added_is_in_the_kernel(after: nn.Module, layout: torch.memory_format) -> None:
    torch.manual_seed(1)
    x = picture(48).contiguous(memory_format=layout)
    (code,) = check(Added(48, after), x, kernels=2).codes
    assert code.count("adds=True") == code.count("adds=False") == 1


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("case", ["blocks of tiles", "groups of filters"])
def test_what_threads_share(case: str, threads: int) -> None:
    """Weights that are larger than a core's cache are read by one thread each, if groups of filters are enough."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        model = filters(32, 64) if case == "blocks of tiles" else filters(32, 384)
        (code,) = check(model, picture(32, 29, 22), kernels=1).codes
    finally:
        torch.set_num_threads(before)
    assert f"by_filters={case == 'groups of filters'}" in code


def test_few_tiles_are_shared_by_filters() -> None:
    """Blocks of them would be fewer than threads, whatever divides the filters."""
    window = Window(rows=4, columns=4, down=3, across=3, stride=(1, 1), above=1, left=1)
    work = Winograd(4, 512, 4, 4, 512, window, "none", has_offsets=False, adds=False)
    for threads in (1, 2, 5, 48):
        found = blocks(work, 16, threads)
        assert found is not None and found.by_filters and found.tiles == 18


def test_fewer_tiles_than_columns() -> None:
    check(filters(32, 32), picture(32, 2, 4, 1), kernels=1)


LEFT: dict[str, tuple[nn.Module, Tensor]] = {
    "in steps": (filters(32, 32, stride=2), picture(32)),
    "dilation": (filters(32, 32, dilation=2), picture(32)),
    "groups": (filters(32, 32, groups=2), picture(32)),
    "5 x 5": (filters(32, 32, kernel_size=5), picture(32)),
    "3 x 1": (filters(32, 32, kernel_size=(3, 1)), picture(32)),
    "another activation": (filters(32, 32, nn.GELU()), picture(32)),
    "channels that no vector divides": (filters(20, 32), picture(20)),
    "filters that no vector divides": (filters(32, 20), picture(32)),
    "one result": (filters(32, 32, padding=0), picture(32, 3, 3)),
}


@pytest.mark.parametrize("case", LEFT)
def test_the_librarys_convolutions(case: str) -> None:
    check(*LEFT[case], kernels=0)


def test_the_option() -> None:
    with own_config.patch(winograd=False):
        check(filters(32, 32), picture(32), kernels=0)


def test_an_infinity_makes_nan_of_its_tiles_alone() -> None:
    """As the option says. Results whose filters do not reach the infinity are finite otherwise."""
    model, x = filters(32, 32).eval(), picture(32, 12, 12, 1)
    wanted = copy.deepcopy(model).double()(x.double()).detach()
    x[0, 3, 5, 6] = torch.inf
    with config.patch(freezing=True), torch.no_grad():
        compiled = compile_for("halide_backend", model)
        got = compiled(x)
    assert KERNEL.search(compiled.codes[0])
    rows, columns = slice(4, 8), slice(4, 8)
    assert bool(got[:, :, rows, columns].isnan().any())
    got[:, :, rows, columns] = wanted[:, :, rows, columns].float()
    assert float((got - wanted).abs().max() / wanted.abs().max()) < BOUND


def check_training(model: nn.Module, x: Tensor, kernels: list[int]) -> Compiled:
    """The result of `model` and all gradients against float64, and the kernels of the forward and backward graphs."""
    torch.manual_seed(2)
    exact, wanted_x = copy.deepcopy(model).double(), x.detach().double().requires_grad_(x.requires_grad)
    compiled = compile_for("halide_backend", model)
    got, wanted = compiled(x), exact(wanted_x)
    weights = torch.randn_like(wanted)
    got.backward(weights.to(got.dtype))
    wanted.backward(weights)
    pairs = [(got.detach(), wanted.detach()), (x.grad, wanted_x.grad)]
    pairs += [(ours.grad, theirs.grad) for ours, theirs in zip(model.parameters(), exact.parameters())]
    for ours, theirs in pairs:
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert float((ours - theirs).abs().max() / theirs.abs().max()) < BOUND
    assert [len(KERNEL.findall(code)) for code in compiled.codes] == kernels
    return compiled


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("padding", [0, 1, (0, 2), (3, 1)])
def test_gradients(padding: Any, bias: bool, layout: torch.memory_format) -> None:
    """Weights are transformed in each call, from either layout."""
    model = filters(32, 48, nn.Tanh(), padding=padding, bias=bias).to(memory_format=layout)
    check_training(model, picture(32).contiguous(memory_format=layout).requires_grad_(), [1, 1])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("target", ["avx2", "avx512"])
def test_gradients_of_many_filters(target: str, threads: int, has_target: Callable[[str], bool]) -> None:
    if not has_target(target):
        pytest.skip(f"no {target} here")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with own_config.patch(target=target):
            check_training(filters(96, 256), picture(96, 9, 12).requires_grad_(), [1, 1])
    finally:
        torch.set_num_threads(before)


def test_gradients_through_a_block() -> None:
    torch.manual_seed(1)
    check_training(Added(32, nn.SiLU()), picture(32).requires_grad_(), [2, 2])


def test_weights_alone_have_gradients() -> None:
    check_training(filters(32, 32), picture(32), [1, 0])


def test_pictures_alone_have_gradients() -> None:
    model = filters(32, 32).requires_grad_(False)
    compiled = check_training(model, picture(32).requires_grad_(), [1, 1])
    assert "convolution_backward.default(" not in compiled.codes[1].split("def call")[1]


def inference(model: nn.Module, x: Tensor, kernels: int, **options: Any) -> None:
    """The same for a model that is not frozen."""
    wanted = copy.deepcopy(model).double()(x.double())
    with torch.no_grad():
        compiled = compile_for("halide_backend", model, **options)
        assert float((compiled(x) - wanted).abs().max() / wanted.abs().max()) < BOUND
    assert len(KERNEL.findall(compiled.codes[0])) == kernels


@pytest.mark.parametrize("side", [4, 20])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_few_pixels_and_weights_in_channels_last(layout: torch.memory_format, side: int) -> None:
    """To read such weights takes longer than it saves where there are few pixels."""
    model = filters(32, 32).to(memory_format=layout)
    inference(model, picture(32, side, side, 1), int(side == 20 or layout == torch.contiguous_format))


def test_dynamic_sizes_are_the_librarys() -> None:
    inference(filters(32, 32), picture(32), kernels=0, dynamic=True)


def test_a_search_is_not_cut_short() -> None:
    with config.patch(max_autotune=True):
        inference(filters(32, 32), picture(32), kernels=0)


def test_without_the_option() -> None:
    with own_config.patch(winograd=False):
        check_training(filters(32, 32), picture(32).requires_grad_(), [0, 0])


def test_a_layout_that_only_the_lowering_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor may give weights another layout than the graph says: the library computes what was taken, then."""
    from halide_backend.graph_passes import winograd

    monkeypatch.setattr(winograd, "_call_with", lambda *arguments, **options: None)
    check_training(filters(32, 48, nn.Tanh()), picture(32).requires_grad_(), [0, 0])
