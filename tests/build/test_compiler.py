from __future__ import annotations

import linecache
import re
import traceback

import numpy as np
import pytest
from evaluation import evaluate
from kernel_texts import DOUBLED, HEADER, ROW_SUMS, elementwise

from halide_backend.build import compiler
from halide_backend.build.compiler import compile_kernel
from halide_backend.build.target import Target
from halide_backend.errors import (
    HalideBackendError,
    HalideCompileError,
    KernelTextError,
    LLVMCompileError,
)

HOST = Target.host()
FLOAT = np.float32
LEVELS = [HOST, Target.named("avx2"), Target.named("sse41")]
NAN, INF = float("nan"), float("inf")


def filled(*values: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.resize(np.array(values, FLOAT), 16)


# --- numerics -----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", LEVELS, ids=lambda target: target.cpu)
def test_arithmetic(target: Target) -> None:
    target.check_runs_here()
    a, b, c = filled(1, -2.5, 3e20), filled(7, 0.1), filled(-1, 2, 5)
    got = evaluate(elementwise("(a + b) * c / b - a", 3), a, b, c, target=target)
    assert np.allclose(got, (a + b) * c / b - a, rtol=1e-6)


def test_products_and_sums_contract_to_fma() -> None:
    # (1 + e)^2 = 1 + 2e + e^2 with e = 2^-12: e^2 survives only if the product is not rounded.
    e = 2.0**-12
    a, b = filled(1 + e), filled(-(1 + 2 * e))
    assert (a * a + b == 0).all()
    assert (evaluate(elementwise("a * a + b", 2), a, b) == FLOAT(e * e)).all()


def test_without_the_flag_nothing_contracts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "with_contraction", lambda ir: ir)
    e = 2.0**-12
    a, b = filled(1 + e), filled(-(1 + 2 * e))
    assert (evaluate(elementwise("a * a + b", 2), a, b) == 0).all()


@pytest.mark.parametrize(
    ("expression", "values", "expected"),
    [
        ("a - a", (INF, 1.0), (NAN, 0.0)),
        ("a * hl.f32(0)", (INF, NAN, -1.0), (NAN, NAN, -0.0)),
        ("a + hl.f32(0)", (-0.0, NAN), (0.0, NAN)),
        ("hl.select(a != a, hl.f32(1), hl.f32(0))", (NAN, 2.0, INF), (1.0, 0.0, 0.0)),
        ("hl.select(~(a < hl.f32(1)), hl.f32(1), hl.f32(0))", (NAN, 0.5, 2.0), (1.0, 0.0, 1.0)),
        ("(a + hl.f32(1)) - a", (1e8, 2.0), (0.0, 1.0)),
        ("a / a", (0.0, INF, 3.0), (NAN, NAN, 1.0)),
        ("a * hl.f32(-1)", (0.0, -INF), (-0.0, INF)),
        ("a * hl.f32(1)", (1e-40, -1e-45), (1e-40, -1e-45)),
    ],
)
def test_ieee_754_holds(expression: str, values: tuple[float, ...], expected: tuple[float, ...]) -> None:
    got = evaluate(elementwise(expression), filled(*values))
    wanted = filled(*expected)
    assert np.array_equal(got, wanted, equal_nan=True)
    numbers = ~np.isnan(wanted)
    assert np.array_equal(np.signbit(got[numbers]), np.signbit(wanted[numbers]))


def test_parallel_rows_and_intermediate_funcs() -> None:
    x = np.random.default_rng(0).random((64, 32), FLOAT)
    got = evaluate(ROW_SUMS, x.reshape(-1), size=64)
    assert np.allclose(got, x.sum(1, dtype=np.float64), rtol=1e-6)


# --- what goes into the object ------------------------------------------------------------------


def test_every_function_is_for_the_target_processor() -> None:
    text = (
        'attributes #0 = { nounwind "target-cpu"="znver4" '
        '"target-features"="+fma,+prefer-no-gather" "tune-cpu"="znver4" }'
    )
    host = Target("x86-64-linux", "icelake-server", "+avx2,-sse4a")
    assert (
        '"target-cpu"="icelake-server" "target-features"="+prefer-no-gather,+avx2,-sse4a" }'
        in compiler.for_processor(text, host)
    )
    level = Target("x86-64-linux", "x86-64-v3", "")
    assert '"target-cpu"="x86-64-v3" "target-features"="+fma,+prefer-no-gather" }' in compiler.for_processor(
        text, level
    )


def test_halide_still_writes_the_attributes_that_are_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    emit = compiler.emit_object
    monkeypatch.setattr(compiler, "emit_object", lambda ir, *rest, **kw: (seen.append(ir), emit(ir, *rest, **kw))[1])
    compile_kernel(ROW_SUMS, HOST, "k")
    assert seen[0].count(f'"target-cpu"="{HOST.cpu}" "target-features"=') >= 2
    # Halide's own tuning, which it writes for AVX-512, is kept before them.
    ours = re.findall(rf'"target-features"="(?:[+-]prefer-[^,"]+,)*{re.escape(HOST.features)}"', seen[0])
    assert seen[0].count('"target-cpu"=') == len(ours)
    assert "tune-cpu" not in seen[0]
    assert "fadd contract" in seen[0] and "= fadd <" not in seen[0]


def test_narrow_vectors_for_a_narrow_target() -> None:
    # EVEX, the prefix of all AVX-512 instructions, is 0x62; 16 floats in one register need it.
    text = elementwise("a * a + a", extent=64, vector=16)
    assert b"\x62" not in _code(compile_kernel(text, Target.named("avx2"), "k").object)


def _code(image: bytes) -> bytes:
    """Return the part of an object before its constants: where vector instructions are."""
    at = image.index(b"\xc5", 64)  # the first VEX instruction
    return image[at : image.index(b"\xc3", at)]


def test_manifest_describes_arguments_checks_and_gil() -> None:
    text = DOUBLED.replace(
        "ARGUMENTS = (",
        "from halide_backend.kernel_library.arguments import Status\nRELEASE_GIL = False\nARGUMENTS = (",
    ).replace("(16, 1),)))", '(16, 1),)), Status((("IndexError", "index out of range"),)))')
    text = text.replace(
        "[out]",
        "[out, status]",
    ).replace(
        "    return",
        '    status = hl.Func("status"); status[i] = hl.i32(0)\n    return',
    )
    manifest = compile_kernel(text, HOST, "k").manifest
    assert manifest == {
        "arguments": [
            {"kind": "buffer", "name": "a", "code": 2, "bits": 32, "offset": 0, "dims": [[16, 1]]},
            {
                "kind": "buffer",
                "name": "out",
                "code": 2,
                "bits": 32,
                "offset": 0,
                "dims": [[16, 1]],
            },
            {"kind": "status", "name": "status"},
        ],
        "checks": [{"error": "IndexError", "message": "index out of range"}],
        "release_gil": False,
    }
    assert compile_kernel(DOUBLED, HOST, "k").manifest["release_gil"] is True


# --- bad input ----------------------------------------------------------------------------------

NO_RETURN = HEADER + "ARGUMENTS = ()\ndef pipeline():\n    return {}\n"


@pytest.mark.parametrize("registers", ["'all'", "0", "256", "1.0", "0.0", "True", "None"])
def test_a_limit_of_registers_is_checked(registers: str) -> None:
    with pytest.raises(KernelTextError, match=f"REGISTERS is {registers}"):
        compile_kernel(f"{DOUBLED}\nREGISTERS = {registers}", HOST, "k")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def pipeline(:", r"line 1 \(def pipeline\(:\): SyntaxError"),
        ("\n\nimport no_such_module", r"line 3 .*ModuleNotFoundError: No module named 'no_such"),
        ("x = 1\nx.y", r"line 2 \(x\.y\): AttributeError"),
        ("raise SystemExit(3)", r"SystemExit: 3"),
        ("", "does not define ARGUMENTS"),
        ("ARGUMENTS = ()", "does not define pipeline"),
        (NO_RETURN.format("None"), "did not return a pair"),
        (NO_RETURN.format("1, 2"), "did not return a pair"),
        (NO_RETURN.format("[], []"), "no outputs"),
        (NO_RETURN.format("[3], []"), "input 3, not a parameter"),
        (NO_RETURN.format("[], ['f']"), "output 'f', not a Func"),
        (DOUBLED.replace("(Input(", '(Input("z", "float32", 16), Input('), "ARGUMENTS has 3 entr"),
        (DOUBLED.replace("((16, 1),)", "((4, 1), (4, 4))"), "'out' is declared with 2 dimensions"),
        (elementwise("a - b", 2).replace("[a_, b_]", "[b_, a_]"), "returned 'b' in the place of 'a'"),
        (
            DOUBLED.replace("a = a_[i]", "a = a_[j]"),
            r"line \d+ \(a = a_\[j\]\): NameError: name 'j'",
        ),
    ],
)
def test_nonsense_is_a_typed_error_that_says_where(text: str, message: str) -> None:
    with pytest.raises(KernelTextError, match=message) as caught:
        compile_kernel(text, HOST, "k", name="halide_fused_add_0")
    assert "kernel halide_fused_add_0" in caught.value.where
    assert caught.value.cure


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (DOUBLED.replace("a_[i]", "a_[i, i]"), r"line \d+ \(a = a_\[i, i\]\)"),
        (DOUBLED.replace("vectorize(i, 8)", 'vectorize(hl.Var("q"), 8)'), "line .*vectorize"),
        (DOUBLED.replace("a + a", "a + hl.f64(1) + hl.Expr()"), "line"),
        (
            ROW_SUMS.replace("compute_at(rows, i)", 'compute_at(rows, hl.Var("gone"))'),
            "kernel halide_fused_add_0",
        ),
    ],
)
def test_what_halide_refuses_is_a_typed_error(text: str, where: str) -> None:
    with pytest.raises(HalideCompileError, match=where) as caught:
        compile_kernel(text, HOST, "k", name="halide_fused_add_0")
    assert "Error:" not in caught.value.what


@pytest.mark.parametrize("ir", ["this is no IR", "define i32 @f() {\n ret float 0.0\n}", "define i32 @f() {\n}"])
def test_what_llvm_refuses_is_a_typed_error(ir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "with_contraction", lambda _: ir)
    with pytest.raises(LLVMCompileError, match="kernel halide_fused_add_0"):
        compile_kernel(DOUBLED, HOST, "k", name="halide_fused_add_0")


def test_interrupts_pass_through() -> None:
    with pytest.raises(KeyboardInterrupt):
        compile_kernel("raise KeyboardInterrupt", HOST, "k")
    with pytest.raises(MemoryError):
        compile_kernel("raise MemoryError", HOST, "k")


def test_entry_must_be_an_identifier() -> None:
    for entry in ("", "1k", "a b", 'x"', "é"):
        with pytest.raises(ValueError, match="not a C identifier"):
            compile_kernel(DOUBLED, HOST, entry)


def test_tracebacks_show_the_line_of_the_text() -> None:
    try:
        compile_kernel("x = 1\nmissing + x\n", HOST, "k", name="shown")
    except HalideBackendError as error:
        lines = "".join(traceback.format_exception(error))
    assert 'File "<halide kernel shown>", line 2' in lines and "missing + x" in lines
    assert linecache.getline("<halide kernel shown>", 1) == "x = 1\n"


# --- versions for certain sizes -----------------------------------------------------------------


def with_version(sizes: str, version: str) -> str:
    return f'{DOUBLED}\nSIZES = {sizes}\nVARIANT = r"""{version}"""\n'


@pytest.mark.parametrize(
    ("sizes", "version"),
    [("{'n': 3}", DOUBLED), ("{}", DOUBLED), ("3", DOUBLED), ("{'a': 3}", elementwise("a + b", 2)), ("{'a': 3}", "")],
    ids=["no such size", "no size", "no dictionary", "other arguments", "no arguments"],
)
def test_a_version_that_does_not_fit_is_refused(sizes: str, version: str) -> None:
    with pytest.raises(KernelTextError, match=r"SIZES is|VARIANT has other ARGUMENTS"):
        compile_kernel(with_version(sizes, version), HOST, "doubled")
