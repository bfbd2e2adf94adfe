"""When a kernel is assembled again with fewer registers, for one more block on a multiprocessor."""

from __future__ import annotations

import pytest

from halide_backend.build.ptx.ptxas import _more_blocks


@pytest.mark.parametrize(
    ("registers", "threads", "blocks"),
    [
        (40, 512, 4),  # three blocks of 20,480 registers fit; four have 32 for each thread
        (34, 512, 4),
        (32, 512, 0),  # as many threads as there can be
        (56, 512, 0),  # a third block would leave 40 of 56
        (40, 128, 0),  # one small block more or less
    ],
)
def test_slightly_fewer_registers_make_room_for_another_block(registers: int, threads: int, blocks: int) -> None:
    told = f"ptxas info    : Used {registers} registers, used 1 barriers"
    assert _more_blocks(f".visible .entry k()\n.maxntid {threads}, 1, 1\n{{}}", told) == blocks


def test_several_kernels_stay_as_they_are() -> None:
    assert _more_blocks(".maxntid 512, 1, 1\n", "Used 40 registers\nUsed 40 registers") == 0
