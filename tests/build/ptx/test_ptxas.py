"""How many registers the assembler leaves a thread."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from halide_backend.build.pool import WorkerPool
from halide_backend.build.ptx import ptxas
from halide_backend.build.ptx.ptxas import _another_block
from halide_backend.errors import HalideCompileError, WorkerCrashed, WorkerTimeout


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


# --- in workers ---------------------------------------------------------------------------------


@pytest.fixture
def assembler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], WorkerPool]]:
    """assembler(script): a pool whose workers have a ptxas that runs `script`."""
    pools = []

    def with_script(script: str) -> WorkerPool:
        path = tmp_path / "bin" / "ptxas"
        path.parent.mkdir()
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("CUDA_HOME", str(tmp_path))
        pools.append(WorkerPool(1, time_limit=3, memory_limit=1 << 30))
        return pools[-1]

    yield with_script
    for pool in pools:
        pool.close()


def test_workers_assemble(assembler: Callable[[str], WorkerPool]) -> None:
    # The target file is the last argument.
    pool = assembler('echo "Used 8 registers" >&2; for file; do :; done; printf code > "$file"')
    assert pool.assemble(KERNEL, "sm_90", "k") == b"code"


def test_what_the_assembler_refuses_is_an_error(assembler: Callable[[str], WorkerPool]) -> None:
    with pytest.raises(HalideCompileError, match="ptxas: no such instruction") as caught:
        assembler("echo no such instruction >&2; exit 1").assemble(KERNEL, "sm_90", "softmax")
    assert caught.value.where == "kernel softmax"


def test_an_assembler_that_hangs_is_ended(assembler: Callable[[str], WorkerPool], tmp_path: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(WorkerTimeout, match="limit of 3 s"):
        assembler(f"echo $$ > {tmp_path}/pid; exec sleep 100").assemble(KERNEL, "sm_90", "k")
    assert time.monotonic() - begin < 30
    process = Path("/proc", (tmp_path / "pid").read_text().strip())
    while process.exists():
        assert time.monotonic() - begin < 60, "the assembler still runs"
        time.sleep(0.05)


def test_an_assembler_has_the_workers_memory(assembler: Callable[[str], WorkerPool]) -> None:
    script = "exec python3 -c 'b = bytearray(2 << 30)'"
    with pytest.raises((HalideCompileError, WorkerCrashed), match=r"(?i)memory"):
        assembler(script).assemble(KERNEL, "sm_90", "k")


def test_an_assembler_without_a_version_is_an_error(
    assembler: Callable[[str], WorkerPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    assembler("exec sleep 100")
    monkeypatch.setattr(ptxas, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(ptxas, "find", ptxas.find.__wrapped__)
    with pytest.raises(HalideCompileError, match="does not say its version") as caught:
        ptxas.version.__wrapped__()
    assert caught.value.where == f"{os.environ['CUDA_HOME']}/bin/ptxas"
