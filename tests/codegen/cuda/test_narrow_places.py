"""Places that coordinates are rounded to are int32 where nothing else needs them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from cuda_programs import programs_of
from kernel_values import check_values
from torch import Tensor

from halide_backend.program.narrow_places import with_narrow_places


def rounded(function: Callable[..., object], *arguments: Tensor, dynamic: bool = False) -> list[str]:
    """The types of what is rounded from float32, in all kernels."""
    programs = [
        with_narrow_places(program, saturating=True) for program in programs_of(function, arguments, dynamic=dynamic)
    ]
    return [
        value.dtype
        for program in programs
        for value in program.values
        if value.operation == "to_dtype" and program.values[value.operands[0]].dtype == "float32"
        if value.dtype.startswith("int")
    ]


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_places_of_an_interpolation(mode: str, dynamic: bool) -> None:
    found = rounded(lambda x: F.interpolate(x, size=(31, 45), mode=mode), torch.zeros(2, 3, 20, 24), dynamic=dynamic)
    assert set(found) == {"int32"}


def test_what_is_read_may_not_fit() -> None:
    """A NaN is no place in int64, but 0 in int32."""
    found = rounded(lambda x, i: x[(i * 2).to(torch.int64)], torch.zeros(9, 70), torch.zeros(5))
    assert found == ["int64"]


def test_what_is_multiplied_stays_wide() -> None:
    assert rounded(lambda x: (torch.arange(30) * 0.3).to(torch.int64) * 3 + x, torch.ones(30).long()) == ["int64"]


@pytest.mark.parametrize("mode", ["bilinear", "nearest-exact"])
def test_interpolations(mode: str, needs_intrinsics: None) -> None:
    x = torch.randn(2, 3, 9, 10).contiguous(memory_format=torch.channels_last)
    kernels = check_values(lambda x: F.interpolate(x, size=(7, 21), mode=mode) + 0, x, dynamic=True, tolerance=1e-5)
    assert all("'float32', 'int64'" not in kernel.text for kernel in kernels)
