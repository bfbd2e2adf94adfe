"""Transposes through shared memory: sides of tiles, words; kernels run as numpy runs their PTX."""

from __future__ import annotations

import pytest
import torch
from cuda_programs import TARGET, programs_of
from kernel_values import CudaKernel, check_values

from halide_backend.codegen.planned_kernel import PlannedKernel, plan_kernel
from halide_backend.schedule.cuda import shared_transposes
from halide_backend.schedule.device import device_of


def numbered(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Numbers that every dtype here has, no two neighbours equal in any direction."""
    count = torch.arange(torch.Size(shape).numel()).reshape(shape)
    return ((count * 7 + count // 13) % 120).to(dtype)


def planned(x: torch.Tensor) -> PlannedKernel:
    (program,) = programs_of(lambda x: x.permute(0, 2, 1).contiguous(), (x,))
    kernel = plan_kernel(program, device_of(TARGET))
    assert kernel.plan.mapping.rule == "shared_transposes"
    return kernel


@pytest.fixture
def many_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few tiles be many."""
    monkeypatch.setattr(shared_transposes, "_ENOUGH_TILES", 1)


@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "elements", "side", "lines"),
    [
        # Rows of a few words: bytes were stored one by one, and pairs only where they filled 32 or 64 elements.
        (torch.int8, 32, 201, 4, 8, 64),
        (torch.bool, 48, 131, 4, 12, 64),
        (torch.bfloat16, 20, 134, 2, 10, 64),
        (torch.float16, 12, 70, 2, 6, 64),
        # Longer ones only where they fill tiles.
        (torch.bfloat16, 128, 67, 2, 32, 64),
        (torch.bfloat16, 330, 67, 1, 64, 32),
        (torch.int8, 66, 93, 1, 64, 32),
        # All lines of a narrow tile, where they are no whole warps.
        (torch.bfloat16, 181, 35, 1, 64, 35),
        (torch.bfloat16, 181, 61, 1, 64, 61),
        (torch.float32, 181, 35, 1, 64, 64),
        # All of a short axis.
        (torch.float32, 20, 67, 1, 20, 64),
        (torch.float32, 14, 67, 1, 14, 64),
        # Much of a large tile would be beyond the end, which words do not mind.
        (torch.bfloat16, 93, 143, 1, 32, 32),
        (torch.float32, 93, 143, 1, 64, 64),
    ],
    ids=str,
)
def test_sides(
    dtype: torch.dtype,
    rows: int,
    columns: int,
    elements: int,
    side: int,
    lines: int,
    many_tiles: None,
    needs_intrinsics: None,
) -> None:
    """The channels of 84 x 32 x 55 x 55 bytes to the last dimension 9.9 us on an H200, in words 7.7 us; the dimensions
    0, 3, 2, 1 of 582 x 61 x 7 x 33 bfloat16 16.2 us, with 33 lines 13.8 us."""
    x = numbered((2, rows, columns), torch.int8) > 60 if dtype is torch.bool else numbered((2, rows, columns), dtype)
    kernel = planned(x)
    tiling = kernel.plan.mapping.tiling
    assert tiling is not None and (tiling.elements, tiling.side, tiling.lines) == (elements, side, lines)
    wanted = x.permute(0, 2, 1).contiguous()
    found = ~wanted if dtype is torch.bool else torch.full_like(wanted, -1)
    cuda = CudaKernel(kernel.text)
    cuda.on_tensors(x, found)
    assert torch.equal(found, wanted)
    single = {1: "st.global.b8", 2: "st.global.b16", 4: "st.global.b32"}[dtype.itemsize]
    assert (single in cuda.code) == (elements == 1)


@pytest.mark.parametrize(("rows", "columns"), [(32, 2809), (20, 4608), (2048, 35)], ids=str)
def test_loads_of_a_tile_wait_for_no_branch(rows: int, columns: int, many_tiles: None, needs_intrinsics: None) -> None:
    """Halide lost the bounds of the fused loop of threads: each load was guarded, and came after the one before was
    stored. The channels of 170 x 53 x 53 x 32 bytes to the front 29.8 us on an H200, unguarded loads 17.6 us."""
    code = CudaKernel(planned(torch.zeros(1, rows, columns, dtype=torch.bfloat16)).text).code
    loading = code[: code.index("bar.sync")]
    branches = [line for line in loading.splitlines() if "bra " in line or "bra\t" in line]
    assert loading.count("ld.global") >= 8 and len(branches) <= 2


def test_legality_knows_how_often_fused_loops_of_threads_run() -> None:
    """It took a fused loop for none along either axis, and the loop that is unrolled for all of a long axis."""
    tiling = planned(torch.zeros(1, 4096, 37, dtype=torch.bfloat16)).plan.mapping.tiling
    assert tiling is not None and (tiling.elements, tiling.side, tiling.lines) == (2, 32, 37)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8, torch.float32], ids=str)
@pytest.mark.parametrize(("rows", "columns"), [(40, 56), (20, 134), (181, 35), (14, 67)], ids=str)
def test_several_outputs_share_two_dimensions_of_threads(
    dtype: torch.dtype, rows: int, columns: int, many_tiles: None
) -> None:
    """Three outputs of 300 x 40 x 56 bfloat16 had tiles of 28 words, whose threads are one fused loop; no schedule was
    legal, and Triton got the kernel."""
    x, y = numbered((3, rows, columns), dtype), numbered((3, columns, rows), dtype)
    kernels = check_values(lambda x, y: (x.mT + y, x.mT * y, y - x.mT), x, y)
    together = [kernel.text for kernel in kernels if kernel.text.count("Role.OUTPUT") > 1]
    assert together and all("SHARED_TRANSPOSE" in text and "ComputeWith" in text for text in together)
