"""Names of a GPU kernel's entries: place holders in the artifact, the graph's names when it is loaded."""

from __future__ import annotations

import pytest

from halide_backend.build import elf
from halide_backend.build.entry_names import LENGTH, entry_name, named, with_placeholders
from halide_backend.build.ptx import ptxas
from halide_backend.build.ptx.instructions import parse

_PTX = """\
//
.version 7.1
.target sm_80
.address_size 64

.visible .entry _kernel_a_x(
\t.param .u64 _kernel_a_x_param_0
)
{
\t.reg .b64 %rd<2>;
\tld.param.u64 %rd1, [_kernel_a_x_param_0];
\tret;
}

.visible .entry _kernel_a_x_1(
\t.param .u64 _kernel_a_x_1_param_0
)
{
\tret;
}
"""


def test_entries_are_named_and_nothing_else() -> None:
    held = str(with_placeholders(parse(_PTX)))
    assert "_kernel_a_x(" not in held and "[_kernel_a_x_param_0]" in held
    expected = _PTX.replace(".entry _kernel_a_x(", ".entry first(").replace(".entry _kernel_a_x_1(", ".entry second(")
    assert named(held.encode() + b"\0", ["first", "second"]) == expected.encode() + b"\0"


@pytest.mark.skipif(ptxas.find() is None, reason="there is no assembler")
def test_machine_code_serves_several_names() -> None:
    image = ptxas.assemble(str(with_placeholders(parse(_PTX))), "sm_90", "k")
    for names in (["halide_fused_add_0__0", "halide_fused_add_0__1"], ["x" * LENGTH, "y"]):
        found = named(image, names)
        assert len(found) == len(image)
        assert elf.symbols(found).defined >= set(names)
        assert all(f".text.{name}\0".encode() in found for name in names)
        assert b"halide_entry" not in found


def test_a_name_says_which_launch_of_which_kernel_it_is() -> None:
    assert entry_name("halide_fused_softmax_backward_12", 0) == "halide_fused_softmax_backward_12__0"
    assert entry_name("halide_fused_add_3", "joint") == "halide_fused_add_3__joint"
    assert entry_name("my kernel.7_1", 2) == "my_kernel_7_1__2"


def test_of_a_long_name_the_number_is_kept() -> None:
    names = [
        entry_name("halide_fused_" + "add_mul_" * 40 + number, stage) for number in ("7", "8") for stage in (0, 11)
    ]
    assert [len(name) for name in names] == [LENGTH] * 4
    assert len(set(names)) == 4
    assert [name[-6:].lstrip("lmu") for name in names] == ["_7__0", "_7__11", "_8__0", "_8__11"]
