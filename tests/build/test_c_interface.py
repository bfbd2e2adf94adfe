"""C functions of pipelines, called as a C program calls them: with pointers, numbers and a place for a message."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from captured_kernels import captured_kernels
from kernel_texts import DOUBLED, HEADER, ROW_SUMS

from halide_backend.build import elf
from halide_backend.build.artifacts import get_or_compile
from halide_backend.build.c_interface import c_function
from halide_backend.build.compiler import compile_kernel
from halide_backend.build.fingerprint import toolchain
from halide_backend.build.loader import load_object
from halide_backend.build.target import Target
from halide_backend.launch.launcher import native

HOST = Target.host()


class CFunction:
    """The C function of a text; `numbers` are those of the call, in order."""

    def __init__(self, text: str) -> None:
        self.object = compile_kernel(text, HOST, "k", c_interface=True).object
        self._code = load_object(self.object, c_function("k"), native().symbols())
        places = [ctypes.c_void_p] * 4
        self._function = ctypes.CFUNCTYPE(ctypes.c_int32, *places)(self._code.address)

    def __call__(self, pointers: Sequence[int], numbers: Sequence[int] = ()) -> tuple[int, str]:
        buffers = (ctypes.c_void_p * len(pointers))(*pointers)
        message = ctypes.create_string_buffer(b"untouched", 256)
        result = self._function(buffers, (ctypes.c_int64 * len(numbers))(*numbers), None, message)
        return result, message.value.decode()

    def without_message(self, pointers: Sequence[int], numbers: Sequence[int]) -> int:
        buffers = (ctypes.c_void_p * len(pointers))(*pointers)
        return int(self._function(buffers, (ctypes.c_int64 * len(numbers))(*numbers), None, None))


def pointers(*tensors: torch.Tensor) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]


def test_buffers_are_plain_pointers() -> None:
    rows, x = np.zeros(64, np.float32), np.random.default_rng(0).random((64, 32), np.float32)
    assert CFunction(ROW_SUMS)([x.ctypes.data, rows.ctypes.data]) == (0, "untouched")
    assert np.allclose(rows, x.sum(1, dtype=np.float64), rtol=1e-6)


def test_an_output_that_begins_inside_of_its_memory() -> None:
    text = DOUBLED.replace("((16, 1),))", "((16, 1),), offset=3)")
    a, memory = np.arange(16, dtype=np.float32), np.full(20, -1, np.float32)
    assert CFunction(text)([a.ctypes.data, memory.ctypes.data])[0] == 0
    assert memory.tolist() == [-1, -1, -1, *(2 * a).tolist(), -1]


#: Twice the sum of `n` numbers for each of them, by way of `n` x `n` numbers in scratch memory.
_SIZED = f"""{HEADER}
from halide_backend.kernel_library import memory
from halide_backend.kernel_library.arguments import Size
ARGUMENTS = (Input("a", "float32", 0), Size("n"), Output("out", "float32", ((0, 1),)))

def pipeline():
    i, j = hl.Var("i"), hl.Var("j")
    n = memory.size(ARGUMENTS[1])
    a = memory.source(ARGUMENTS[0])
    r = hl.RDom([(0, n)], "r")
    square, out = hl.Func("square"), hl.Func("out")
    square[i, j] = 2 * a[i]
    out[j] = hl.f32(0)
    out[j] += square[r, j]
    memory.target(out, [j], [(n, 1)])
    square.compute_root()
    return [a, n], [out]
"""


def test_a_size_that_only_the_call_knows() -> None:
    sized = CFunction(_SIZED)
    for n in (1, 5, 33):
        a, out = torch.randn(n), torch.empty(n)
        assert sized(pointers(a, out), [n]) == (0, "untouched")
        torch.testing.assert_close(out, (2 * a).sum().expand(n))


def test_a_size_that_needs_more_than_32_bits_is_refused() -> None:
    sized, a, out = CFunction(_SIZED), torch.randn(4), torch.full((4,), -1.0)
    for n in (1 << 32, 1 << 31, -(1 << 31) - 1, (1 << 32) + 4):
        assert sized(pointers(a, out), [n]) == (-1, "the number 'n' does not fit 32 bits")
    assert (out == -1).all()


def test_what_fails_inside_of_a_kernel_is_negative() -> None:
    """4 TiB of scratch memory: the allocation fails, and whatever called it is left."""
    sized, a = CFunction(_SIZED), torch.randn(4)
    result, message = sized(pointers(a, a), [1 << 20])
    assert (result, message) == (-11, "not enough memory for the kernel's scratch space")
    assert sized.without_message(pointers(a, a), [1 << 20]) == -11


_NUMBER = f"""{HEADER}
from halide_backend.kernel_library.arguments import Integer
ARGUMENTS = (Integer("number"), Output("out", "int64", ((4, 1),)))

def pipeline():
    i = hl.Var("i")
    number = hl.Param(hl.Int(64), "number")
    out = hl.Func("out")
    out[i] = number + i
    out.bound(i, 0, 4)
    return [number], [out]
"""


def test_numbers_that_are_data_have_64_bits() -> None:
    out, number = np.zeros(4, np.int64), (1 << 62) + 7
    assert CFunction(_NUMBER)([out.ctypes.data], [number])[0] == 0
    assert out.tolist() == [number + k for k in range(4)]


def test_a_failed_check_is_the_result() -> None:
    def function(table: torch.Tensor, index: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Any:
        return table[index] + a // b

    table, index = torch.randn(50), torch.arange(10)
    a, b = torch.arange(10), torch.arange(1, 11)
    (captured,) = captured_kernels(function, (table, index, a, b), HOST)
    kernel, out = CFunction(captured.text), torch.empty(10)

    def result(index: torch.Tensor = index, b: torch.Tensor = b) -> tuple[int, str]:
        return kernel(pointers(index, table, a, b, out))  # in the order of the program

    assert result() == (0, "untouched")
    torch.testing.assert_close(out, function(table, index, a, b))
    out_of_range = 1, "index out of range: a dimension of size 50"
    assert result(index=index + 41) == result(index=index - 51) == out_of_range
    assert result(b=b * 0) == (2, "integer division or remainder by zero")
    # The first one of several.
    assert result(index=index + 41, b=b * 0) == out_of_range


def test_texts_of_messages_are_escaped() -> None:
    message = 'a "size" \\ of 3\n\u00e9'
    status = 'Status((("IndexError", ' + repr(message) + "),)))"
    text = DOUBLED.replace("(16, 1),)))", f"(16, 1),)), {status}").replace("[out]", "[out, status]")
    text = text.replace("import Input, Output", "import Input, Output, Status")
    text = text.replace("    return", '    status = hl.Func("status"); status[i] = hl.i32(1)\n    return')
    a = np.zeros(16, np.float32)
    assert CFunction(text)([a.ctypes.data, a.ctypes.data]) == (1, message)


def test_its_name_has_the_version() -> None:
    assert c_function("kernel_01") == "hb1_kernel_01"
    assert "sources" in toolchain()  # of build/, where the version is


def test_only_who_asks_for_a_c_function_gets_one() -> None:
    """It takes time to compile, so kernels that Python launches have none, and keys tell both apart."""
    called, launched = (
        get_or_compile(DOUBLED, HOST, name="doubled", c_interface=c_interface).artifact.result(60)
        for c_interface in (True, False)
    )
    assert called.entry != launched.entry
    assert c_function(called.entry) in elf.symbols(called.object).defined
    assert not any(name.startswith("hb") for name in elf.symbols(launched.object).defined)
