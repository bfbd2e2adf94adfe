"""Constants of partly empty vectors are whole again."""

from __future__ import annotations

import re

import pytest
import torch

import halide_backend
from halide_backend.build.llvm.poison_lanes import with_whole_constants
from halide_backend.build.target import Target
from halide_backend.inspection.compiled import compile_for

AVX512 = Target.named("avx512")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("  %a = add <4 x i32> %x, <i32 7, i32 7, i32 poison, i32 poison>", "  %a = add <4 x i32> %x, splat (i32 7)"),
        (
            "  %a = fadd <3 x float> <float poison, float 1.0e+00, float 1.0e+00>, %x",
            "  %a = fadd <3 x float> splat (float 1.0e+00), %x",
        ),
    ],
)
def test_a_constant_is_one_number(line: str, expected: str) -> None:
    assert with_whole_constants(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "  %a = add <3 x i32> %x, <i32 7, i32 8, i32 poison>",
        "  %a = shufflevector <4 x float> %x, <4 x float> poison, <4 x i32> <i32 0, i32 0, i32 poison, i32 poison>",
        "  %a = insertelement <4 x float> poison, float %x, i64 0",
    ],
    ids=["two numbers", "a shuffle", "no constant"],
)
def test_others_stay(line: str) -> None:
    assert with_whole_constants(line) == line


@pytest.mark.skipif(bool(AVX512.requires() - Target.host().requires()), reason="a processor without AVX-512")
def test_the_last_vector_of_a_row_is_like_the_others() -> None:
    halide_backend.reset_stats()
    x = torch.randn(300, 37)
    options = {"halide_backend.target": "avx512"}
    result = compile_for("halide_backend", lambda x: x.log_softmax(-1), options=options)(x)
    torch.testing.assert_close(result, x.double().log_softmax(-1).float(), rtol=1e-5, atol=1e-6)
    (record,) = halide_backend.records()
    # Three vectors of each of four rows, whose last lanes are added up together.
    assert len(re.findall("vscalefps", record.assembly())) == 4 * 3
