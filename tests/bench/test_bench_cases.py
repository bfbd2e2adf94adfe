"""The cases of the benchmark: what there is, what is held back, that every kernel runs in eager."""

from __future__ import annotations

import re
from collections import Counter
from itertools import permutations

import pytest
import torch

from halide_backend.bench.case import DTYPES, SIZES, Case, Kernel, Selection, cases
from halide_backend.bench.kernels import GROUPS
from halide_backend.bench.operands import Operands, images, with_like

ALL = list(cases(GROUPS, "cpu", Selection()))
KERNELS = {kernel.name: kernel for kernels in GROUPS.values() for kernel in kernels}


def test_enough_kernels_with_names_of_their_own() -> None:
    names = [kernel.name for kernels in GROUPS.values() for kernel in kernels]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names)
    assert sum(kernel.timed for kernel in KERNELS.values()) >= 250
    assert {dtype for kernel in KERNELS.values() for dtype in kernel.dtypes} <= set(DTYPES)
    for dtype, least in {"float32": 250, "bfloat16": 200, "float16": 5, "int8": 10}.items():
        assert sum(kernel.timed and dtype in kernel.dtypes for kernel in KERNELS.values()) >= least


def test_every_permutation_of_three_and_four_dimensions_is_there() -> None:
    for dimensions in (3, 4):
        for order in permutations(range(dimensions)):
            name = f"permute_{''.join(map(str, order))}"
            assert (name in KERNELS) == (order != tuple(range(dimensions)))


@pytest.mark.parametrize("device", SIZES)
def test_sizes_are_within_and_beyond_caches_and_unlike_vectors(device: str) -> None:
    assert len(SIZES[device]) == 3
    assert {columns % 8 for _, columns in SIZES[device].values()} >= {0, 1}
    bytes_of = [4 * rows * columns for rows, columns in SIZES["cpu"].values()]
    assert bytes_of[0] < 256 << 10
    assert 1 << 20 < bytes_of[1] < 8 << 20
    assert bytes_of[2] > 64e6


def test_every_kernel_runs_at_every_size_in_its_dtypes_once() -> None:
    assert len({case.name for case in ALL}) == len(ALL)
    counts = Counter(case.kernel.name for case in ALL)
    for name, kernel in KERNELS.items():
        assert counts[name] == len(kernel.dtypes) * (1 if kernel.fixed else 3)


def test_about_half_is_held_back_and_always_the_same_half() -> None:
    held_back = [case for case in ALL if case.held_back]
    assert 0.45 < len(held_back) / len(ALL) < 0.55
    by_name = {case.name: case.held_back for case in ALL}
    assert (by_name["softmax_61x509_float32"], by_name["softmax_4099x4001_float32"]) == (True, False)
    # Of every group some are seen, and some are not.
    assert {case.group for case in held_back} == {case.group for case in ALL if not case.held_back} == set(GROUPS)


def test_a_selection_is_by_group_or_part_of_a_name_by_size_and_by_dtype() -> None:
    assert {case.group for case in cases(GROUPS, "cpu", Selection(only=("scans",)))} == {"scans"}
    (one,) = cases(GROUPS, "cpu", Selection(("row_sum_8_",), ("small",), ("bfloat16",)))
    assert one.name == "row_sum_8_61x509_bfloat16"
    assert list(cases(GROUPS, "cpu", Selection(("no such kernel",)))) == []


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_every_kernel_runs_in_eager(kernel: Kernel) -> None:
    for rows, columns in ((64, 66), (67, 65)):
        for dtype in kernel.dtypes:
            kernel.function(*kernel.operands(Operands(rows, columns, DTYPES[dtype], "cpu")))


def test_the_gradient_is_that_of_autograd() -> None:
    x, gradient = torch.randn(3, 5, requires_grad=True), torch.randn(3, 5)
    (wanted,) = torch.autograd.grad(torch.softmax(x, -1), x, gradient)
    torch.testing.assert_close(KERNELS["softmax_backward"].function(x.detach(), gradient)[0], wanted)


def test_operands_have_the_dtype_and_the_layout_that_is_asked_for() -> None:
    make = Operands(61, 509, torch.float32, "cpu")
    assert make.of(torch.int8)(3).dtype == torch.int8
    assert make.of(torch.bool)(3).dtype == torch.bool
    x, w = images(1, channels_last=True)(make)
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert (x.shape[1], w.shape) == (32, (32,))
    *_, gradient = with_like(images(channels_last=True), torch.relu)(make)
    assert gradient.is_contiguous(memory_format=torch.channels_last)
    for size in SIZES["cpu"].values():
        every = Operands(*size, torch.float32, "cpu")
        for made in (every.images, every.box, every.heads, every.scores):
            if size[0] < 4096:
                assert 0.5 < made().numel() / every.elements < 1.1, (size, made)


def test_a_case_makes_its_operands_for_its_size() -> None:
    kernel = Kernel("k", torch.relu, lambda make: make.matrices(1))
    (x,) = Case("g", kernel, "small", "bfloat16", "cpu").arguments()
    assert (tuple(x.shape), x.dtype) == ((61, 509), torch.bfloat16)
