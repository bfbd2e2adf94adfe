"""What is added to PTX, on text as the compiler writes it."""

from __future__ import annotations

import pytest

from halide_backend.build import ptx
from halide_backend.errors import HalideCompileError

_CALL = """\
\t{ // callseq 0, 0
\t.param .b32 \tparam0;
\tst.param.b32 \t[param0], %r6;
\t.param .b32 \tparam1;
\tst.param.b32 \t[param1], 1065353216;
\t.param .b32 \tretval0;
\tcall.uni (retval0), NAME, (param0, param1);
\tld.param.b32 \t%r8, [retval0];
\t} // callseq 0
"""
_DECLARATION = """\
.extern .func  (.param .b32 func_retval0) NAME
(
\t.param .b32 NAME_param_0,
\t.param .b32 NAME_param_1
)
;
"""
_ADDITION = """\
\t{ // callseq 0, 0
\t.param .b64 \tparam0;
\tst.param.b64 \t[param0], %rd6;
\t.param .b64 \tretval0;
\tcall.uni (retval0), halide_backend_atomic_add_f64, (param0);
\tld.param.b64 \t%rd8, [retval0];
\t} // callseq 0
"""


def test_a_call_becomes_an_instruction() -> None:
    name = "halide_backend_bfloat16_pair"
    text = ptx.complete((_DECLARATION + "begin\n" + _CALL + "end\n").replace("NAME", name), "k", "sm_90")
    assert text.startswith("begin\n") and text.endswith("end\n")
    assert "mov.b32 a1, 1065353216;" in text
    # PTX takes the upper half first.
    assert "cvt.rn.bf16x2.f32 %r8, a1, a0;" in text
    assert "call" not in text


def test_calls_of_others_stay() -> None:
    text = (_DECLARATION + _CALL).replace("NAME", "vprintf")
    assert ptx.complete(text, "k", "sm_90") == text


def test_an_unknown_function_of_ours_is_refused() -> None:
    with pytest.raises(HalideCompileError, match="unknown form"):
        ptx.complete(_CALL.replace("NAME", "halide_backend_mystery"), "k", "sm_90")


def test_the_store_of_an_addend_adds() -> None:
    text = ptx.complete(
        _ADDITION + "\tst.global.b64 \t[%rd9+8], %rd8;\n\tst.global.b64 \t[%rd9], %rd88;\n", "k", "sm_90"
    )
    assert "red.global.add.f64 \t[%rd9+8], %rd8;" in text
    assert "st.global.b64 \t[%rd9], %rd88;" in text


@pytest.mark.parametrize("stores", ["", "\tst.global.b64 \t[%rd9], %rd8;\n" * 2])
def test_an_addend_goes_into_one_store(stores: str) -> None:
    with pytest.raises(HalideCompileError, match="an addend is stored"):
        ptx.complete(_ADDITION + stores, "k", "sm_90")


def test_kernels_are_found_by_their_entries() -> None:
    assert ptx.entries(".visible .entry first(\n)\n.visible .entry second(\n)\n") == ("first", "second")
    with pytest.raises(ValueError):
        ptx.extract(b"\x7fELF")


_PUBLICATION = """
\t{ // callseq 1, 0
\t.param .b32 param0;
\t.param .b32 param1;
\t.param .b32 retval0;
\tst.param.b32 \t[param0], %r1;
\tst.param.b32 \t[param1], PLACE;
\tcall.uni (retval0),
\thalide_backend_publish,
\t(
\tparam0,
\tparam1
\t);
\tld.param.b32 \t%r2, [retval0];
\t} // callseq 1
"""


def test_an_exchange_gets_shared_memory_for_its_places() -> None:
    text = ptx.complete(
        ".visible .entry k(\n)\n{" + _PUBLICATION.replace("PLACE", "4") + "}", "k", "sm_90", (416, 1, 1)
    )
    # Five places of 32 words.
    assert ".shared .align 16 .b8 exchange_between_warps[640];\n.visible .entry k" in text
    assert text.index("st.shared.b32") < text.index("bar.sync 0;")
    assert ".maxntid 416, 1, 1\n{" in text


def test_an_exchange_that_not_all_threads_reach_is_refused() -> None:
    text = ".visible .entry k(\n)\n{\n\t@%p1 bra $L1;" + _PUBLICATION.replace("PLACE", "0") + "$L1:\n}"
    with pytest.raises(HalideCompileError, match="behind a branch"):
        ptx.complete(text, "k", "sm_90")
