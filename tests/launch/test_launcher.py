"""Launcher: right values, typed errors for wrong calls and failed checks, pending, no leaks."""

from __future__ import annotations

import gc
import pickle
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import halide as hl
import pytest
import torch
from conftest import buffer

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


def test_numbers_are_passed_by_value(compile_halide: Build) -> None:
    wide, narrow, real = hl.Param(hl.Int(64)), hl.Param(hl.Int(32)), hl.Param(hl.Float(64))
    x, whole, part = hl.Var("x"), hl.Func("whole"), hl.Func("part")
    whole[x] = wide + hl.i64(narrow) + hl.i64(x)
    part[x] = real * hl.f64(x)
    address, code, _ = compile_halide([wide, narrow, real], [whole, part])
    arguments = [
        {"kind": "int64", "name": "wide"},
        {"kind": "int32", "name": "narrow"},
        {"kind": "float64", "name": "real"},
        buffer("whole", 5, code=0, bits=64),
        buffer("part", 5, bits=64),
    ]
    kernel = make_launcher("numbers", [Pipeline(address, arguments, range(5), (), False, code)], 5)
    whole_out, part_out = torch.zeros(5, dtype=torch.int64), torch.zeros(5, dtype=torch.float64)
    for w, n, r in ((2**62, -(2**31), 1e300), (-(2**63) + 2**31, 2**31 - 1, -0.5), (True, 0, 3)):
        kernel(w, n, r, whole_out, part_out)
        assert whole_out.tolist() == [w + n + k for k in range(5)]
        assert part_out.tolist() == [r * k for k in range(5)]
    for w, n, r in ((2**63, 0, 0.0), (0, 2**31, 0.0), (0, -(2**31) - 1, 0.0), (10**40, 0, 0.0)):
        with pytest.raises(errors.KernelArgumentError, match=r"numbers.*does not fit (32|64) bits"):
            kernel(w, n, r, whole_out, part_out)
    with pytest.raises(errors.KernelArgumentError, match="'real' is too large"):
        kernel(0, 0, 10**400, whole_out, part_out)
    for bad in (1.5, None, "1", torch.tensor(3)):
        with pytest.raises(errors.KernelArgumentError, match="'wide' must be an integer"):
            kernel(bad, 0, 0.0, whole_out, part_out)
    for bad in (None, "1", torch.tensor(3.0)):
        with pytest.raises(errors.KernelArgumentError, match="'real' must be a number"):
            kernel(0, 0, bad, whole_out, part_out)


def test_parameter_and_subclass_are_tensors(add_pipeline: Build) -> None:
    class Tagged(torch.Tensor):
        pass

    kernel = make_launcher("add", [add_pipeline(64)], 3)
    a, b = torch.nn.Parameter(torch.randn(64)), torch.randn(64).as_subclass(Tagged)
    for _ in range(2):
        out = torch.zeros(64)
        kernel(a, b, out)
        assert torch.equal(out, a.detach() + b.as_subclass(torch.Tensor))


def test_empty_tensors_need_no_memory(add_pipeline: Build) -> None:
    kernel = make_launcher("add", [add_pipeline(0)], 3)
    for _ in range(2):
        kernel(torch.empty(0), torch.empty(0), torch.empty(0))


def test_empty_input_is_no_bounds_query(compile_halide: Build) -> None:
    """Halide takes a buffer without memory for a question about bounds, and computes nothing."""
    a, empty, n = (
        hl.ImageParam(hl.Float(32), 1),
        hl.ImageParam(hl.Float(32), 1),
        hl.Param(hl.Int(32)),
    )
    x, out, r = hl.Var("x"), hl.Func("out"), hl.RDom([(0, n)], "r")
    out[x] = a[x]
    out[x] += empty[r.x]
    address, code, _ = compile_halide([a, empty, n], [out], asserts=True)
    arguments = [buffer("a", 8), buffer("empty", 0), {"kind": "int32", "name": "n"}]
    arguments.append(buffer("out", 8))
    kernel = make_launcher("cat", [Pipeline(address, arguments, range(4), (), False, code)], 4)
    source, result = torch.randn(8), torch.zeros(8)
    kernel(source, torch.empty(0), 0, result)
    assert torch.equal(result, source)


def test_wrong_arguments_name_kernel_and_argument(add_pipeline: Build) -> None:
    a, b, out = torch.randn(64), torch.randn(64), torch.zeros(64)

    def refused(kernel: Any, *arguments: object) -> str:
        with pytest.raises(errors.KernelArgumentError) as caught:
            kernel(*arguments)
        assert isinstance(caught.value, TypeError)
        assert caught.value.where == "kernel add"
        assert caught.value.cure
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        return caught.value.what

    for checked in (False, True):
        kernel = make_launcher("add", [add_pipeline(64)], 3)
        if checked:
            kernel(a, b, out)
        assert refused(kernel, a, b) == "takes 3 arguments, got 2"
        assert refused(kernel, a, b, out, 1) == "takes 3 arguments, got 4"
        assert refused(kernel) == "takes 3 arguments, got 0"
        for bad in (None, 3, 2**80, 1.5, "x", [1.0], a.numpy()):
            assert refused(kernel, a, bad, out).startswith("argument 'b' must be a tensor, not")
        if not checked:
            assert "without memory" in refused(kernel, a, torch.randn(64).to_sparse(), out)
        assert "meta" in refused(kernel, a, b, torch.empty(64, device="meta"))
        with pytest.raises(errors.KernelArgumentError, match="keyword"):
            kernel(a, b, out=out)
        with torch._subclasses.FakeTensorMode() as mode:
            fake = mode.from_tensor(b)
        assert refused(kernel, a, fake, out).startswith("argument 'b'")
        kernel(a, b, out)
        assert torch.equal(out, a + b)


def test_first_call_checks_dtype_device_and_memory(add_pipeline: Build) -> None:
    a, b, out = torch.randn(64), torch.randn(64), torch.zeros(64)
    kernel = make_launcher("add", [add_pipeline(64)], 3)
    cases = [
        ((a, b.double(), out), r"'b' is of torch.float64, but holds float32 elements"),
        ((a.int(), b, out), r"'a' is of torch.int32"),
        ((a, b, out.bfloat16()), r"'out' is of torch.bfloat16"),
        ((a, b[:63].clone(), out), r"'b' of shape \(63,\) starts at byte 0 of 252 .* 0 to 256"),
        ((a, b, torch.zeros(128)[65:]), r"'out' of shape \(63,\) starts at byte 260 of 512"),
        ((a, b, out.to("meta")), r"'out' is on meta, but the kernel runs on the CPU"),
    ]
    for arguments, message in cases:
        with pytest.raises(errors.KernelArgumentError, match=message):
            kernel(*arguments)
    assert torch.equal(out, torch.zeros(64)), "a refused call wrote to its output"
    kernel(a, b, out)
    assert torch.equal(out, a + b)


@pytest.mark.parametrize(
    ("dtype", "code", "bits", "fits"),
    [
        (torch.bool, 1, 8, True),
        (torch.bool, 1, 1, True),
        (torch.int64, 0, 64, True),
        (torch.int64, 0, 32, False),
        (torch.uint8, 0, 8, True),
        (torch.float16, 2, 16, True),
        (torch.float16, 1, 16, True),
        (torch.float16, 3, 16, False),
        (torch.bfloat16, 3, 16, True),
        (torch.bfloat16, 1, 16, True),
        (torch.bfloat16, 2, 16, False),
        (torch.float32, 0, 32, False),
        (torch.complex64, 2, 32, True),
        (torch.float8_e4m3fn, 1, 8, True),
        (torch.float8_e4m3fn, 2, 8, False),
    ],
)
def test_element_types(
    kernel_of_ir: Build, dtype: torch.dtype, code: int, bits: int, fits: bool
) -> None:
    kernel = kernel_of_ir(RETURN.format(code=0), [buffer("a", 4, code=code, bits=bits)])
    tensor = torch.empty(4, dtype=dtype)
    if fits:
        kernel(tensor)
    else:
        with pytest.raises(errors.KernelArgumentError, match="'a' is of torch"):
            kernel(tensor)


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
    kernel = make_launcher(
        "gather", [Pipeline(address, arguments, range(3), checks, True, code)], 3
    )
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


def test_later_pipelines_do_not_run_after_a_failure(
    kernel_of_ir: Build, link_ir: Build, add_pipeline: Build
) -> None:
    address, code = link_ir(RETURN.format(code=5), "kernel")
    failing = Pipeline(address, [], (), (), False, code)
    kernel = make_launcher("stops", [failing, add_pipeline(8)], 3)
    out = torch.zeros(8)
    with pytest.raises(errors.KernelRuntimeError, match="Halide error 5"):
        kernel(torch.ones(8), torch.ones(8), out)
    assert torch.equal(out, torch.zeros(8))


def test_assertion_of_an_object_with_asserts(compile_halide: Build) -> None:
    a, x, out = hl.ImageParam(hl.Float(32), 1, "a"), hl.Var("x"), hl.Func("out")
    out[x] = a[x] + 1
    out.output_buffer().dim(0).set_bounds(0, 64)
    address, code, _ = compile_halide([a], [out], asserts=True)
    tensor, result = torch.randn(64), torch.zeros(64)
    right = Pipeline(address, [buffer("a", 64), buffer("out", 64)], (0, 1), (), False, code)
    make_launcher("asserted", [right], 2)(tensor, result)
    assert torch.equal(result, tensor + 1)
    wrong = right._replace(arguments=[buffer("a", 64), buffer("out", 32)])
    with pytest.raises(errors.KernelRuntimeError, match=r"kernel asserted: .*outside the buffer"):
        make_launcher("asserted", [wrong], 2)(tensor, result)


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


def test_pending_kernel_is_resolved_once_by_whichever_thread(add_pipeline: Build) -> None:
    calls = []

    def obtain() -> list[Pipeline]:
        calls.append(threading.get_ident())
        time.sleep(0.05)
        return [add_pipeline(64)]

    kernel = make_launcher("later", obtain, 3)
    assert kernel.pending
    assert not calls
    a, b = torch.randn(64), torch.randn(64)
    outs = [torch.zeros(64) for _ in range(8)]
    threads = [threading.Thread(target=kernel, args=(a, b, out)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert len(calls) == 1
    assert not kernel.pending
    assert all(torch.equal(out, a + b) for out in outs)


def test_pending_kernel_that_cannot_be_resolved(add_pipeline: Build) -> None:
    answers: list[Any] = [
        errors.WorkerCrashed("the worker died", where="kernel later"),
        errors.WorkerCrashed("the worker died again", where="kernel later"),
        [add_pipeline(64)._replace(address=0)],
        [add_pipeline(64)],
    ]

    def obtain() -> list[Pipeline]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    kernel = make_launcher("later", obtain, 3)
    a, b, out = torch.randn(64), torch.randn(64), torch.zeros(64)
    with pytest.raises(errors.KernelArgumentError, match="takes 3"):
        kernel(a)
    with pytest.raises(errors.WorkerCrashed, match="died"):
        kernel(a, b, out)
    with pytest.raises(errors.WorkerCrashed, match="died again"):
        kernel(a, b, out)
    with pytest.raises(ValueError, match="kernel later: a pipeline's address is 0"):
        kernel(a, b, out)
    assert kernel.pending
    kernel(a, b, out)
    assert torch.equal(out, a + b)


def test_resolve_that_calls_its_own_kernel_is_an_error() -> None:
    kernel = make_launcher("loop", lambda: kernel(), 0)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="kernel loop was called by its own resolve"):
            kernel()


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
    everything()
    gc.collect()
    before = [sys.getrefcount(s) for s in subjects]
    for _ in range(300):
        everything()
    gc.collect()
    after = [sys.getrefcount(s) for s in subjects]
    growth = [y - x for x, y in zip(before, after, strict=True)]
    assert all(abs(g) < 20 for g in growth), growth


def test_launchers_are_freed_with_their_code(add_pipeline: Build) -> None:
    class Owner:
        def __init__(self, code: object) -> None:
            self.code = code

    pipeline = add_pipeline(8)
    owner = Owner(pipeline.code)
    alive = weakref.ref(owner)
    kernel = make_launcher("add", [pipeline._replace(code=owner)], 3)
    del owner, pipeline
    gc.collect()
    assert alive() is not None
    kernel(torch.ones(8), torch.ones(8), torch.ones(8))
    del kernel
    gc.collect()
    assert alive() is None

    # A cycle through resolve() is found by the collector, before and after it was resolved.
    for resolved in (False, True):
        pipeline = add_pipeline(8)
        holder: Any = Owner(pipeline.code)
        alive = weakref.ref(holder)
        pipeline = pipeline._replace(code=holder)
        holder.kernel = make_launcher("cycle", lambda p=pipeline: [p], 3)
        if resolved:
            holder.kernel(torch.ones(8), torch.ones(8), torch.ones(8))
        del holder, pipeline
        gc.collect()
        assert alive() is None, f"leaked while resolved={resolved}"


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
