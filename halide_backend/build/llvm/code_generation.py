"""From Halide's LLVM IR to an object: for the exact processor, with the contractions that strict floats lack."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

from llvmlite import binding as llvm

from halide_backend.build.llvm import riscv
from halide_backend.build.llvm.ir_syntax import FUNCTION, NAME, lines_with
from halide_backend.build.llvm.sign_masks import misread, without
from halide_backend.build.target import Target
from halide_backend.errors import LLVMCompileError

Code = TypeVar("Code", bytes, str)

#: Operations that LLVM may fuse; strict IR carries no other flags, so NaN, infinity and signed
#: zero keep their meaning.
_CONTRACTIBLE = re.compile(rf"({NAME}) = (fadd|fmul|fsub|fneg) ")
_OPERATIONS = ("fadd", "fmul", "fsub", "fneg")
#: By what `with_contraction` knows a product with two powers of two, which are made of integers.
_INTEGER_SUM = re.compile(rf"^ *({NAME}) = (?:add|sub) ", re.MULTILINE)
_BITCAST = re.compile(rf"^ *({NAME}) = bitcast [^%\n]*({NAME}) to ", re.MULTILINE)
_PRODUCT = re.compile(rf"^ *({NAME}) = fmul [^%\n]*({NAME}), ({NAME}) *$", re.MULTILINE)
#: LLVM writes no value where it is empty.
_FEATURES = re.compile(
    r'"target-cpu"(?:="[^"]*")? "target-features"(?:="(?P<features>[^"]*)")?(?: "tune-cpu"(?:="[^"]*")?)?'
)
_REPORT = "Please report it with the kernel's text."


def for_processor(ir: str, target: Target) -> str:
    """Name the target's own processor and features in place of Halide's guess from its features.

    Halide knows a dozen features and picks a processor that implies others, which this machine
    (a virtual one, say) may lack. Its `prefer-...` tuning is kept.
    """

    def attributes(match: re.Match[str]) -> str:
        words = (match["features"] or "").split(",")
        kept = [word for word in words if not target.features or word[1:].startswith("prefer-")]
        features = ",".join(filter(None, [*kept, target.features]))
        return f'"target-cpu"="{target.cpu}" "target-features"="{features}"'

    return _FEATURES.sub(attributes, ir)


def with_contraction(ir: str) -> str:
    """Allow products and sums to contract to FMA: the one liberty strict_float must not take.

    The last product of `times_power_of_two` is left alone, because it may overflow: exp(100) - inf is NaN, and of a
    product that is not rounded -inf would remain.
    """

    def in_function(function: re.Match[str]) -> str:
        text = function[0]
        casts = _BITCAST.findall(lines_with(text, " = bitcast "))
        # Integers, among them the bits of powers of two; and those as floats.
        sums = set(_INTEGER_SUM.findall(text)) if casts else set()
        powers = {name for name, bits in casts if bits in sums}
        factors = {name: {left, right} for name, left, right in _PRODUCT.findall(text)} if powers else {}
        scaled = {name for name, pair in factors.items() if pair & powers and pair & factors.keys()}
        if not scaled:
            for operation in _OPERATIONS:
                text = text.replace(f" = {operation} ", f" = {operation} contract ")
            return text

        def contracted(match: re.Match[str]) -> str:
            return match[0] if match[1] in scaled else f"{match[1]} = {match[2]} contract "

        return _CONTRACTIBLE.sub(contracted, text)

    return FUNCTION.sub(in_function, ir)


def emit_object(ir: str, target: Target, name: str) -> bytes:
    """Turn LLVM IR into a position-independent relocatable object.

    Halide has optimized the IR.

    Raises:
        LLVMCompileError: the IR does not parse or verify.
    """
    return _emitted(lambda module, machine: bytes(machine.emit_object(module)), ir, target, name)


def emit_assembly(ir: str, target: Target, name: str) -> str:
    """The same code as assembly language.

    Raises:
        LLVMCompileError: as `emit_object`.
    """
    return _emitted(lambda module, machine: str(machine.emit_assembly(module)), ir, target, name)


def _emitted(emit: Callable[[llvm.ModuleRef, llvm.TargetMachine], Code], ir: str, target: Target, name: str) -> Code:
    with _prepared(ir, target, name) as (module, machine):
        code = emit(module, machine)
    features = misread(code) if target.architecture.startswith("x86") else []
    if not features:
        return code
    with _prepared(without(features, ir), target, name) as (module, machine):
        return emit(module, machine)


@contextmanager
def _prepared(ir: str, target: Target, name: str) -> Iterator[tuple[llvm.ModuleRef, llvm.TargetMachine]]:
    if target.architecture == riscv.ARCHITECTURE:
        ir = riscv.for_riscv(ir)
    try:
        module = llvm.parse_assembly(ir)
        module.verify()
        machine = _machine(target, module.triple)
        yield module, machine
    except RuntimeError as error:
        raise LLVMCompileError(str(error), where=f"kernel {name}", cure=_REPORT) from error


def promoted(ir: str, target: Target, name: str) -> str:
    """LLVM IR with memory on the stack in registers, where LLVM finds that it may be.

    Raises:
        LLVMCompileError: as `emit_object`.
    """
    with _prepared(ir, target, name) as (module, machine):
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
        passes = llvm.create_new_function_pass_manager()
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        # Around a loop, what lay in memory before is passed on from step to step, and nobody reads it.
        passes.add_aggressive_dce_pass()
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)
        return str(module)


@cache
def _machine(target: Target, triple: str) -> llvm.TargetMachine:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="default"
    )
