"""Real machine code for the launcher's tests: Halide pipelines and LLVM IR, linked by llvmlite."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import halide as hl
import llvmlite.binding as llvm
import pytest
from launch_manifests import buffer

from halide_backend.launch.launcher import Pipeline, make_launcher, native

_numbers = itertools.count()
_C_FUNCTIONS = ("gettid", "usleep", "sinf", "tanhf", "expf", "memset", "memcpy")


class Code:
    """Everything that keeps linked machine code alive."""

    def __init__(self, *owners: object) -> None:
        self.owners = owners


def _builder() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    library = llvm.JITLibraryBuilder()
    for name, address in native().symbols().items():
        library.import_symbol(name, address)
    process = ctypes.CDLL(None)
    for name in _C_FUNCTIONS:
        try:
            function = getattr(process, name)
        except AttributeError:
            function = getattr(ctypes.CDLL("libm.so.6"), name)
        library.import_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
    return library


def _link(library: Any, entry: str) -> tuple[int, Code]:
    compiler = llvm.create_lljit_compiler()
    linked = library.export_symbol(entry).link(compiler, f"library_{next(_numbers)}")
    return linked[entry], Code(compiler, linked)


@pytest.fixture
def link_ir() -> Callable[[str, str], tuple[int, Code]]:
    """Links LLVM IR text: (text, function) -> (address, what keeps it alive)."""
    return lambda text, entry: _link(_builder().add_ir(text), entry)


@pytest.fixture
def compile_halide(tmp_path: Path) -> Callable[..., tuple[int, Code, bytes]]:
    """Compiles and links a pipeline: (inputs, outputs, bounds_queries) -> (address, owner, object)."""

    def compile(
        inputs: Sequence[Any], outputs: Sequence[hl.Func], bounds_queries: bool = False
    ) -> tuple[int, Code, bytes]:
        feature = hl.TargetFeature
        target = hl.get_host_target().with_feature(feature.NoRuntime)
        target = target.with_feature(feature.StrictFloat).with_feature(feature.NoAsserts)
        if not bounds_queries:
            target = target.with_feature(feature.NoBoundsQuery)
        name = f"kernel_{next(_numbers)}"
        path = tmp_path / f"{name}.o"
        hl.Pipeline(list(outputs)).compile_to_object(str(path), list(inputs), name, target)
        address, code = _link(_builder().add_object_img(path.read_bytes()), f"{name}_argv")
        return address, code, path.read_bytes()

    return compile


@pytest.fixture
def kernel_of_ir(link_ir: Callable[[str, str], tuple[int, Code]]) -> Callable[..., Any]:
    """A launcher of IR that defines `kernel`: (text, arguments, checks=(), release_gil=False)."""

    def make(
        text: str,
        arguments: Sequence[Mapping[str, Any]],
        checks: Sequence[Mapping[str, str]] = (),
        release_gil: bool = False,
        name: str = "ir_kernel",
    ) -> Any:
        address, code = link_ir(text, "kernel")
        arity = sum(a["kind"] != "status" for a in arguments)
        pipeline = Pipeline(address, arguments, range(arity), checks, release_gil, code)
        return make_launcher(name, [pipeline], arity)

    return make


@pytest.fixture
def add_pipeline(compile_halide: Callable[..., tuple[int, Code, bytes]]) -> Callable[..., Pipeline]:
    """A pipeline out = a + b over float32: (extent, release_gil=False)."""

    def make(extent: int, release_gil: bool = False) -> Pipeline:
        a, b = (hl.ImageParam(hl.Float(32), 1, name) for name in "ab")
        x, out = hl.Var("x"), hl.Func("out")
        out[x] = a[x] + b[x]
        address, code, _ = compile_halide([a, b], [out])
        arguments = [buffer(name, extent) for name in ("a", "b", "out")]
        return Pipeline(address, arguments, (0, 1, 2), (), release_gil, code)

    return make
