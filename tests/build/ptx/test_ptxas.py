"""How many registers the assembler leaves a thread."""

from __future__ import annotations

import re

import pytest

from halide_backend.build.ptx import ptxas
from halide_backend.build.ptx.ptxas import _another_block


@pytest.mark.parametrize(
    ("registers", "threads", "part", "blocks"),
    [
        (40, 512, 0.8, 4),  # three blocks of 20,480 registers fit; four have 32 for each thread
        (34, 512, 0.8, 4),
        (32, 512, 0.8, 0),  # as many threads as there can be
        (56, 512, 0.8, 0),  # a third block would leave 40 of 56
        (56, 512, 0.7, 3),
        (40, 512, 0.81, 0),
    ],
)
def test_slightly_fewer_registers_make_room_for_another_block(
    registers: int, threads: int, part: float, blocks: int
) -> None:
    told = f"ptxas info    : Used {registers} registers, used 1 barriers"
    assert _another_block(f".visible .entry k()\n.maxntid {threads}, 1, 1\n{{}}", told, part) == blocks


def test_several_kernels_stay_as_they_are() -> None:
    assert _another_block(".maxntid 512, 1, 1\n", "Used 40 registers\nUsed 40 registers", 0.8) == 0


#: Loads 33 numbers before it stores any: with the 32 registers that would leave room for a fourth block of 512 threads
#: some of them would lie in memory.
LOADS = 34
KERNEL = f"""
.version 7.1
.target sm_80
.address_size 64

.visible .entry k(.param .u64 p)
.maxntid 512, 1, 1
{{
.reg .b64 %rd<3>; .reg .b32 %r<{LOADS + 1}>;
ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd1, %rd1;
mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 4; add.u64 %rd1, %rd1, %rd2;
{" ".join(f"ld.volatile.global.b32 %r{k}, [%rd1+{4096 * k}];" for k in range(1, LOADS))}
{" ".join(f"st.volatile.global.b32 [%rd1+{4096 * k}], %r{LOADS - k};" for k in range(1, LOADS))}
ret;
}}
"""


def registers_of(image: bytes) -> int:
    """Registers of a thread: the attribute EIATTR_REGCOUNT, of 8 bytes: the kernel's symbol and their number."""
    (found,) = re.findall(rb"\x04\x2f\x08\x00....(....)", image, re.DOTALL)
    return int.from_bytes(found, "little")


@pytest.mark.skipif(not ptxas.find(), reason="no ptxas on this machine")
@pytest.mark.parametrize(("registers", "wanted"), [("auto", 40), (0.8, 40), (32, 32), (64, 40)], ids=str)
def test_a_text_says_how_many_registers_a_thread_may_have(registers: str | float, wanted: int) -> None:
    assert registers_of(ptxas.assemble(KERNEL, "sm_90", "k", registers)) == wanted
