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
    assert loads in (1, 2)  # an element of a thread, again where the last block is not full
    assert 4 * loads - 1 <= adds <= 4 * loads  # of one of which the compiler has joined both versions


def test_a_thread_has_all_of_what_is_added_from_an_element(needs_intrinsics: None) -> None:
    program = programs_of(add_to_several, (torch.zeros(13), torch.zeros(512)))[-1]
    with pytest.raises(IllegalPlan, match="all 4 points"):
        plan_kernel(program, device_of(TARGET), {"scatters.steps": 2})


def fold(x: Tensor) -> Tensor:
    return torch.nn.functional.fold(x, (128, 128), 3, padding=1)


def add_neighbours(into: Tensor, index: Tensor, x: Tensor) -> Tensor:
    """Each element to two places, which mostly are those of a neighbour."""
    places = index[:, None] + torch.arange(2) * 5
    return into.index_put((places,), x[:, None] * (torch.arange(2) + 1), accumulate=True)


def add_by_index(into: Tensor, index: Tensor, x: Tensor) -> Tensor:
    return into.index_put((index,), x, accumulate=True)


@pytest.mark.parametrize("elements", [512, 999])
def test_two_elements_that_go_to_one_place_are_added_as_their_sum(elements: int, needs_intrinsics: None) -> None:
    """Additions of a warp to one place wait for each other: the gradient of a bilinear upsampling to 75 x 91 of 40 x 44
    took twice as long as that of one to 80 x 88, in which a warp has no two of one place."""
    x = torch.randint(-50, 50, (elements,)).float()
    kernels = check_values(add_neighbours, torch.zeros(505), torch.arange(elements) // 2, x)
    (kernel,) = (each for each in kernels if "memory.added(" in each.text)
    assert "unroll=4" in kernel.text and "r_0_n, 2)" in kernel.text
    # The compiler may join the ends of what full and other blocks do.
    assert kernel.code.count("@!same") == (2 if elements == 512 else 1)


def test_elements_that_go_to_known_places_are_done_one_by_one(needs_intrinsics: None) -> None:
    """To LLVM two additions to one of them were stores, of which the first has no effect."""

    def add_in_twos(into: Tensor, x: Tensor) -> Tensor:
        return add_neighbours(into, torch.arange(x.shape[0]) // 2, x)

    kernels = check_values(add_in_twos, torch.zeros(505), torch.randint(-50, 50, (512,)).float())
    assert any("memory.added(" in kernel.text for kernel in kernels)


def test_neighbours_are_added_as_their_sum(needs_intrinsics: None) -> None:
    index, x, into = torch.arange(256) // 2 * 3 % 40, torch.randint(50, (256,)).float(), torch.zeros(40)
    program = programs_of(add_by_index, (into, index, x))[-1]
    kernel = CudaKernel(plan_kernel(program, device_of(TARGET), {"scatters.steps": 4, "scatters.threads": 32}).text)
    assert kernel.code.count("@!same") == 2
    found = into.clone()
    kernel.on_tensors(index, x, found)
    assert torch.equal(found, add_by_index(into, index, x))


def test_additions_to_places_along_all_axes_take_several_steps(needs_intrinsics: None) -> None:
    """The gradient of patches: each element of one goes to a known place, but two never provably to one."""
    x = torch.randint(-9, 10, (2, 27, 1024)).float()
    kernels = check_values(lambda x: torch.nn.functional.fold(x, (32, 32), 3, padding=1), x)
    (kernel,) = (each for each in kernels if "memory.added(" in each.text)
    assert "@!same" not in kernel.code
    (program,) = (p for p in programs_of(fold, (torch.zeros(64, 27, 16384),)) if any(s.mode for s in p.stores))
    tiling = plan_kernel(program, device_of(TARGET)).plan.mapping.tiling
    assert tiling is not None and tiling.unroll > 1


@pytest.mark.parametrize(("rows", "threads"), [(999, 128), (9999, 512)])
def test_many_threads_of_one_step_are_large_blocks(rows: int, threads: int, needs_intrinsics: None) -> None:
    """The gradient of patches, 120,960 blocks of 128 threads, took as long as it takes to start these."""
    program = programs_of(add_rows, (torch.zeros(3, 256), torch.zeros(rows, 256)))[-1]
    assert f"threads={threads}" in plan_kernel(program, device_of(TARGET)).text
