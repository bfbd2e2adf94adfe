"""Maxima and minima of NaN of either sign, of zeros and infinities, and how few instructions one takes."""

from __future__ import annotations

import itertools
import re

import pytest
import torch

import halide_backend
from halide_backend.build.target import Target
from halide_backend.inspection.compiled import compile_for

AVX2 = Target.named("avx2")
SPECIAL = (float("nan"), -float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-40, -1e-40, 2.5, -2.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_all_pairs_of_special_numbers(dtype: torch.dtype) -> None:
    """Neither NaN nor zero has a sign; of two NaNs the first is found."""
    rows = torch.tensor(list(itertools.product(SPECIAL, repeat=2)), dtype=torch.float64).to(dtype).repeat(1, 9)

    def extremes(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.amax(1), x.amin(1), x.argmax(1), x.argmin(1)

    got = compile_for("halide_backend", extremes, options={})(rows)
    for mine, eager in zip(got, extremes(rows)):
        assert torch.equal(mine.nan_to_num(99), eager.nan_to_num(99))
    for mine in got[:2]:
        assert not mine[mine.isnan() | (mine == 0)].signbit().any()


@pytest.mark.skipif(bool(AVX2.requires() - Target.host().requires()), reason="a processor without AVX2")
@pytest.mark.parametrize("function", [torch.amax, torch.amin])
def test_a_key_is_three_instructions(function: object) -> None:
    """A magnitude, a comparison and a complement; before, a NaN took a blend, and a zero one more comparison."""
    halide_backend.reset_stats()
    compile_for("halide_backend", lambda x: function(x, 1), options={"halide_backend.target": "avx2"})(
        torch.randn(64, 16)
    )
    (record,) = halide_backend.records()
    vectors = re.findall(r"^\s+(v\w+)\s.*%ymm", record.assembly(), re.MULTILINE)
    assert (
        vectors.count("vcmpltps") + vectors.count("vcmpnltps") == 2
        and vectors.count("vpmaxsd") + vectors.count("vpminsd") == 1
    )
    assert not {"vblendvps", "vpcmpeqd", "vpsrad", "vcmpunordps"} & set(vectors)
