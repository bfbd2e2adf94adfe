"""Targets that have names: the same on every machine, for code that runs on more than the one at hand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NamedTarget:
    """What a name stands for.

    Attributes:
        architecture: as a Halide target begins.
        cpu: LLVM's name of such a processor.
        halide: features that Halide uses.
        llvm: features that LLVM uses on its own account, too; a processor has to have all of them.
        march: the same for `g++ -march`.
        macro: what C++ compilers for the architecture define.
    """

    architecture: str
    cpu: str
    halide: tuple[str, ...]
    llvm: tuple[str, ...]
    march: str
    macro: str

    @property
    def llvm_string(self) -> str:
        """The features as LLVM is told them; "" where the name of the processor says it all."""
        return "" if self.cpu == self.march else ",".join(f"+{feature}" for feature in self.llvm)


_V2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_RV64GCV = ("64bit", "a", "c", "d", "f", "i", "m", "v")
_AVX2 = ("avx", "avx2", "f16c", "fma", "sse41")
_AVX512 = (*_AVX2, "avx512", "avx512_skylake")

#: By name, those of an architecture from the least to the most that they ask of a processor. The first three are levels
#: of the x86-64 psABI; "arm64" is any 64-bit ARM processor, all of which have NEON.
NAMED_TARGETS = {
    "sse41": NamedTarget("x86-64", "x86-64-v2", ("sse41",), _V2, "x86-64-v2", "__x86_64__"),
    "avx2": NamedTarget("x86-64", "x86-64-v3", _AVX2, _V3, "x86-64-v3", "__x86_64__"),
    "avx512": NamedTarget("x86-64", "x86-64-v4", _AVX512, _V4, "x86-64-v4", "__x86_64__"),
    "arm64": NamedTarget("arm-64", "generic", (), ("neon",), "armv8-a", "__aarch64__"),
    "sve": NamedTarget("arm-64", "generic", (), ("neon", "sve"), "armv8.2-a+sve", "__aarch64__"),
    "riscv64": NamedTarget("riscv-64", "generic-rv64", (), _RV64GCV, "rv64gc", "__riscv"),
}

#: GPUs by the name of what NVIDIA's assembler makes for them, and PTX, which the driver assembles for any that is not
#: older than the newest of the others.
GPU_TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", "ptx")

#: LLVM features of each level of the x86-64 psABI, from the second on.
PSABI_LEVELS = tuple(map(frozenset, (_V2, _V3, _V4)))
