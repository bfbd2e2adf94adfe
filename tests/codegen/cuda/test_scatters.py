"""Additions to places that are read: the steps of a thread are in flight at once, none waits for another."""

from __future__ import annotations

import re

import pytest
import torch
from cuda_programs import TARGET, programs_of
from kernel_values import CudaKernel, check_values
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.errors import IllegalPlan
from halide_backend.schedule.device import device_of


def add_columns(into: Tensor, index: Tensor, x: Tensor) -> Tensor:
    return into.index_add(1, index, x)


@pytest.mark.parametrize("rows", [64, 63])
def test_no_barrier_between_steps(rows: int, needs_intrinsics: None) -> None:
    """A barrier for each of eight steps: the gradient of an upsampling took 1.4 of the time of Triton's kernel."""
    index = torch.arange(40) * 7 % 13
    x = (torch.arange(rows * 40).reshape(rows, 40) % 50).float()
    into = torch.zeros(rows, 13)
    program = programs_of(add_columns, (into, index, x))[-1]
    kernel = CudaKernel(plan_kernel(program, device_of(TARGET), {"scatters.steps": 4, "scatters.threads": 32}).text)
    assert "bar.sync" not in kernel.code
    # Where the last block is not full it has code of its own.
    adds = len(re.findall(r"red\.\S*add\.f32", kernel.code))
    assert adds == 4 if rows == 64 else adds > 4
    found = into.clone()
    kernel.on_tensors(index, x, found)
    assert torch.equal(found, add_columns(into, index, x))


@pytest.mark.parametrize("partition", [True, False])
def test_the_last_block_has_code_of_its_own_as_requested(partition: bool, needs_intrinsics: None) -> None:
    index, x, into = torch.arange(40) * 7 % 13, torch.randint(50, (63, 40)).float(), torch.zeros(63, 13)
    program = programs_of(add_columns, (into, index, x))[-1]
    knobs = {"scatters.steps": 4, "scatters.threads": 32, "scatters.partition": partition}
    kernel = CudaKernel(plan_kernel(program, device_of(TARGET), knobs).text)
    adds = len(re.findall(r"red\.\S*add\.f32", kernel.code))
    assert adds > 4 if partition else adds == 4
    found = into.clone()
    kernel.on_tensors(index, x, found)
    assert torch.equal(found, add_columns(into, index, x))


def test_an_addition_to_a_scalar(needs_intrinsics: None) -> None:
    """There is no axis of which neighbours could lie next to each other."""
    x, index, source = (torch.tensor(value) for value in (1.5, 0, 2.25))
    check_values(lambda x, i, s: x.index_add(0, i, s), x, index, source)


def add_rows(into: Tensor, x: Tensor) -> Tensor:
    index = torch.ones(x.shape[0], dtype=torch.int64)
    return into.index_put((index,), x, accumulate=True)


def test_additions_to_one_known_place(needs_intrinsics: None) -> None:
    kernels = check_values(add_rows, torch.zeros(3, 256), torch.randint(-9, 10, (64, 256)).float())
    assert any("memory.added(" in kernel.text for kernel in kernels)


def test_a_thread_adds_once_to_one_known_place(needs_intrinsics: None) -> None:
    """LLVM took the first of two steps for a store that the second one overwrites: the kernel was refused."""
    program = programs_of(add_rows, (torch.zeros(3, 256), torch.zeros(1 << 15, 256)))[-1]
    kernel = CudaKernel(plan_kernel(program, device_of(TARGET)).text)
    assert len(re.findall(r"red\.\S*add", kernel.code)) == 1


def add_to_several(into: Tensor, x: Tensor) -> Tensor:
    """Each element, multiplied, to four places, as an interpolation's gradient is added."""
    number = torch.arange(4)
    places = torch.arange(x.shape[0])[:, None] * (number + 1) % into.shape[0]
    values = torch.where(number == 0, x[:, None] - 1, torch.where(number == 1, x[:, None] * 3, x[:, None] * number))
    return into.index_put((places,), values, accumulate=True)


@pytest.mark.parametrize("elements", [512, 999])
def test_a_thread_loads_once_what_it_adds_to_several_places(elements: int, needs_intrinsics: None) -> None:
    x = torch.randint(-50, 50, (elements,)).float()
    kernels = check_values(add_to_several, torch.zeros(13), x)
    (kernel,) = (each for each in kernels if "memory.added(" in each.text)
    adds, loads = (len(re.findall(pattern, kernel.code)) for pattern in (r"red\.\S*add", r"ld\.global"))
    assert loads in (2, 4)  # two elements of a thread, again where the last block is not full
    assert 4 * loads - 1 <= adds <= 4 * loads  # of one of which the compiler has joined both versions


def test_a_thread_has_all_of_what_is_added_from_an_element(needs_intrinsics: None) -> None:
    program = programs_of(add_to_several, (torch.zeros(13), torch.zeros(512)))[-1]
    with pytest.raises(IllegalPlan, match="all 4 points"):
        plan_kernel(program, device_of(TARGET), {"scatters.steps": 2})
