"""sin, cos and tan of float64 on CUDA, as numpy runs their PTX, against mpmath."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath as mp
import numpy as np
import pytest
import torch
from cuda_programs import TARGET, Ptx, programs_of
from kernel_values import CudaKernel
from torch import Tensor

from halide_backend.build.ptx import wide_range_reduction
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.kernel_library.mathematics import angle
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import device_of

#: The largest errors in ulps are those of the CPU's functions (docs/reference/accuracy.md).
MOST = {torch.sin: 0.6, torch.cos: 0.6, torch.tan: 0.65}
TRUTH = {torch.sin: mp.sin, torch.cos: mp.cos, torch.tan: mp.tan}

#: 2**30, where the long way begins, its neighbours, and the number that comes nearest to a multiple of pi/2.
EDGES = [2.0**30, math.nextafter(2.0**30, 0), math.nextafter(2.0**30, math.inf), 6381956970095103 * 2.0**797]


def arguments() -> Tensor:
    """Usual ones, next to multiples of pi/2, of all sizes, and where the way changes; of both signs."""
    random = np.random.default_rng(0)
    multiples = np.rint(np.exp(random.uniform(0, 34, 150))) * (math.pi / 2)
    sizes = np.ldexp(random.uniform(1, 2, 250), random.integers(-1074, 1024, 250))
    usual = [random.uniform(-1, 1, 100), random.uniform(-20, 20, 150)]
    x = np.concatenate([*usual, multiples, sizes, -sizes[:100], EDGES, [-EDGES[0], 1.7e308, 5e-324]])
    return torch.from_numpy(np.resize(x, 768))


def computed(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    (program,) = programs_of(function, (x,))
    found = torch.full_like(x, -7)
    CudaKernel(plan_kernel(program, device_of(TARGET)).text).on_tensors(x, found)
    return found


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("function", MOST, ids=lambda function: function.__name__)
def test_errors(needs_intrinsics: None, function: Callable[[Tensor], Tensor]) -> None:
    x = arguments()
    found = computed(function, x)
    with mp.workprec(1300):
        wanted = [TRUTH[function](mp.mpf(number)) for number in x.tolist()]
        errors = [
            float(abs(mp.mpf(value) - right) / np.spacing(abs(float(right))))
            for value, right in zip(found.tolist(), wanted, strict=True)
        ]
    assert max(errors) < MOST[function]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("function", MOST, ids=lambda function: function.__name__)
def test_special_values(needs_intrinsics: None, function: Callable[[Tensor], Tensor]) -> None:
    x = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, -1e-310, 1.0, -1.0] * 8, dtype=torch.float64)
    found, wanted = computed(function, x), function(x)
    number = ~wanted.isnan()
    assert torch.equal(found.isnan(), ~number)
    torch.testing.assert_close(found[number], wanted[number], rtol=1e-15, atol=0)
    assert torch.equal(torch.signbit(found[number]), torch.signbit(wanted[number]))


def test_large_angles_alone_take_the_long_way(to_ptx: Callable[[LoopProgram], Ptx]) -> None:
    """Its products of 64-bit integers lie behind a branch; there were 36 of two elements."""
    (program,) = programs_of(torch.sin, (torch.rand(512, 64, dtype=torch.float64),))
    code = to_ptx(program).code
    short = "\n".join(line for line in code.splitlines() if "mul.hi.u64" not in line)
    assert "@small bra" in code and "mul.lo" not in short


def test_the_bits_are_those_of_the_mathematics() -> None:
    assert wide_range_reduction.TWO_OVER_PI == angle.TWO_OVER_PI
