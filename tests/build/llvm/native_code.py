"""LLVM IR as code of this machine's processor, to be called."""

from __future__ import annotations

from llvmlite import binding as llvm

from halide_backend.build.target import Target


def native_engine(ir: str) -> llvm.ExecutionEngine:
    """Holds the code of `ir` for as long as it lives."""
    target = Target.host()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, jit=True
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(ir), machine)
    engine.finalize_object()
    return engine
