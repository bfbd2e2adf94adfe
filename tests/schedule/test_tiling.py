"""Arithmetic of tilings."""

from __future__ import annotations

from halide_backend.schedule.tiling import Tiling, TilingKind


def test_steps_cover_every_chunk() -> None:
    even = Tiling(TilingKind.BLOCK, ("x0",), ("x1",), "x1", 4, 1024, 256)
    assert (even.steps, even.ragged) == (4, False)
    ragged = Tiling(TilingKind.BLOCK, ("x0",), ("x1",), "x1", 4, 1025, 256)
    assert (ragged.steps, ragged.ragged) == (5, True)
    # Of a typical number of chunks nothing follows.
    computed = Tiling(TilingKind.BLOCK, ("x0",), ("x1",), "", 1, 1024, 256, computed=True)
    assert (computed.steps, computed.ragged) == (4, True)
