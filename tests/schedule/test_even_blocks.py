"""Blocks of columns with accumulators are of even length: the last one, which begins earlier, repeats little."""

from __future__ import annotations

import math
import re

import pytest
import torch

import halide_backend
from halide_backend.inspection.compiled import compile_for


@pytest.mark.parametrize("columns", [10_283, 5_000, 3_100])
def test_the_last_block_repeats_little(columns: int) -> None:
    """Of 10,283 columns the last of 11 blocks of 1,024 computed 981 again."""
    halide_backend.reset_stats()
    x = torch.randn(60, columns)
    compiled = compile_for("halide_backend", lambda x: x.sum(0), options={"halide_backend.target": "avx2"})
    torch.testing.assert_close(compiled(x), x.double().sum(0).float(), rtol=1e-5, atol=1e-5)
    assert not compiled.delegated
    (record,) = halide_backend.records()
    found = re.search(r"Split\('out_ptr0', 'x0', 'x0_b', 'x0_i', (\d+)", record.text)
    assert found
    block = int(found[1])
    assert math.ceil(columns / block) * block - columns < columns // 16
