"""log1p on CUDA, as numpy runs its PTX, against torch's in float64."""

from __future__ import annotations

import numpy as np
import torch
from cuda_programs import TARGET, programs_of
from kernel_values import CudaKernel

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of

SPECIAL = (0.0, -0.0, -1.0, -2.0, np.inf, -np.inf, np.nan, 3.4e38, 1e-45, -1e-45, -0.99999994, -1e-8)


def computed(x: torch.Tensor) -> torch.Tensor:
    (program,) = programs_of(torch.log1p, (x,))
    found = torch.full_like(x, -7)
    CudaKernel(plan_kernel(program, device_of(TARGET)).text).on_tensors(x, found)
    return found


def test_at_most_1_4_ulp(needs_intrinsics: None) -> None:
    random = np.random.default_rng(0)
    parts = [
        random.uniform(-1, 3, 30_000),
        np.exp(random.uniform(-40, 88, 8_000)),
        -np.exp(random.uniform(-40, 0, 2_000)),
    ]
    x = torch.from_numpy(np.concatenate(parts).astype(np.float32))
    wanted = torch.log1p(x.double())
    ulp = torch.from_numpy(np.spacing(np.abs(wanted.numpy()).astype(np.float32)))
    assert float(((computed(x) - wanted).abs() / ulp).max()) < 1.4


def test_into_16_bits_it_is_two_instructions_and_a_short_series(needs_intrinsics: None) -> None:
    random = np.random.default_rng(1)
    some = np.concatenate([np.array(SPECIAL), random.uniform(-1, 3, 4_000), random.uniform(-0.1, 0.1, 4_000)])
    x = torch.from_numpy(some.astype(np.float32))
    (program,) = programs_of(lambda x: (torch.log1p(x) * 256).bfloat16(), (x,))
    text = plan_kernel(program, device_of(TARGET)).text
    assert "rough_log1p(" in text
    found = torch.empty_like(x, dtype=torch.bfloat16)
    CudaKernel(text).on_tensors(x, found)
    wanted = (torch.log1p(x.double()) * 256).bfloat16()
    # Half a unit of bfloat16's last place, which a value within 2**-17 of another may miss by a whole one.
    torch.testing.assert_close(found, wanted, rtol=2**-7, atol=0, equal_nan=True)
    assert torch.equal(torch.signbit(found[:2]), torch.tensor([False, True]))
    assert float((found != wanted)[~wanted.isnan()].float().mean()) < 0.01


def test_special_values(needs_intrinsics: None) -> None:
    x = torch.tensor(SPECIAL, dtype=torch.float32)
    found, wanted = computed(x), torch.log1p(x.double()).float()
    torch.testing.assert_close(found, wanted, rtol=2e-7, atol=0, equal_nan=True)
    assert torch.equal(torch.signbit(found[:2]), torch.tensor([False, True]))
