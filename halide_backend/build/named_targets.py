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
    """

    architecture: str
    cpu: str
    halide: tuple[str, ...]
    llvm: tuple[str, ...]
    march: str


_V2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_AVX2 = ("avx", "avx2", "f16c", "fma", "sse41")
_AVX512 = (*_AVX2, "avx512", "avx512_skylake")

#: By name, those of an architecture from the least to the most that they ask of a processor. The first three are levels
#: of the x86-64 psABI.
NAMED_TARGETS = {
    "sse41": NamedTarget("x86-64", "x86-64-v2", ("sse41",), _V2, "x86-64-v2"),
    "avx2": NamedTarget("x86-64", "x86-64-v3", _AVX2, _V3, "x86-64-v3"),
    "avx512": NamedTarget("x86-64", "x86-64-v4", _AVX512, _V4, "x86-64-v4"),
}

#: LLVM features of each level of the x86-64 psABI, from the second on.
PSABI_LEVELS = tuple(map(frozenset, (_V2, _V3, _V4)))
