"""Launcher: right values, failed checks, malformed descriptions, references, configuration."""

from __future__ import annotations

import gc
import statistics
import sys
from collections.abc import Callable
from typing import Any

import halide as hl
import pytest
import torch
from launch_manifests import buffer

import halide_backend.launch
from halide_backend import errors
from halide_backend.launch import launcher
from halide_backend.launch.launcher import Pipeline, make_launcher, native

Build = Callable[..., Any]

RETURN = "define i32 @kernel(ptr %arguments) {{ ret i32 {code} }}"

# out[0] = what the status word held; then status[word] = 1
CHECK = """
define i32 @kernel(ptr %arguments) {
  %1 = load ptr, ptr %arguments
  %2 = getelementptr i8, ptr %1, i64 16
  %out = load ptr, ptr %2
  %3 = getelementptr ptr, ptr %arguments, i64 1
  %4 = load ptr, ptr %3
  %word = load i32, ptr %4
  %5 = getelementptr ptr, ptr %arguments, i64 2
  %6 = load ptr, ptr %5
  %7 = getelementptr i8, ptr %6, i64 16
  %status = load ptr, ptr %7
  %none = icmp slt i32 %word, 0
  br i1 %none, label %done, label %mark
mark:
  %at = getelementptr i32, ptr %status, i32 %word
  %old = load i32, ptr %at
  store i32 %old, ptr %out
  store i32 1, ptr %at
  br label %done
done:
  ret i32 0
}
"""
CHECKS = [
    {"error": "IndexError", "message": "index out of range in aten.index"},
    {"error": "ZeroDivisionError", "message": "integer division by zero in aten.div"},
    {"error": "RuntimeError", "message": "multinomial: negative probability"},
]
CHECK_ARGUMENTS = [
    buffer("out", 1, code=0),
    {"kind": "int32", "name": "word"},
    {"kind": "status", "name": "status"},
]


@pytest.mark.parametrize("release_gil", [False, True])
def test_computes_what_torch_computes(add_pipeline: Build, release_gil: bool) -> None:
    kernel = make_launcher("add", [add_pipeline(100, release_gil)], 3)
    a, b, out = torch.randn(100), torch.randn(100), torch.zeros(100)
    assert kernel(a, b, out) is None
    assert torch.equal(out, a + b)
    assert kernel.release_gil is release_gil
    assert (kernel.__name__, kernel.arity, kernel.pending) == ("add", 3, False)


def test_argument_may_alias_several_buffers(add_pipeline: Build) -> None:
    pipeline = add_pipeline(64)._replace(positions=(0, 0, 0))
    kernel = make_launcher("double_", [pipeline], 1)
    a = torch.randn(64)
    expected = a + a
    kernel(a)
    assert torch.equal(a, expected)


def test_pipelines_run_in_order(add_pipeline: Build) -> None:
    first = add_pipeline(64)
    second = add_pipeline(64)._replace(positions=(2, 1, 3))
    kernel = make_launcher("add_add", [first, second], 4)
    a, b, c, d = (torch.randn(64) for _ in range(4))
    kernel(a, b, c, d)
    assert torch.equal(c, a + b)
    assert torch.equal(d, a + b + b)


def test_offset_and_strides_reach_the_right_elements(compile_halide: Build) -> None:
    source, x, y, out = hl.ImageParam(hl.Float(32), 1, "s"), hl.Var("x"), hl.Var("y"), hl.Func("o")
    out[x, y] = source[x + 5 * y] * 2
    out.output_buffer().dim(0).set_stride(-4)
    address, code, _ = compile_halide([source], [out])
    # out[x, y] is written to element 12 - 4 x + y of the view.
    arguments = [buffer("s", 20), buffer("o", (4, -4), (4, 1), offset=12 * 4)]
    kernel = make_launcher("flip", [Pipeline(address, arguments, (0, 1), (), False, code)], 2)
    numbers, memory = torch.randn(40), torch.zeros(30)
    expected = memory.clone()
    expected[6:22] = (torch.as_strided(numbers, (4, 4), (1, 5), 3) * 2).flip(0).reshape(-1)
    kernel(numbers[3:], memory[6:])
    assert torch.equal(memory, expected)


@pytest.mark.parametrize("release_gil", [False, True])
def test_failed_checks_become_torch_errors(kernel_of_ir: Build, release_gil: bool) -> None:
    kernel = kernel_of_ir(CHECK, CHECK_ARGUMENTS, CHECKS, release_gil, "halide_fused_index_0")
    out = torch.zeros(1, dtype=torch.int32)
    kinds = (IndexError, ZeroDivisionError, RuntimeError)
    for _ in range(3):
        for word, (kind, check) in enumerate(zip(kinds, CHECKS, strict=True)):
            out.fill_(7)
            with pytest.raises(kind, match=check["message"]) as caught:
                kernel(out, word)
            assert isinstance(caught.value, errors.HalideBackendError)
            assert "halide_fused_index_0" in str(caught.value)
            assert out.item() == 0, "the status words were not zeroed"
        kernel(out, -1)


def test_index_check_of_a_halide_kernel(compile_halide: Build) -> None:
    n = 37
    source = hl.ImageParam(hl.Float(32), 1, "source")
    index = hl.ImageParam(hl.Int(64), 1, "index")
    x, out, status, r = hl.Var("x"), hl.Func("out"), hl.Func("status"), hl.RDom([(0, 50)], "r")
    out[x] = source[hl.clamp(hl.i32(index[x]), 0, n - 1)]
    status[x] = hl.i32(0)
    outside = (index[r.x] < 0) | (index[r.x] >= n)
    status[0] = hl.select(outside, 1, status[0])
    address, code, _ = compile_halide([source, index], [out, status])
    arguments = [
        buffer("source", n),
        buffer("index", 50, code=0, bits=64),
        buffer("out", 50),
        {"kind": "status", "name": "status"},
    ]
    checks = [{"error": "IndexError", "message": "index out of range"}]
    kernel = make_launcher("gather", [Pipeline(address, arguments, range(3), checks, True, code)], 3)
    values, result = torch.randn(n), torch.zeros(50)
    good = torch.randint(0, n, (50,))
    kernel(values, good, result)
    assert torch.equal(result, values[good])
    for bad in (-1, n, 2**40):
        wrong = good.clone()
        wrong[17] = bad
        with pytest.raises(IndexError, match="kernel gather: index out of range"):
            kernel(values, wrong, result)


def test_error_code_of_a_kernel(kernel_of_ir: Build) -> None:
    kernel = kernel_of_ir(RETURN.format(code=-22), [], name="broken")
    for _ in range(2):
        with pytest.raises(errors.KernelRuntimeError, match="kernel broken: Halide error -22"):
            kernel()


def test_later_pipelines_do_not_run_after_a_failure(kernel_of_ir: Build, link_ir: Build, add_pipeline: Build) -> None:
    address, code = link_ir(RETURN.format(code=5), "kernel")
    failing = Pipeline(address, [], (), (), False, code)
    kernel = make_launcher("stops", [failing, add_pipeline(8)], 3)
    out = torch.zeros(8)
    with pytest.raises(errors.KernelRuntimeError, match="Halide error 5"):
        kernel(torch.ones(8), torch.ones(8), out)
    assert torch.equal(out, torch.zeros(8))


def test_malformed_descriptions_name_the_kernel(add_pipeline: Build) -> None:
    good = add_pipeline(8)
    arguments = list(good.arguments)

    def changed(**fields: object) -> Pipeline:
        return good._replace(arguments=[*arguments[:2], {**arguments[2], **fields}])

    cases: list[tuple[Any, type[Exception], str]] = [
        ([], ValueError, "no pipeline"),
        ([good._replace(address=0)], ValueError, "address is 0"),
        ([good._replace(positions=(0, 1))], ValueError, "2 positions for 3 arguments"),
        ([good._replace(positions=(0, 1, 3))], ValueError, "a position is 3, outside 0 ... 2"),
        ([good._replace(positions=(0, 1, -1))], ValueError, "a position is -1"),
        ([changed(kind="tensor")], ValueError, "no known kind"),
        ([changed(dims=None)], ValueError, "no dims"),
        ([changed(dims=[[1, 2, 3]])], ValueError, "pair"),
        ([changed(dims=[[2**31, 1]])], ValueError, "an extent is 2147483648"),
        ([changed(dims=[[-1, 1]])], ValueError, "an extent is -1"),
        ([changed(dims=[["s0", 1]])], TypeError, "'str' object"),
        ([changed(bits=128)], ValueError, "bits is 128"),
    ]
    for pipelines, kind, message in cases:
        with pytest.raises(kind, match="kernel malformed: .*" + message):
            make_launcher("malformed", pipelines, 3)
    with pytest.raises(ValueError, match="either pipelines or resolve"):
        native().Launcher("malformed", None, 3)


def test_calls_keep_no_references(add_pipeline: Build, kernel_of_ir: Build) -> None:
    kernel = make_launcher("add", [add_pipeline(64)], 3)
    a, b, out, name = torch.randn(64), torch.randn(64), torch.zeros(64), kernel.__name__
    failing = kernel_of_ir(CHECK, CHECK_ARGUMENTS, CHECKS)
    word = torch.zeros(1, dtype=torch.int32)

    def everything() -> None:
        kernel(a, b, out)
        for bad in ((a, b), (a, None, out), (a, b, out.to("meta"))):
            with pytest.raises(errors.KernelArgumentError):
                kernel(*bad)
        with pytest.raises(IndexError):
            failing(word, 0)

    subjects = (a, b, out, name, kernel, word, None)
    calls = 100
    growths = []
    everything()
    gc.collect()
    for _ in range(7):
        before = [sys.getrefcount(s) for s in subjects]
        for _ in range(calls):
            everything()
        gc.collect()
        growths.append([sys.getrefcount(s) - count for s, count in zip(subjects, before, strict=True)])
    # None belongs to the whole process, and one collection of old garbage can free thousands of references to it.
    growth = [round(statistics.median(each) / calls) for each in zip(*growths, strict=True)]
    assert growth == [0] * len(subjects), growths


def test_missing_extension_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(halide_backend.launch, "_native")
    monkeypatch.setitem(sys.modules, "halide_backend.launch._native", None)
    with pytest.raises(errors.MissingNativeExtensionError, match="compiled extension") as caught:
        launcher.native()
    assert "reinstall" in caught.value.cure


def test_configure_finds_torch_in_this_process() -> None:
    runtime = launcher.configure()
    assert "omp" in runtime.openmp
    assert runtime.torch_threads
    assert runtime.profiler
    assert launcher.configure() is runtime


def test_no_openmp_is_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutOpenMP:
        @staticmethod
        def configure(**_: object) -> dict[str, object]:
            return {"openmp": "", "torch_threads": True, "profiler": True}

    monkeypatch.setattr(launcher, "native", lambda: WithoutOpenMP)
    launcher.configure.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="no OpenMP") as caught:
            launcher.configure()
            launcher.configure()
        assert len(caught) == 1
    finally:
        launcher.configure.cache_clear()
