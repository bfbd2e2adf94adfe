"""From Halide's LLVM IR to an object: for the exact processor, with the contractions that strict floats lack."""

from __future__ import annotations

import re
from functools import cache

from llvmlite import binding as llvm

from halide_backend.build.target import Target
from halide_backend.errors import LLVMCompileError

#: Operations that LLVM may fuse; strict IR carries no other flags, so NaN, infinity and signed
#: zero keep their meaning.
_CONTRACTIBLE = re.compile(r"= (fadd|fmul|fsub|fneg) ")
_FEATURES = re.compile(r'"target-cpu"="[^"]*" "target-features"="([^"]*)"(?: "tune-cpu"="[^"]*")?')
_REPORT = "Please report it with the kernel's text."


def for_processor(ir: str, target: Target) -> str:
    """Name the target's own processor and features in place of Halide's guess from its features.

    Halide knows a dozen features and picks a processor that implies others, which this machine
    (a virtual one, say) may lack. Its `prefer-...` tuning is kept.
    """

    def attributes(match: re.Match[str]) -> str:
        words = match[1].split(",")
        kept = [word for word in words if not target.features or word[1:].startswith("prefer-")]
        features = ",".join(filter(None, [*kept, target.features]))
        return f'"target-cpu"="{target.cpu}" "target-features"="{features}"'

    return _FEATURES.sub(attributes, ir)


def with_contraction(ir: str) -> str:
    """Allow products and sums to contract to FMA: the one liberty strict_float must not take."""
    return _CONTRACTIBLE.sub(r"= \1 contract ", ir)


def emit_object(ir: str, target: Target, name: str, *, promote: bool = False) -> bytes:
    """Turn LLVM IR into a position-independent relocatable object.

    Halide has optimized the IR. `promote` says that there is memory on the stack since which belongs in registers.

    Raises:
        LLVMCompileError: the IR does not parse or verify.
    """
    try:
        module = llvm.parse_assembly(ir)
        module.verify()
        machine = _machine(target, module.triple)
        if promote:
            _promote(module, machine)
        return bytes(machine.emit_object(module))
    except RuntimeError as error:
        raise LLVMCompileError(
            str(error), where=f"kernel {name}", cure="Please report it with the kernel's text."
        ) from error


def _promote(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    """Move memory on the stack into registers, where LLVM finds that it may."""
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)


@cache
def _machine(target: Target, triple: str) -> llvm.TargetMachine:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="default"
    )
