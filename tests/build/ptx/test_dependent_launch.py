"""Kernels that wait for the kernel before them, and images that say so."""

from __future__ import annotations

import pytest
from ptx_texts import kernel

from halide_backend.build.ptx import ptxas
from halide_backend.build.ptx.dependent_launch import MARK, waiting
from halide_backend.build.ptx.instructions import parse

_BODY = """
\t.reg .b32 %r<2>; .reg .b64 %rd<2>;
\tmov.u64 %rd1, 0;
\tld.global.nc.u32 %r1, [%rd1];
\tst.global.u32 [%rd1], %r1;
\tret;"""


def test_they_wait_before_they_do_anything() -> None:
    found = waiting(parse(kernel(_BODY)), "sm_90")
    (function,) = found.functions
    assert function.statements[0].opcode == "griddepcontrol.wait"
    assert (found.version, found.target) == ((7, 8), 90)
    assert str(found).count(MARK) == 1
    if ptxas.find():
        assert MARK.encode() in ptxas.assemble(str(found), "sm_90", "waiting")


def test_each_kernel_of_a_module_waits() -> None:
    second = kernel(_BODY, name="second").partition(".address_size 64\n\n")[2]
    found = waiting(parse(kernel(_BODY) + second), "compute_100")
    assert [function.statements[0].opcode for function in found.functions] == ["griddepcontrol.wait"] * 2
    assert str(found).count(MARK) == 1


@pytest.mark.parametrize("capability", ["sm_80", "sm_89", "compute_86"])
def test_older_gpus_have_no_such_instruction(capability: str) -> None:
    module = parse(kernel(_BODY))
    assert waiting(module, capability) is module
