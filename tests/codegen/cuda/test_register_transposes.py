"""Transposes in registers, whichever of the two axes is the outer one; kernels run as numpy runs their PTX."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from cuda_programs import TARGET, programs_of
from kernel_values import CudaKernel

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of
from halide_backend.schedule.steps import Split

IN_REGISTERS = {"register_transposes.applies": True}


def numbered(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Numbers that every dtype here has, no two neighbours equal in any direction."""
    count = torch.arange(torch.Size(shape).numel()).reshape(shape)
    return ((count * 7 + count // 13) % 120).to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int8], ids=str)
@pytest.mark.parametrize("order", [o for o in permutations(range(3)) if o[2] != 2], ids=str)
def test_every_permutation(order: tuple[int, ...], dtype: torch.dtype, needs_intrinsics: None) -> None:
    """Where the stored axis was an outer one, words were made of elements along the other: 7 of 8 were wrong."""
    # Rows of less than four vectors are stored side by side, which bytes are not.
    x = numbered((32 if dtype is torch.int8 else 16, 32, 48), dtype)
    wanted = x.permute(order).contiguous()
    (program,) = programs_of(lambda x: x.permute(order).contiguous(), (x,))
    kernel = plan_kernel(program, device_of(TARGET), IN_REGISTERS)
    assert kernel.plan.mapping.rule == "register_transposes"
    found = torch.full_like(wanted, -1)
    CudaKernel(kernel.text).on_tensors(x, found)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize(
    ("first", "second"),
    [(torch.int8, torch.int8), (torch.bool, torch.bfloat16), (torch.bfloat16, torch.int8), (torch.int8, torch.float32)],
    ids=str,
)
@pytest.mark.parametrize("shape", [(24, 40), (64, 32)], ids=str)
def test_bytes_have_half_vectors(
    first: torch.dtype, second: torch.dtype, shape: tuple[int, int], needs_intrinsics: None
) -> None:
    x, y = numbered(shape, first), numbered(shape[::-1], second)

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.where(x.t() > 60, y, -y) if x.dtype is not torch.bool else torch.where(x.t(), y, -y)

    wanted = function(x, y)
    (program,) = programs_of(function, (x, y))
    kernel = plan_kernel(program, device_of(TARGET), IN_REGISTERS)
    assert kernel.plan.mapping.rule == "register_transposes"
    found = torch.full_like(wanted, -1)
    cuda = CudaKernel(kernel.text)
    cuda.on_tensors(x, y, found)
    assert torch.equal(found, wanted)
    assert "ld.global.nc.b8" not in cuda.code and "ld.global.nc.b16" not in cuda.code


@pytest.mark.parametrize(("channels", "factors"), [(48, [8, 16]), (32, [4, 32])], ids=str)
def test_threads_store_as_much_of_bytes(channels: int, factors: list[int], needs_intrinsics: None) -> None:
    """Four half vectors were a sector, and the last two of six of a row a block's: 48 channels of 219 x 56 x 56 bytes
    37.1 us on an H200, 25.0 us so."""
    x = numbered((2, channels, 256), torch.int8)
    (program,) = programs_of(lambda x: x.permute(0, 2, 1).contiguous(), (x,))
    kernel = plan_kernel(program, device_of(TARGET), IN_REGISTERS)
    assert [step.factor for step in kernel.plan.steps if isinstance(step, Split)][:2] == factors
    found = torch.full_like(x.permute(0, 2, 1).contiguous(), -1)
    CudaKernel(kernel.text).on_tensors(x, found)
    assert torch.equal(found, x.permute(0, 2, 1))


@pytest.mark.parametrize(
    ("dtype", "columns", "rule"),
    [
        (torch.bfloat16, 1000, "shared_transposes"),
        (torch.bfloat16, 1008, "register_transposes"),
        (torch.int8, 1000, "register_transposes"),
    ],
    ids=str,
)
def test_rows_of_an_odd_number_of_vectors_go_through_shared_memory(dtype: torch.dtype, columns: int, rule: str) -> None:
    """They begin within sectors: 36864 x 1000 bfloat16 56.0 us on an H200 in registers, 45.3 us so."""
    x = torch.empty(columns, 4096, dtype=dtype)
    (program,) = programs_of(lambda x: x.t().contiguous(), (x,))
    assert plan_kernel(program, device_of(TARGET)).plan.mapping.rule == rule


def test_channels_last_after_arithmetic(needs_intrinsics: None) -> None:
    x = numbered((3, 16, 8, 24), torch.bfloat16)

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * 2 + 1).contiguous(memory_format=torch.channels_last)

    (program,) = programs_of(function, (x,))
    kernel = plan_kernel(program, device_of(TARGET), IN_REGISTERS)
    assert kernel.plan.mapping.rule == "register_transposes"
    found = torch.full_like(function(x), -1)
    CudaKernel(kernel.text).on_tensors(x, found)
    assert torch.equal(found, function(x))


def test_threads_go_on_where_the_stored_axis_is_one_vector(needs_intrinsics: None) -> None:
    """All but 8 of 128 threads had nothing: 8192 x 4096 bfloat16 took 115 us, so 39 us (Triton 39 us)."""
    x = numbered((16, 24, 8, 64), torch.bfloat16)
    wanted = x.permute(3, 1, 0, 2).contiguous()
    (program,) = programs_of(lambda x: x.permute(3, 1, 0, 2).contiguous(), (x,))
    kernel = plan_kernel(program, device_of(TARGET), IN_REGISTERS)
    threads = [step for step in kernel.plan.steps if isinstance(step, Split)]
    assert [step.factor for step in threads] == [4, 32]
    found = torch.full_like(wanted, -1)
    CudaKernel(kernel.text).on_tensors(x, found)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize(("dtype", "factors"), [(torch.bfloat16, [1, 16, 4]), (torch.float32, [2, 64, 2])], ids=str)
def test_short_rows_are_stored_side_by_side(dtype: torch.dtype, factors: list[int], needs_intrinsics: None) -> None:
    """8 of 128 threads had tiles of 8 x 8, and a block 1 KiB: 8192 x 4096 bfloat16 44.5 us, 0.80 of Triton's speed.
    Threads along 64 elements of bfloat16 are 16 pairs."""
    x = numbered((4, 16, 8, 64), dtype)
    wanted = x.permute(1, 0, 3, 2).contiguous()
    (program,) = programs_of(lambda x: x.permute(1, 0, 3, 2).contiguous(), (x,))
    kernel = plan_kernel(program, device_of(TARGET), IN_REGISTERS)
    assert kernel.plan.mapping.rule == "register_transposes"
    threads = [step for step in kernel.plan.steps if isinstance(step, Split)]
    assert [step.factor for step in threads] == factors
    found = torch.full_like(wanted, -1)
    cuda = CudaKernel(kernel.text)
    cuda.on_tensors(x, found)
    assert torch.equal(found, wanted)
    assert cuda.code.count("st.global.v4") + cuda.code.count("st.global.v2.b64") == 2 if dtype is torch.bfloat16 else 1


@pytest.mark.parametrize("threads", [64, 128, 256])
@pytest.mark.parametrize(
    ("shape", "swapped"),
    [
        ((3, 5, 8, 64), True),
        ((2, 3, 8, 192), True),
        ((2, 9, 8, 256), True),
        ((4, 5, 8, 48), False),
        ((4, 6, 16, 64), False),
    ],
    ids=str,
)
def test_neighbours_swap_a_line(shape: tuple[int, ...], swapped: bool, threads: int, needs_intrinsics: None) -> None:
    """Of two lines of 16 bytes each store wrote half of every sector: 8192 x 4096 bfloat16 40.5 us, 0.92 of Triton's
    speed. Where lines fill no warps, or two chunks of a line a sector, nothing is swapped."""
    x = numbered(shape, torch.bfloat16)

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * 2 - 3).permute(1, 0, 3, 2).contiguous()

    (program,) = programs_of(function, (x,))
    knobs = {**IN_REGISTERS, "register_transposes.threads": threads}
    cuda = CudaKernel(plan_kernel(program, device_of(TARGET), knobs).text)
    assert cuda.code.count("shfl.sync.bfly") == 4 * swapped
    found = torch.full_like(function(x), -1)
    cuda.on_tensors(x, found)
    assert torch.equal(found, function(x))


@pytest.mark.parametrize(("shape", "factors"), [((2048, 8), [128, 1]), ((512, 24), [8, 4])], ids=str)
def test_no_thread_is_idle_where_rows_are_short(
    shape: tuple[int, int], factors: list[int], needs_intrinsics: None
) -> None:
    """Of rows of 8 four threads of 128 had a tile: 4,194,304 rows of bfloat16 85 us, Triton's 36 us. Of longer ones a
    warp reads all: the channels of 381 x 32 x 52 x 52 bfloat16 to the front 38.9 us, 36.5 us so, Triton's 35.2 us."""
    x = numbered(shape, torch.bfloat16)
    (program,) = programs_of(lambda x: x.t().contiguous(), (x,))
    kernel = plan_kernel(program, device_of(TARGET), IN_REGISTERS)
    assert [step.factor for step in kernel.plan.steps if isinstance(step, Split)] == factors
    found = torch.full_like(x.t().contiguous(), -1)
    CudaKernel(kernel.text).on_tensors(x, found)
    assert torch.equal(found, x.t())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8], ids=str)
def test_what_becomes_wider_along_an_odd_axis_goes_through_shared_memory(
    dtype: torch.dtype, needs_intrinsics: None
) -> None:
    """Of what is read along 64 elements a thread would have vectors, of what is stored along 37 single words."""
    x = torch.randint(-99, 99, (3, 37, 64), generator=torch.Generator().manual_seed(0)).to(dtype)
    (program,) = programs_of(lambda x: x.mT.float().contiguous(), (x,))
    kernel = plan_kernel(program, device_of(TARGET))
    assert kernel.plan.mapping.rule == "shared_transposes"
    found = torch.empty(3, 64, 37)
    CudaKernel(kernel.text).on_tensors(x, found)
    assert torch.equal(found, x.mT.float())


def test_what_a_line_has_in_common_is_a_number(needs_intrinsics: None) -> None:
    """Means and deviations of groups of channels, from channels-last to channels-first: 91.4 us through shared memory
    on an H200 (340 x 32 x 52 x 52 bfloat16), 61.7 us in registers."""

    def function(x: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        groups = (x.view(6, 4, 4, 48) - mean[:, :, None, None]) * scale[:, :, None, None]
        return torch.empty(6, 16, 48, dtype=x.dtype).copy_((groups * w.view(4, 4)[None, :, :, None]).view(6, 16, 48))

    x, w = numbered((6, 48, 16), torch.bfloat16).mT, numbered((16,), torch.bfloat16)
    mean, scale = numbered((6, 4), torch.bfloat16), numbered((6, 4), torch.bfloat16) + 1
    wanted = function(x, mean, scale, w)
    (program,) = programs_of(function, (x, mean, scale, w))
    kernel = plan_kernel(program, device_of(TARGET), IN_REGISTERS)
    assert kernel.plan.mapping.rule == "register_transposes"
    found, rest = torch.full_like(wanted, -1), iter((mean, scale))
    known = {x.numel(): x, w.numel(): w}
    given = [known.get(int(buffer.extent)) for buffer in program.inputs]
    CudaKernel(kernel.text).on_tensors(*(next(rest) if each is None else each for each in given), found)
    torch.testing.assert_close(found, wanted)
