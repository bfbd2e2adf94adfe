"""What kernels accept: tensors, numbers, and typed errors that name the rest."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import halide as hl
import pytest
import torch
from launch_manifests import buffer

from halide_backend import errors
from halide_backend.launch.launcher import Pipeline, make_launcher

Build = Callable[..., Any]


def test_numbers_are_passed_by_value(compile_halide: Build) -> None:
    wide, narrow = hl.Param(hl.Int(64)), hl.Param(hl.Int(32))
    x, whole = hl.Var("x"), hl.Func("whole")
    whole[x] = wide + hl.i64(narrow) + hl.i64(x)
    address, code, _ = compile_halide([wide, narrow], [whole])
    arguments = [
        {"kind": "int64", "name": "wide"},
        {"kind": "int32", "name": "narrow"},
        buffer("whole", 5, code=0, bits=64),
    ]
    kernel = make_launcher("numbers", [Pipeline(address, arguments, range(3), (), False, code)], 3)
    out = torch.zeros(5, dtype=torch.int64)
    for w, n in ((2**62, -(2**31)), (-(2**63) + 2**31, 2**31 - 1), (True, 0)):
        kernel(w, n, out)
        assert out.tolist() == [w + n + k for k in range(5)]
    for w, n in ((2**63, 0), (0, 2**31), (0, -(2**31) - 1), (10**40, 0)):
        with pytest.raises(errors.KernelArgumentError, match=r"numbers.*does not fit (32|64) bits"):
            kernel(w, n, out)
    for bad in (1.5, None, "1", torch.tensor(3)):
        with pytest.raises(errors.KernelArgumentError, match="'wide' must be an integer"):
            kernel(bad, 0, out)


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
    address, code, _ = compile_halide([a, empty, n], [out], bounds_queries=True)
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
def test_element_types(kernel_of_ir: Build, dtype: torch.dtype, code: int, bits: int, fits: bool) -> None:
    kernel = kernel_of_ir("define i32 @kernel(ptr %arguments) { ret i32 0 }", [buffer("a", 4, code=code, bits=bits)])
    tensor = torch.empty(4, dtype=dtype)
    if fits:
        kernel(tensor)
    else:
        with pytest.raises(errors.KernelArgumentError, match="'a' is of torch"):
            kernel(tensor)


def test_tensor_without_memory_is_refused_where_the_extent_is_known_only_at_the_call(
    kernel_of_ir: Build,
) -> None:
    text = "define i32 @kernel(ptr %arguments) { ret i32 0 }"
    kernel = kernel_of_ir(text, [buffer("a", 0), {"kind": "int32", "name": "s0"}])
    for _ in range(2):  # the first call, which is checked in full, and a later one
        with pytest.raises(errors.KernelArgumentError, match=r"'a' .* on meta"):
            kernel(torch.empty(5, device="meta"), 5)
        kernel(torch.empty(5), 5)
        kernel(torch.empty(0), 0)
