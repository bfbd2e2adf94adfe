"""PTX that is parsed prints as it was read, and says what its statements are."""

from __future__ import annotations

import pytest
from ptx_texts import declaration, kernel

from halide_backend.build.ptx.instructions import Parameter, Statement, address, edited, elements, parse, statements

BODY = """\
	.reg .pred 	%p<2>;
	.pragma "nounroll";
// %bb.0:                               // %entry
	ld.global.nc.L2::cache_hint.v2.b64 	{%rd7, %rd8}, [%rd6+-16], priority; // a comment; with a semicolon
	mov.b64 	{_, %r6}, %rd7;
	@!%p1 bra 	$L__BB0_2;
	shfl.sync.up.b32 	%r9|%p2, %r8, 1, 0, -1;
$L__BB0_2:                              // a label
	{ .reg .b32 own; mov.u32 own, %tid.x;
	NEXT: setp.eq.u32 %p1, own, 0; @%p1 bra NEXT; }
	call.uni (retval0),
	function,
	(
	param0
	);
	ret;"""


def found(text: str) -> list[Statement]:
    return [s for s in statements(text) if not s.opcode.startswith(".")]


def test_a_module_prints_as_it_was_read() -> None:
    text = kernel(BODY, declaration("function"), "first") + "// between\n" + kernel(BODY, name="second") + "\n// end\n"
    module = parse(text)
    assert str(module) == text
    assert module.names == ("first", "second")
    assert all(len(function.statements) == len(statements(BODY)) for function in module.functions)


def test_the_parts_of_statements() -> None:
    load, move, branch, shuffle, label, begin, own, inner, compare, again, end, called, last = found(BODY)
    assert (load.opcode, load.operation) == ("ld.global.nc.L2::cache_hint.v2.b64", "ld")
    assert load.operands == ("{%rd7, %rd8}", "[%rd6+-16]", "priority")
    assert load.comment == " // a comment; with a semicolon" and "//" in load.before
    assert (elements(load.operands[0]), address(load.operands[1])) == (["%rd7", "%rd8"], ("%rd6", -16))
    assert (load.written, load.registers) == (["%rd7", "%rd8"], ["%rd7", "%rd8", "%rd6"])
    assert (move.written, move.registers) == (["%r6"], ["%r6", "%rd7"])
    assert (branch.guard, branch.operands, branch.registers) == ("!%p1", ("$L__BB0_2",), ["%p1"])
    assert shuffle.operands == ("%r9", "%p2", "%r8", "1", "0", "-1")
    assert (label.label, label.opcode, inner.label) == ("$L__BB0_2", "", "NEXT")
    assert (begin.opcode, end.opcode) == ("{", "}")
    assert own.operands == ("own", "%tid.x") and compare.opcode == "setp.eq.u32" and again.guard == "%p1"
    assert called.operands == ("(retval0)", "function", "(\n\tparam0\n\t)")
    assert last == Statement("ret;", "\n\t", opcode="ret")


def test_stores_write_no_register() -> None:
    (store,) = statements("st.global.v2.b32 [%rd1], {%r1, %r2};")
    assert (store.written, store.registers) == ([], ["%rd1", "%r1", "%r2"])


def test_parameters_have_sizes() -> None:
    text = kernel("ret;").replace("k(\n)", "k(\n\t.param .u64 .ptr .align 1 k_param_0,\n\t.param .u32 k_param_1\n)")
    assert parse(text).functions[0].parameters == (Parameter("k_param_0", 64), Parameter("k_param_1", 32))


def test_versions_and_targets_only_rise() -> None:
    module = parse(kernel("ret;"))
    assert (module.version, module.target) == ((7, 1), 80)
    risen = module.requiring((8, 1), 90)
    assert str(risen).startswith(".version 8.1\n.target sm_90\n")
    assert str(risen.requiring((7, 4), 86)) == str(risen)


def test_statements_are_replaced_in_their_place() -> None:
    text = "\n\tmov.b32 %r1, 1;\n\tadd.s32 %r2, %r1, 1;\n\tret;"
    new = edited(statements(text), {0: "", 1: "{ mov.b32 %r2, 2; }"})
    assert "".join(map(str, new)) == "\n\t{ mov.b32 %r2, 2; }\n\tret;"
    assert [s.opcode for s in new] == ["{", "mov.b32", "}", "ret"]


@pytest.mark.parametrize("body", ["mov.b32 %r1, 1", "mov.b32 %r1, 1; ???", "{ ret;"])
def test_what_is_no_ptx_is_refused(body: str) -> None:
    with pytest.raises(ValueError, match="no statement of PTX"):
        parse(f".visible .entry k(\n)\n{{\n{body}\n")
