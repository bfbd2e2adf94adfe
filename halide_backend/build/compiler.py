"""A kernel's text in, an object file and its manifest out: the work a compile worker does.

Halide writes LLVM IR, which gets the two things Halide cannot say: that a multiplication and an
addition may contract to one FMA although everything else stays strict, and the exact processor.
LLVM makes the object from that; no compiler, assembler, linker or file is involved.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import halide as hl

from halide_backend.build.c_interface import with_c_interface
from halide_backend.build.device_code import block_threads, check_calls, check_shared_memory, device_code
from halide_backend.build.entry_names import with_placeholders
from halide_backend.build.executed_text import ExecutedText
from halide_backend.build.kernel import CompiledKernel
from halide_backend.build.llvm.bfloat16_conversions import integer_operations_are_rare, with_bfloat16_instructions
from halide_backend.build.llvm.code_generation import (
    emit_assembly,
    emit_object,
    for_processor,
    promoted,
    with_contraction,
)
from halide_backend.build.llvm.element_alignment import with_element_alignment
from halide_backend.build.llvm.gathered_rows import with_gathered_rows
from halide_backend.build.llvm.loop_accumulators import with_accumulators_in_registers
from halide_backend.build.llvm.near_gathers import with_near_gathers
from halide_backend.build.llvm.partial_vectors import with_whole_stores
from halide_backend.build.llvm.poison_lanes import with_whole_constants
from halide_backend.build.llvm.rare_ranges import with_rare_ranges
from halide_backend.build.llvm.riscv import halide_target
from halide_backend.build.llvm.scaled_products import with_scaled_products
from halide_backend.build.llvm.single_lane_stores import without_single_lane_stores
from halide_backend.build.llvm.transposed_tiles import with_direct_transpositions
from halide_backend.build.llvm.unused_lanes import without_unused_lanes
from halide_backend.build.llvm.variants import variant_entry, with_variant
from halide_backend.build.llvm.vector_parts import with_parts_as_shuffles
from halide_backend.build.ptx import ptxas
from halide_backend.build.target import Target
from halide_backend.errors import HalideCompileError, IllegalPlan

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
    kernel = ExecutedText(text, name)
    inputs, outputs = kernel.pipeline()
    manifest = kernel.manifest(inputs, outputs)
    registers = kernel.registers()
    _check_folds(kernel, inputs, outputs, target)
    ir = _versions(kernel, inputs, outputs, target, entry)
    if c_interface:
        ir = with_c_interface(ir, entry, manifest, on_gpu=bool(target.capability))
    if not target.capability:
        return CompiledKernel(emit_object(ir, target, name), manifest, time.perf_counter() - start)
    check_shared_memory(ir, name)
    # One after the other they take 1.05 times as long, all of it counted (19 kernels, 2 cores).
    with ThreadPoolExecutor(1) as beside:
        emission = beside.submit(emit_object, ir, target, name)
        module = device_code(kernel, ir, target)
        image = ptxas.assemble(str(with_placeholders(module)), target.capability, name, registers)
        machine_code = emission.result()
    check_calls(machine_code, name)
    manifest["threads"] = block_threads(ir)
    manifest["entries"], manifest["capability"] = list(module.names), target.capability
    return CompiledKernel(machine_code, manifest, time.perf_counter() - start, image)


def loop_nest(text: str, name: str) -> str:
    """The loops of a kernel as Halide prints them: to the standard error of this process, by way of a file.

    Raises:
        KernelTextError, HalideCompileError: as `compile_kernel`.
    """
    kernel = ExecutedText(text, name)
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
    kernel = ExecutedText(text, name)
    ir = _versions(kernel, *kernel.pipeline(), target, entry)
    if target.capability:
        return str(device_code(kernel, ir, target))
    return emit_assembly(ir, target, name)


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
    kernel = ExecutedText(text, name)
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


def _check_folds(kernel: ExecutedText, inputs: list[Any], outputs: list[Any], target: Target) -> None:
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


def _versions(kernel: ExecutedText, inputs: list[Any], outputs: list[Any], target: Target, entry: str) -> str:
    """The same as `_llvm_ir`, with the version for calls with certain sizes, if there is one that is not refused."""
    ir = _llvm_ir(kernel, inputs, outputs, target, entry)
    variant = kernel.variant()
    if variant is None:
        return ir
    try:
        arguments, results = variant.pipeline()
        _check_folds(variant, arguments, results, target)
        known = _llvm_ir(variant, arguments, results, target, variant_entry(entry))
    except (HalideCompileError, IllegalPlan):
        return ir
    return with_variant(ir, known, entry, kernel.variant_numbers())


def _llvm_ir(kernel: ExecutedText, inputs: list[Any], outputs: list[Any], target: Target, entry: str) -> str:
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
    # What a load promises of its address, LLVM's passes take for granted afterwards.
    ir = without_unused_lanes(with_element_alignment(with_contraction(for_processor(ir, target))))
    ir, whole = with_whole_stores(ir)
    if whole:
        ir = with_parts_as_shuffles(promoted(ir, target, entry))
    if whole or "@llvm.masked.store." in ir:
        ir = with_accumulators_in_registers(ir)
    ir = with_scaled_products(with_whole_constants(without_single_lane_stores(ir)), target)
    ir = with_gathered_rows(with_near_gathers(with_direct_transpositions(ir), target))
    shorter = with_rare_ranges(with_bfloat16_instructions(ir, target))
    return shorter if integer_operations_are_rare(shorter) else with_rare_ranges(ir)
