"""A kernel's text in, an object file and its manifest out: the work a compile worker does.

Halide writes LLVM IR, which gets the two things Halide cannot say: that a multiplication and an
addition may contract to one FMA although everything else stays strict, and the exact processor.
LLVM makes the object from that; no compiler, assembler, linker or file is involved.
"""

from __future__ import annotations

import linecache
import os
import re
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import halide as hl

from halide_backend.build import elf
from halide_backend.build.c_interface import LAUNCH, with_c_interface
from halide_backend.build.entry_names import with_placeholders
from halide_backend.build.kernel import CompiledKernel
from halide_backend.build.llvm.code_generation import emit_assembly, emit_object, for_processor, with_contraction
from halide_backend.build.llvm.element_alignment import with_element_alignment
from halide_backend.build.llvm.partial_vectors import with_whole_stores
from halide_backend.build.llvm.rare_ranges import with_rare_ranges
from halide_backend.build.llvm.riscv import halide_target
from halide_backend.build.llvm.scaled_products import with_scaled_products
from halide_backend.build.llvm.single_lane_stores import without_single_lane_stores
from halide_backend.build.llvm.transposed_tiles import with_direct_transpositions
from halide_backend.build.ptx import ptxas
from halide_backend.build.ptx.completion import complete, extract, with_eviction_priority
from halide_backend.build.ptx.instructions import Module
from halide_backend.build.target import SHARED_BYTES, Target
from halide_backend.errors import HalideCompileError, IllegalPlan, KernelTextError

_REFUSED = "Correct the schedule in the kernel's text, or delete the text to have it made anew."
_INVALID = "A kernel text defines ARGUMENTS and pipeline() -> (inputs, outputs); compare it with the original."

#: The threads of a block in a launch and its bytes of shared memory.
_LAUNCH = re.compile(r"call i32 @halide_cuda_run\((?:ptr [^,]+, ){3}(?:i32 [^,]+, ){3}((?:i32 [^,]+, ){3})i32 ([^,]+),")
#: Registers that a thread can have.
_MOST_REGISTERS = 255

#: What the host half of a kernel calls to launch the other one (launch/cuda.c), and its C function.
_LAUNCHING = frozenset((LAUNCH, "halide_error")) | frozenset(
    f"halide_{name}"
    for name in (
        "copy_to_device",
        "cuda_device_interface",
        "cuda_finalize_kernels",
        "cuda_initialize_kernels",
        "cuda_run",
    )
)
_ENTRY = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def compile_kernel(text: str, target: Target, entry: str, name: str = "", c_interface: bool = False) -> CompiledKernel:
    """Compile the text of one kernel in this process.

    Halide numbers its intermediate names process-wide and lets them into the object, so equal
    bytes are guaranteed only for equal processes; a worker forks a fresh one for every kernel.

    Args:
        text: Python source of the kernel.
        target: machine to compile for.
        entry: symbol of the compiled function, a C identifier.
        name: name of the kernel for messages and tracebacks; `entry` when empty.
        c_interface: whether the object is to define its C function, too.

    Raises:
        KernelTextError: the text does not run, or lacks what a text must define.
        HalideCompileError: Halide refused the pipeline or its schedule.
        LLVMCompileError: LLVM refused the IR.
    """
    if not _ENTRY.fullmatch(entry):
        raise ValueError(f"the entry {entry!r} is not a C identifier")
    start = time.perf_counter()
    name = name or entry
    kernel = _Text(text, name)
    inputs, outputs = kernel.pipeline()
    manifest = manifest_of(kernel.namespace, inputs, outputs, name)
    registers = _registers(kernel.namespace, name)
    _check_folds(kernel, inputs, outputs, target)
    ir, promote = _llvm_ir(kernel, inputs, outputs, target, entry)
    if c_interface:
        ir = with_c_interface(ir, entry, manifest, on_gpu=bool(target.capability))
    machine_code = emit_object(ir, target, name, promote=promote)
    image = b""
    if target.capability:
        manifest["threads"] = _threads(ir)
        _check_launches(ir, machine_code, name)
        module = _device_code(kernel, ir, machine_code, target)
        manifest["entries"], manifest["capability"] = list(module.names), target.capability
        image = ptxas.assemble(str(with_placeholders(module)), target.capability, name, registers)
    return CompiledKernel(machine_code, manifest, time.perf_counter() - start, image)


def loop_nest(text: str, name: str) -> str:
    """The loops of a kernel as Halide prints them: to the standard error of this process, by way of a file.

    Raises:
        KernelTextError, HalideCompileError: as `compile_kernel`.
    """
    kernel = _Text(text, name)
    _, outputs = kernel.pipeline()
    stderr, file = os.dup(2), os.memfd_create(name)
    try:
        os.dup2(file, 2)
        with kernel.errors_located():
            hl.Pipeline(outputs).print_loop_nest()
        with open(file, encoding="utf-8", closefd=False) as printed:
            printed.seek(0)
            return printed.read()
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(file)


def assembly(text: str, target: Target, entry: str, name: str) -> str:
    """What a kernel is compiled to, readable: the processor's assembly language, or for a GPU PTX.

    Args:
        text, target, entry, name: as for `compile_kernel`.

    Raises:
        KernelTextError, HalideCompileError, LLVMCompileError: as `compile_kernel`.
    """
    kernel = _Text(text, name)
    ir, promote = _llvm_ir(kernel, *kernel.pipeline(), target, entry)
    if target.capability:
        return str(_device_code(kernel, ir, emit_object(ir, target, name, promote=promote), target))
    return emit_assembly(ir, target, name, promote=promote)


def autoschedule(
    text: str, target: Target, scheduler: str, estimates: Mapping[str, Sequence[int]], parallelism: int, name: str
) -> str:
    """How one of Halide's autoschedulers would schedule a kernel, in the C++ that it prints.

    Args:
        text: of the kernel; its own steps are left out.
        scheduler: the name of a plugin that comes with Halide, "Adams2019".
        estimates: typical extents of outputs, innermost first, of inputs, and values of sizes, by their names.
        parallelism: threads that the schedule is for.
        target, name: as for `compile_kernel`.

    Raises:
        KernelTextError: as `compile_kernel`. HalideCompileError: the autoscheduler finds none, or is not there.
    """
    kernel = _Text(text, name)
    plugin = Path(hl.__file__).parent / "lib64" / f"libautoschedule_{scheduler.lower()}.so"
    if not plugin.exists():
        raise HalideCompileError(
            f"this Halide comes without {plugin.name}", where=f"kernel {name}", cure="install Halide's own wheel"
        )
    with kernel.errors_located():
        inputs, outputs, _ = kernel.namespace["algorithm"]()
        for item in inputs:
            (number,) = estimates[item.name()]
            if isinstance(item, hl.Param):
                item.set_estimate(number)
            else:
                item.dim(0).set_estimate(0, number)
        for func in outputs:
            for var, extent in zip(func.args(), estimates[func.name()]):
                func.set_estimate(var, 0, extent)
        hl.load_plugin(str(plugin))
        parameters = hl.AutoschedulerParams(scheduler, {"parallelism": str(parallelism)})
        return str(hl.Pipeline(outputs).apply_autoscheduler(hl.Target(target.halide), parameters).schedule_source)


def _device_code(kernel: _Text, ir: str, machine_code: bytes, target: Target) -> Module:
    """What runs on the GPU, as it is assembled."""
    module = complete(extract(machine_code), kernel.name, target.capability, _threads(ir))
    return with_eviction_priority(module, str(kernel.namespace.get("LOADS", "")))


def _registers(namespace: Mapping[str, Any], name: str) -> str | float:
    """`REGISTERS` of a text, as `ptxas.assemble` takes it.

    Raises:
        KernelTextError: it is anything else.
    """
    registers = namespace.get("REGISTERS", "auto")
    number = type(registers) is int and 0 < registers <= _MOST_REGISTERS
    part = type(registers) is float and 0 < registers < 1
    if registers != "auto" and not number and not part:
        raise KernelTextError(
            f"REGISTERS is {registers!r}",
            where=f"kernel {name}",
            cure=f'Use "auto", a number from 1 to {_MOST_REGISTERS}, or a part of the registers between 0.0 and 1.0.',
        )
    limit: str | float = registers
    return limit


def _check_launches(ir: str, machine_code: bytes, name: str) -> None:
    """Look at the half of a GPU kernel that launches the other one, as IR and as an object.

    Raises:
        HalideCompileError: the kernel would allocate or copy memory, or a block needs more shared memory than it gets.
    """
    launches = _LAUNCH.findall(ir)
    if computed := [shared for _, shared in launches if not shared.isdecimal()]:
        raise HalideCompileError(
            f"the shared memory of a block is computed when it is launched ({computed[0]})",
            where=f"kernel {name}",
            cure=_REFUSED,
        )
    if (most := max((int(shared) for _, shared in launches), default=0)) > SHARED_BYTES:
        raise HalideCompileError(
            f"a block needs {most} bytes of shared memory, more than {SHARED_BYTES}",
            where=f"kernel {name}",
            cure=_REFUSED,
        )
    calls = elf.symbols(machine_code).undefined
    if beyond := sorted(s for s in calls if s.startswith("halide_") and s not in _LAUNCHING):
        raise HalideCompileError(
            f"its launch needs {', '.join(beyond)}; a kernel may not keep results in memory of its own",
            where=f"kernel {name}",
            cure=_REFUSED,
        )


def _threads(ir: str) -> tuple[int, ...]:
    """Threads of a block in three dimensions; empty if launches differ, or compute it."""
    sizes = {tuple(map(int, re.findall(r"i32 (\d+)", threads))) for threads, _ in _LAUNCH.findall(ir)}
    threads = sizes.pop() if len(sizes) == 1 else ()
    return threads if len(threads) == 3 else ()


def manifest_of(namespace: Mapping[str, Any], inputs: list[Any], outputs: list[Any], name: str) -> dict[str, Any]:
    """Return what the launcher must know, as plain JSON.

    "arguments" holds one description per argument of the entry, "checks" what each element of
    the status buffer means, "release_gil" whether the call is long enough to let others run.

    Raises:
        KernelTextError: ARGUMENTS do not fit what pipeline() returned. A launcher that trusted
            them would read wild memory.
    """
    declared = namespace["ARGUMENTS"]
    arguments = [argument.to_json() for argument in declared]
    if "ALIGNED" in namespace:
        for argument in arguments:
            argument["device"] = "cuda"
            argument["alignment"] = 16 if argument["name"] in namespace["ALIGNED"] else 1
    checks = [
        {"error": error, "message": message}
        for argument in declared
        for error, message in getattr(argument, "checks", ())
    ]
    shapes = [0 if isinstance(item, hl.Param) else item.dimensions() for item in inputs]
    shapes += [func.dimensions() for func in outputs for _ in range(func.outputs())]
    if len(shapes) != len(arguments):
        raise KernelTextError(
            f"ARGUMENTS has {len(arguments)} entries, but pipeline() returned {len(inputs)} "
            f"inputs and {len(shapes) - len(inputs)} outputs",
            where=f"kernel {name}",
            cure=_INVALID,
        )
    for argument, dimensions in zip(arguments, shapes, strict=True):
        told = {"buffer": len(argument.get("dims", ())), "status": 1}.get(argument["kind"], 0)
        if told != dimensions:
            raise KernelTextError(
                f"the argument {argument['name']!r} is declared with {told} dimensions, but "
                f"has {dimensions} in pipeline()",
                where=f"kernel {name}",
                cure=_INVALID,
            )
    return {
        "arguments": arguments,
        "checks": checks,
        "release_gil": bool(namespace.get("RELEASE_GIL", True)),
    }


def _check_folds(kernel: _Text, inputs: list[Any], outputs: list[Any], target: Target) -> None:
    """Let Halide prove that folded storage holds what is needed at a time, which no step says: what it cannot prove it
    asserts, and kernels have no assertions.

    Raises:
        IllegalPlan: it cannot.
    """
    steps = [step for step in kernel.namespace.get("SCHEDULE", ()) if type(step).__name__ == "FoldStorage"]
    if not steps:
        return
    features = [part for part in halide_target(target.halide).split("-") if part != "no_asserts"]
    with tempfile.NamedTemporaryFile("r", suffix=".stmt") as file, kernel.errors_located():
        asserting = hl.Target("-".join(features))
        hl.Pipeline(outputs).compile_to_lowered_stmt(file.name, inputs, hl.StmtOutputFormat.Text, asserting)
        if "halide_error_fold_factor_too_small" in file.read():
            raise IllegalPlan("too few lines", where=repr(steps[0]), cure="keep as many as are read at a time")


def _llvm_ir(kernel: _Text, inputs: list[Any], outputs: list[Any], target: Target, entry: str) -> tuple[str, bool]:
    """The IR, and whether `emit_object` is to promote memory on the stack."""
    # An anonymous file in memory: a worker that is killed leaves nothing behind.
    file = os.memfd_create(entry)
    try:
        with kernel.errors_located():
            hl.Pipeline(outputs).compile_to_llvm_assembly(
                f"/proc/self/fd/{file}", inputs, entry, hl.Target(halide_target(target.halide))
            )
        with open(file, encoding="utf-8", closefd=False) as written:
            ir = written.read()
    finally:
        os.close(file)
    ir, promote = with_whole_stores(with_contraction(for_processor(ir, target)))
    ir = with_scaled_products(with_element_alignment(without_single_lane_stores(ir)), target)
    return with_rare_ranges(with_direct_transpositions(ir)), promote


class _Text:
    """A kernel's text, executed in a namespace of its own."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self._file = f"<halide kernel {name}>"
        lines = text.splitlines(keepends=True)
        linecache.cache[self._file] = (len(text), None, lines, self._file)
        self.namespace: dict[str, Any] = {"__name__": f"halide_kernel_{name}"}
        with self.errors_located():
            exec(compile(text, self._file, "exec"), self.namespace)

    def pipeline(self) -> tuple[list[Any], list[Any]]:
        """Call the text's pipeline() and check what it returns."""
        for required in ("ARGUMENTS", "pipeline"):
            if required not in self.namespace:
                raise self._invalid(f"the text does not define {required}")
        with self.errors_located():
            returned = self.namespace["pipeline"]()
        if not (
            isinstance(returned, tuple)
            and len(returned) == 2
            and all(isinstance(part, (list, tuple)) for part in returned)
        ):
            raise self._invalid("pipeline() did not return a pair of lists (inputs, outputs)")
        inputs, outputs = (list(part) if isinstance(part, (list, tuple)) else [] for part in returned)
        for item in inputs:
            if not isinstance(item, (hl.ImageParam, hl.Param)):
                raise self._invalid(f"pipeline() returned the input {item!r}, not a parameter")
        for item in outputs:
            if not isinstance(item, hl.Func):
                raise self._invalid(f"pipeline() returned the output {item!r}, not a Func")
        if not outputs:
            raise self._invalid("pipeline() returned no outputs")
        return inputs, outputs

    @contextmanager
    def errors_located(self) -> Iterator[None]:
        """Turn whatever goes wrong into a typed error that names the kernel and the line."""
        try:
            yield
        except hl.HalideError as error:
            what = str(error).strip().removeprefix("Error: ")
            raise HalideCompileError(what, where=self._place(error), cure=_REFUSED) from error
        except IllegalPlan as error:
            raise IllegalPlan(error.what, where=f"kernel {self.name}, {error.where}", cure=error.cure) from error
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:
            what = f"{type(error).__name__}: {error}"
            raise KernelTextError(what, where=self._place(error), cure=_INVALID) from error

    def _place(self, error: BaseException) -> str:
        frames = traceback.extract_tb(error.__traceback__)
        numbers = [frame.lineno for frame in frames if frame.filename == self._file]
        if isinstance(error, SyntaxError) and error.filename == self._file:
            numbers.append(error.lineno)
        if not numbers or numbers[-1] is None:
            return f"kernel {self.name}"
        line = linecache.getline(self._file, numbers[-1]).strip()
        return f"kernel {self.name}, line {numbers[-1]} ({line})"

    def _invalid(self, what: str) -> KernelTextError:
        return KernelTextError(what, where=f"kernel {self.name}", cure=_INVALID)
