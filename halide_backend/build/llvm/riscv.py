"""LLVM IR for RISC-V with vectors of fixed length, from what Halide writes for another processor.

Halide's own IR for RISC-V has scalable vectors, as predicated intrinsics of which LLVM lacks some (`llvm.vp.not`), and
code for exactly one length of the registers. LLVM by itself compiles vectors of fixed length to the V extension, for
registers of at least 128 bits. Halide writes such IR for a 64-bit ARM without NEON, and nothing else of ARM is in it:
same byte order, same sizes and alignments, no intrinsic of the processor.
"""

from __future__ import annotations

import re

#: As a Halide target begins.
ARCHITECTURE = "riscv-64"
WRITTEN_FOR = "arm-64"
#: The feature of `WRITTEN_FOR` without which Halide would use ARM's intrinsics.
WITHOUT_INTRINSICS = "no_neon"

_HEADER = re.compile(r'^target (datalayout|triple) = "[^"]*"', re.MULTILINE)
#: What clang has for RISC-V (LLVM 22, `RISCVTargetMachine`).
_RISCV = {"datalayout": "e-m:e-p:64:64-i64:64-i128:128-n32:64-S128", "triple": "riscv64-unknown-linux-gnu"}
_DEFINED = re.compile(r"^(define [^@\n]*?)\bi32 @", re.MULTILINE)
_DECLARED = re.compile(r"^declare [^@\n]*@(?!llvm\.)[^\n]*", re.MULTILINE)


def halide_target(target: str) -> str:
    """The Halide target whose IR is compiled for `target`, which is itself on other architectures."""
    if not target.startswith(ARCHITECTURE):
        return target
    return f"{target.replace(ARCHITECTURE, WRITTEN_FOR, 1)}-{WITHOUT_INTRINSICS}"


def for_riscv(ir: str) -> str:
    """IR of `halide_target` as IR for RISC-V, with the sign extension of 32-bit integers that its calling convention
    wants (RISC-V ELF psABI, "Integer Calling Convention") where a function is called from another object or calls one.
    """
    ir = _HEADER.sub(lambda match: f'target {match[1]} = "{_RISCV[match[1]]}"', ir)
    ir = _DEFINED.sub(r"\1signext i32 @", ir)
    return _DECLARED.sub(lambda match: re.sub(r"\bi32\b(?=[^()]*\))", "i32 signext", match[0]), ir)
