"""What one launch costs above an empty C call: a kernel of 3 buffers with 64 floats each.

    python benchmarks/launch_overhead.py [--json FILE] [--rounds N] [--calls N]

Times, in alternating rounds of one process, an empty C function (METH_FASTCALL, called with the
same three tensors), the launcher with the GIL held and released, and the launcher while nothing is
computed (a kernel that returns at once). Every number is the median over rounds of the mean time of
one call; a round is a fraction of a scheduler's time slice, so that other processes disturb few
rounds. The result of the kernel is compared with torch's in the same run, before and after the
timing. Needs no C compiler.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import halide as hl
import llvmlite
import llvmlite.binding as llvm
import torch

from halide_backend.launch.launcher import Pipeline, configure, make_launcher, native

ELEMENTS = 64
LIMIT_NS = 150

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

# A function that only returns None, and a kernel that only returns 0.
EMPTY = """
declare void @Py_IncRef(ptr)
define ptr @empty_call(ptr %self, ptr %arguments, i64 %count) {
  %none = inttoptr i64 {none} to ptr
  call void @Py_IncRef(ptr %none)
  ret ptr %none
}
define i32 @empty_kernel_argv(ptr %arguments) {
  ret i32 0
}
"""


class MethodDef(ctypes.Structure):
    """PyMethodDef of CPython."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


METH_FASTCALL = 0x80

# A builtin reads its definition until it is gone.
_definitions: list[MethodDef] = []


def add_object() -> bytes:
    """The object of a Halide kernel `add`: out[x] = a[x] + b[x]."""
    target, feature = hl.get_host_target(), hl.TargetFeature
    needed = (feature.NoAsserts, feature.NoBoundsQuery, feature.NoRuntime, feature.StrictFloat)
    for each in needed:
        target = target.with_feature(each)
    a, b = (hl.ImageParam(hl.Float(32), 1, name) for name in "ab")
    x, out = hl.Var("x"), hl.Func("out")
    out[x] = a[x] + b[x]
    out.bound(x, 0, ELEMENTS).vectorize(x, target.natural_vector_size(hl.Float(32)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "add.o"
        hl.Pipeline([out]).compile_to_object(str(path), [a, b], "add", target)
        return path.read_bytes()


def link() -> tuple[object, dict[str, int]]:
    """Both modules, linked: what keeps them alive, and the addresses of their functions."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    compiler = llvm.create_lljit_compiler()
    kernels = llvm.JITLibraryBuilder().add_object_img(add_object()).export_symbol("add_argv")
    for name, address in native().symbols().items():
        kernels.import_symbol(name, address)
    empty = llvm.JITLibraryBuilder().add_ir(EMPTY.replace("{none}", str(id(None))))
    empty.import_symbol("Py_IncRef", ctypes.cast(ctypes.pythonapi.Py_IncRef, ctypes.c_void_p).value)
    for name in ("empty_call", "empty_kernel_argv"):
        empty.export_symbol(name)
    libraries = kernels.link(compiler, "add"), empty.link(compiler, "empty")
    addresses = {"add": libraries[0]["add_argv"]}
    addresses |= {name: libraries[1][name] for name in ("empty_call", "empty_kernel_argv")}
    return (compiler, libraries), addresses


def empty_call(address: int) -> Callable[..., None]:
    """The empty function as a Python builtin."""
    definition = MethodDef(b"empty_call", address, METH_FASTCALL, None)
    _definitions.append(definition)
    create = ctypes.pythonapi.PyCFunction_NewEx
    create.restype = ctypes.py_object
    create.argtypes = (ctypes.POINTER(MethodDef), ctypes.c_void_p, ctypes.c_void_p)
    function: Callable[..., None] = create(ctypes.byref(definition), None, None)
    return function


def launcher(name: str, address: int, code: object, release_gil: bool) -> Callable[..., None]:
    """A kernel of three float32 buffers of ELEMENTS elements."""
    arguments = [
        {"kind": "buffer", "name": n, "code": 2, "bits": 32, "offset": 0, "dims": [[ELEMENTS, 1]]}
        for n in ("a", "b", "out")
    ]
    pipeline = Pipeline(address, arguments, (0, 1, 2), (), release_gil, code)
    return make_launcher(name, [pipeline], 3)


def time_calls(function: Callable[..., None], tensors: Tensors, calls: int) -> float:
    """Mean nanoseconds of one call, the loop of the interpreter included."""
    a, b, out = tensors
    start = time.perf_counter_ns()
    for _ in range(calls):
        function(a, b, out)
    return (time.perf_counter_ns() - start) / calls


def check(add: Callable[..., None], tensors: Tensors) -> None:
    """Raises AssertionError unless the kernel writes exactly what torch computes."""
    a, b, out = tensors
    out.fill_(float("nan"))
    add(a, b, out)
    if not torch.equal(out, a + b):
        raise AssertionError("the kernel's result differs from torch's")


def alternate(
    subjects: dict[str, Callable[..., None]], tensors: Tensors, rounds: int, calls: int
) -> dict[str, list[float]]:
    """Nanoseconds a call of every subject, one number per round; the subjects take turns."""
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for function in subjects.values():
        time_calls(function, tensors, calls)
    for _ in range(rounds):
        for name, function in subjects.items():
            times[name].append(time_calls(function, tensors, calls))
    return times


def measure(rounds: int, calls: int) -> dict[str, object]:
    """Runs the benchmark; all times in nanoseconds a call."""
    runtime = configure()
    code, addresses = link()
    tensors = (torch.randn(ELEMENTS), torch.randn(ELEMENTS), torch.empty(ELEMENTS))
    subjects = {
        "empty_call": empty_call(addresses["empty_call"]),
        "gil_held": launcher("add_held", addresses["add"], code, release_gil=False),
        "gil_released": launcher("add_released", addresses["add"], code, release_gil=True),
        "empty_kernel": launcher("nothing", addresses["empty_kernel_argv"], code, False),
    }
    kernels = subjects["gil_held"], subjects["gil_released"]
    for kernel in kernels:
        check(kernel, tensors)
    times = alternate(subjects, tensors, rounds, calls)
    for kernel in kernels:
        check(kernel, tensors)
    base = times["empty_call"]
    above = {
        name: statistics.median(t - b for t, b in zip(values, base, strict=True))
        for name, values in times.items()
        if name != "empty_call"
    }
    return {
        "command": f"python benchmarks/launch_overhead.py --rounds {rounds} --calls {calls}",
        "ns_per_call": {n: round(statistics.median(v), 1) for n, v in times.items()},
        "ns_lowest": {n: round(min(v), 1) for n, v in times.items()},
        "ns_above_empty_call": {n: round(v, 1) for n, v in above.items()},
        "limit_ns": LIMIT_NS,
        "within_limit": above["gil_held"] <= LIMIT_NS,
        "result_equals_torch": True,
        "rounds": rounds,
        "calls_per_round": calls,
        "elements": ELEMENTS,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "halide": importlib.metadata.version("halide"),
        "llvmlite": llvmlite.__version__,
        "cpu": llvm.get_host_cpu_name(),
        "openmp": Path(runtime.openmp).name,
    }


def main() -> int:
    """Prints the result, writes it as JSON if asked; 1 where a launch costs more than the limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="write the result to this file")
    parser.add_argument("--rounds", type=int, default=1001)
    parser.add_argument("--calls", type=int, default=2_000)
    options = parser.parse_args()
    result = measure(options.rounds, options.calls)
    for name, value in result.items():
        print(f"{name:22} {value}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if result["within_limit"] else 1


if __name__ == "__main__":
    sys.exit(main())
