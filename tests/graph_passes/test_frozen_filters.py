"""Convolutions of frozen graphs as kernels of this backend: values against float64, and which code ran."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._inductor import config

from halide_backend import config as own_config
from halide_backend.inspection.compiled import Compiled, compile_for

KERNEL = re.compile(r"^ +halide_(?:depthwise|convolution)_\d+\(", re.MULTILINE)
#: Calls of convolutions that oneDNN compiled, or of torch's operator.
LAYERS = re.compile(r"= (?:onednn_convolution_\w+\(|torch\.ops\.mkldnn\._convolution_pointwise)")
#: Every call of a kernel of this backend.
CALLS = re.compile(r"^ +(halide_\w+)\(", re.MULTILINE)
BOUND = 2e-6


class Filter(nn.Module):
    """A depthwise filter between what comes `before` and `after` it."""

    def __init__(self, channels: int, before: Any = None, after: Any = None, **options: Any) -> None:
        super().__init__()
        self.before, self.after = before or nn.Identity(), after or nn.Identity()
        self.filter = nn.Conv2d(channels, channels, **{"kernel_size": 3, "groups": channels, **options})

    def forward(self, x: Tensor) -> Tensor:
        filtered: Tensor = self.after(self.filter(self.before(x)))
        return filtered


def picture(channels: int = 48, height: int = 17, width: int = 20, pictures: int = 2) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(pictures, channels, height, width)


def check(model: nn.Module, x: Tensor, kernels: int, layers: int = 0) -> Compiled:
    """The frozen `model` of x against float64, relative to its largest value, and the calls that compute it."""
    model = model.eval()
    wanted = copy.deepcopy(model).double()(x.double())
    with config.patch(freezing=True), torch.no_grad():
        compiled = compile_for("halide_backend", model)
        for _ in range(2):
            got = compiled(x)
            assert got.shape == wanted.shape
            assert float((got - wanted).abs().max() / wanted.abs().max()) < BOUND
    (code,) = compiled.codes
    assert (len(KERNEL.findall(code)), len(LAYERS.findall(code))) == (kernels, layers)
    return compiled


FILTERS: dict[str, dict[str, Any]] = {
    "same": {"padding": 1},
    "no padding": {},
    "stride 2": {"kernel_size": 5, "stride": 2, "padding": 2},
    "steps larger than the filter": {"kernel_size": 1, "stride": 3},
    "unlike sides": {"kernel_size": (2, 7), "stride": (1, 2), "padding": (0, 3)},
    "as large as there are kernels for": {"kernel_size": 9, "padding": 4},
    "more padding than filter": {"kernel_size": 3, "padding": 3},
    "without a bias": {"padding": 1, "bias": False},
    "in one column": {"kernel_size": (3, 20), "padding": (1, 0)},
}
ACTIVATIONS: dict[str, Any] = {"none": None, "relu": nn.ReLU(), "swish": nn.SiLU()}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("after", ACTIVATIONS)
@pytest.mark.parametrize("case", FILTERS)
def test_a_filter_and_its_activation_are_one_kernel(case: str, after: str) -> None:
    torch.manual_seed(1)
    check(Filter(48, after=ACTIVATIONS[after], **FILTERS[case]), picture(), kernels=1)


@pytest.mark.parametrize("case", FILTERS)
def test_a_swish_before_a_filter_is_in_its_kernel(case: str) -> None:
    torch.manual_seed(1)
    layer = nn.Sequential(nn.Conv2d(24, 48, 1), nn.SiLU())
    (code,) = check(Filter(48, layer, nn.SiLU(), **FILTERS[case]), picture(24), kernels=1, layers=1).codes
    assert "before='swish'" in code


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("pictures", [1, 3])
@pytest.mark.parametrize("swish", [True, False])
def test_blocks_of_rows(threads: int, pictures: int, swish: bool) -> None:
    """Threads have blocks of rows, of which each begins with rows of the picture that another one has, too."""
    layer = nn.Sequential(nn.Conv2d(24, 40, 1), nn.SiLU() if swish else nn.ReLU())
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        torch.manual_seed(1)
        compiled = check(Filter(40, layer, kernel_size=5, padding=2), picture(24, 29, 9, pictures), 1, 1)
    finally:
        torch.set_num_threads(before)
    rows = [int(each) for each in re.findall(r"TILES = Tiles\(.*rows=(\d+)", compiled.codes[0])]
    assert len(rows) == 1 and (rows[0] == 29) == (threads == 1)


@pytest.mark.parametrize("target", ["avx2", "avx512"])
@pytest.mark.parametrize("channels", [16, 24, 37, 130])
def test_channels_that_no_vector_divides(channels: int, target: str, has_target: Callable[[str], bool]) -> None:
    if not has_target(target):
        pytest.skip(f"no {target} here")
    layer = nn.Sequential(nn.Conv2d(24, channels, 1), nn.SiLU())
    for before, layers in ((None, 0), (layer, 1)):
        torch.manual_seed(1)
        with own_config.patch(target=target):
            check(Filter(channels, before, padding=1), picture(24 if layers else channels), 1, layers)


def test_a_swish_that_something_else_reads_stays() -> None:
    class Twice(Filter):
        def forward(self, x: Tensor) -> Tensor:
            x = self.before(x)
            both: Tensor = self.filter(x).sin() + x
            return both

    torch.manual_seed(1)
    layer = nn.Sequential(nn.Conv2d(24, 48, 1), nn.SiLU())
    (code,) = check(Twice(48, layer, padding=1), picture(24), kernels=1, layers=1).codes
    assert "before='none'" in code


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.Hardswish(), nn.GELU()])
def test_other_activations_before_a_filter_stay_with_their_layer(activation: nn.Module) -> None:
    torch.manual_seed(1)
    layer = nn.Sequential(nn.Conv2d(24, 48, 1), activation)
    (code,) = check(Filter(48, layer, padding=1), picture(24), kernels=1, layers=1).codes
    assert "before='none'" in code


def test_a_swish_before_a_filter_of_a_layer_that_is_torchs_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    from halide_backend.graph_passes import frozen_layers

    monkeypatch.setattr(frozen_layers, "_partition", lambda *arguments: None)
    torch.manual_seed(1)
    layer = nn.Sequential(nn.Conv2d(24, 48, 1), nn.SiLU())
    (code,) = check(Filter(48, layer, padding=1), picture(24), kernels=1, layers=1).codes
    assert "before='swish'" in code and "'swish'" not in code.split("def call")[1]


class First(nn.Module):
    """A convolution of what `before` makes of pictures, and an activation."""

    def __init__(self, channels: int, filters: int, before: Any = None, after: Any = None, **options: Any) -> None:
        super().__init__()
        self.before, self.after = before or (lambda x: x), after or nn.Identity()
        self.filter = nn.Conv2d(channels, filters, **{"kernel_size": 3, **options})

    def forward(self, x: Tensor) -> Tensor:
        filtered: Tensor = self.after(self.filter(self.before(x)))
        return filtered


FIRST: dict[str, dict[str, Any]] = {
    "7 x 7 in steps": {"kernel_size": 7, "stride": 2, "padding": 3},
    "patches": {"kernel_size": 4, "stride": 4},
    "same": {"padding": 1, "bias": False},
    "unlike sides": {"kernel_size": (5, 2), "stride": (1, 3), "padding": (2, 0)},
    "more padding than filter": {"kernel_size": 2, "padding": 3},
}


@pytest.mark.parametrize("after", ACTIVATIONS)
@pytest.mark.parametrize("case", FIRST)
def test_a_convolution_of_few_channels_is_one_kernel(case: str, after: str) -> None:
    torch.manual_seed(1)
    check(First(3, 32, after=ACTIVATIONS[after], **FIRST[case]), picture(3), kernels=1)


@pytest.mark.parametrize("target", ["avx2", "avx512"])
@pytest.mark.parametrize("filters", [16, 24, 48, 64, 96, 131])
@pytest.mark.parametrize("channels", [1, 2, 4])
def test_numbers_of_filters(channels: int, filters: int, target: str, has_target: Callable[[str], bool]) -> None:
    if not has_target(target):
        pytest.skip(f"no {target} here")
    torch.manual_seed(1)
    with own_config.patch(target=target):
        check(First(channels, filters, padding=1), picture(channels), kernels=1)


LAYOUTS: dict[str, Any] = {
    "every other column": lambda x: x[..., ::2],
    "some channels": lambda x: x[:, 1:],
    "turned": lambda x: x.transpose(2, 3),
    "computed": lambda x: x.sin() * 2,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pictures_are_read_where_they_lie(layout: str) -> None:
    torch.manual_seed(1)
    channels = LAYOUTS[layout](picture(4)).shape[1]
    (code,) = check(First(channels, 32, before=LAYOUTS[layout]), picture(4), kernels=1).codes
    calls = CALLS.findall(code)
    assert calls[0].startswith("halide_convolution") == (layout != "computed")


@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_of_rows_of_a_first_convolution(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        torch.manual_seed(1)
        compiled = check(First(3, 32, padding=1), picture(3, 29, 9, 1), 1)
    finally:
        torch.set_num_threads(before)
    rows = [int(each) for each in re.findall(r"TILES = Tiles\(.*rows=(\d+)", compiled.codes[0])]
    assert len(rows) == 1 and (rows[0] == 29) == (threads == 1)


def test_pictures_in_channels_last_are_read_so() -> None:
    torch.manual_seed(1)
    x = picture(3).contiguous(memory_format=torch.channels_last)
    (code,) = check(First(3, 32), x, kernels=1).codes
    assert CALLS.findall(code)[0].startswith("halide_convolution") and "strides=(1020, 1, 60, 3)" in code


def test_padding_of_pictures_on_one_side_is_no_kernel() -> None:
    torch.manual_seed(1)
    (code,) = check(First(3, 32, lambda x: F.pad(x, (0, 1, 0, 1)), stride=2), picture(3), kernels=1).codes
    assert CALLS.findall(code)[0].startswith("halide_convolution") and "down=3, across=3" in code


@pytest.mark.parametrize("options", [{"kernel_size": 16, "stride": 16}, {"dilation": 2}])
def test_other_first_convolutions_are_the_librarys(options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    check(First(3, 32, **options), picture(3, 32, 32), kernels=0, layers=1)


def test_more_channels_are_the_librarys() -> None:
    torch.manual_seed(1)
    check(First(5, 32), picture(5), kernels=0, layers=1)


def test_indices_that_are_no_int32_are_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a picture that has few elements itself, but lies in a large tensor."""
    from halide_backend.graph_passes import frozen_filters

    x = picture(3)
    monkeypatch.setattr(frozen_filters, "_TOO_FAR", 20_000)
    torch.manual_seed(1)
    model = First(3, 16, before=lambda x: x[..., ::4], kernel_size=1)
    check(model, x, kernels=1)
    monkeypatch.setattr(frozen_filters, "_TOO_FAR", 3_000)
    check(model, x, kernels=0, layers=1)


class Padded(Filter):
    """The picture is padded before the filter, more on one side."""

    def forward(self, x: Tensor) -> Tensor:
        filtered: Tensor = self.filter(F.pad(self.before(x), (1, 2, 0, 1)))
        return filtered


def test_padding_on_one_side_makes_no_larger_filter() -> None:
    torch.manual_seed(1)
    model = Padded(48, nn.Sequential(nn.Conv2d(24, 48, 1), nn.SiLU()), stride=2)
    (code,) = check(model, picture(24), kernels=1, layers=1).codes
    assert "down=3, across=3" in code and "above=0, left=1" in code


def test_padding_on_one_side_makes_no_nan_of_an_infinity() -> None:
    """A weight of 0 for padding would, times an infinity at the edge."""
    torch.manual_seed(1)
    model = Padded(48, nn.Sequential(nn.Conv2d(24, 48, 1), nn.ReLU()), stride=2).eval()
    x = picture(24)
    x[0, 0, -1, 3] = torch.inf
    with config.patch(freezing=True), torch.no_grad():
        got, wanted = compile_for("halide_backend", model)(x), model(x)
    assert torch.equal(got.isnan(), wanted.isnan()) and bool(wanted.isinf().any())


def test_weights_of_zeros_at_the_edge_are_weights() -> None:
    """What a user's filter has there makes a NaN of an infinity, as eager's does."""
    model = Filter(48, padding=1).eval()
    with torch.no_grad():
        model.filter.weight[:, :, 0] = 0.0
    x = picture()
    x[0, 5, 3, 4] = torch.inf
    with config.patch(freezing=True), torch.no_grad():
        got, wanted = compile_for("halide_backend", model)(x), model(x)
    assert torch.equal(got.isnan(), wanted.isnan()) and bool(wanted.isnan().any())


LEFT: dict[str, tuple[nn.Module, Tensor]] = {
    "dilation": (Filter(48, dilation=2), picture()),
    "two filters a channel": (nn.Conv2d(48, 96, 3, groups=48), picture()),
    "groups of channels": (nn.Conv2d(48, 48, 3, groups=24), picture()),
    "another activation": (Filter(48, after=nn.GELU()), picture()),
    "more weights than there are kernels for": (Filter(48, kernel_size=11), picture()),
}


@pytest.mark.parametrize("case", LEFT)
def test_the_librarys_filters(case: str) -> None:
    model, x = LEFT[case]
    check(model, x, kernels=0, layers=1)


def test_fewer_channels_than_a_vector_has_elements_are_the_librarys(has_target: Callable[[str], bool]) -> None:
    if not has_target("avx512"):
        pytest.skip("no avx512 here")
    torch.manual_seed(1)
    check(Filter(12), picture(12), kernels=0, layers=1)


def test_three_dimensions_are_the_librarys() -> None:
    torch.manual_seed(1)
    check(nn.Conv3d(32, 32, 3, groups=32), torch.randn(2, 32, 5, 6, 7), kernels=0, layers=1)


def test_bfloat16_is_the_librarys() -> None:
    model = Filter(48, padding=1).eval().bfloat16()
    x = picture().bfloat16()
    with config.patch(freezing=True), torch.no_grad():
        compiled = compile_for("halide_backend", model)
        got, wanted = compiled(x), copy.deepcopy(model).double()(x.double())
    assert float((got - wanted).abs().max() / wanted.abs().max()) < 2e-2
    assert not KERNEL.search("".join(compiled.codes))


def test_pictures_of_unknown_size_are_the_librarys() -> None:
    model = Filter(48, padding=1).eval()
    with config.patch(freezing=True), torch.no_grad():
        compiled = compile_for("halide_backend", model, dynamic=True)
        for side in (9, 12):
            x = picture(48, side, side)
            assert torch.allclose(compiled(x), model(x), atol=1e-5)
    assert not KERNEL.search("".join(compiled.codes))


def test_equal_filters_share_a_kernel() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Filter(48, padding=1), Filter(48, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            filtered: Tensor = self.second(self.first(x).sin())
            return filtered

    torch.manual_seed(1)
    (code,) = check(Twice(), picture(), kernels=2).codes
    assert code.count("= load_kernel('halide_depthwise") == 1


def test_packed_weights_are_not_kept_besides() -> None:
    torch.manual_seed(1)
    (code,) = check(Filter(48, padding=1), picture(), kernels=1).codes
    assert "mkldnn" not in code.split("def call")[1]
