"""Which kernels give up registers for one more block."""

from __future__ import annotations

import pytest

from halide_backend.schedule.knobs import Choices
from halide_backend.schedule.mapping.registers import register_limit
from halide_backend.schedule.tiling import Tiling, TilingKind


@pytest.mark.parametrize(
    ("threads", "warps", "limit"), [(1024, 1, 0.8), (512, 1, 0.8), (32, 16, 0.8), (256, 1, "auto"), (32, 8, "auto")]
)
def test_large_blocks_give_up_a_fifth(threads: int, warps: int, limit: str | float) -> None:
    tiling = Tiling(TilingKind.REGISTERS, ("y",), ("x",), threads=threads, warps=warps)
    assert register_limit(tiling, Choices()) == limit
    assert register_limit(tiling, Choices({"registers.limit": 64})) == 64
    assert register_limit(tiling, Choices({"registers.limit": "auto"})) == "auto"
