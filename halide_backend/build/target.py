"""The machine a kernel is compiled for, spelled out in full.

"host" never appears: the strings here take part in cache keys, and an artifact built on one
machine must not be mistaken for one that fits another.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from halide_backend.build.named_targets import NAMED_TARGETS
from halide_backend.errors import TargetError, Unsupported, UnsupportedVersionError
from kernels_cache.canonical import Json

#: Halide features every CPU kernel is compiled with: the launcher knows the shapes, the runtime
#: is shared, and NaN and infinity mean what IEEE 754 says.
BASE_FEATURES = ("no_asserts", "no_bounds_query", "no_runtime", "strict_float")

#: Bytes of shared memory that a block has without an opt-in, on every GPU (CUDA C++ Programming Guide).
SHARED_BYTES = 48 << 10

#: Halide feature -> the LLVM features it lets Halide use (Halide 21, CodeGen_X86::mattrs).
#: Each is offered only to a processor that has all of them, whatever its model number says: a
#: virtual machine may hide some. avx512_zen4 is Halide's one name for AVX-512 BF16 and VNNI: a
#: Sapphire Rapids has them as well, and Halide's avx512_sapphirerapids implies it; that name itself
#: would add the tile unit (AMX), which no kernel uses. No Halide feature names VNNI without BF16
#: (Ice Lake): LLVM selects it from the features of `Target.features`.
_REQUIRES = {
    "sse41": ("sse4.1",),
    "avx": ("avx",),
    "f16c": ("avx", "f16c"),
    "fma": ("avx", "fma"),
    "avx2": ("avx2", "f16c", "fma"),
    "avx512": ("avx512f", "avx512cd"),
    "avx512_skylake": ("avx512vl", "avx512bw", "avx512dq"),
    "avx512_cannonlake": ("avx512ifma", "avx512vbmi"),
    "avx512_zen4": ("avx512bf16", "avx512vnni", "avx512bitalg", "avx512vbmi2"),
    "avxvnni": ("avxvnni",),
}
#: The architecture of the processors that this backend runs on, as a Halide target begins.
_HOST = "x86-64"

#: AVX-512 features build on one another, in this order.
_CHAIN = ("avx2", "avx512", "avx512_skylake", "avx512_cannonlake", "avx512_zen4")

#: Processors that Halide can tune for by name, all of AMD; on them it trusts gathers to be fast.
_AMD = {
    *("amdfam10", "bdver1", "bdver2", "bdver3", "bdver4", "btver1", "btver2"),
    *("znver1", "znver2", "znver3", "znver4", "znver5"),
}

#: What no kernel uses: LLVM makes operations on halves of those on float32 between which a half is rounded, and of two
#: of these one that rounds once, though floats are strict (`(x + y) * y - x` of float16, emulate_precision_casts).
_DENIED = {"avx512fp16"}

#: Intel processors with AVX-512 but without its FP16 instructions, by LLVM's names.
_INTEL_BEFORE_FP16 = {
    *("skylake-avx512", "cascadelake", "cooperlake", "cannonlake"),
    *("icelake-client", "icelake-server", "rocketlake", "tigerlake"),
}


@dataclass(frozen=True)
class Target:
    """What Halide and LLVM generate code for.

    Attributes:
        halide: complete Halide target string, features sorted.
        cpu: LLVM name of the processor, e.g. "znver4". With `features` it says only what to tune for.
        features: LLVM feature string, e.g. "+avx,+avx2,-avx512f"; empty means: all that `cpu` has.
        capability: the GPU that kernels run on, launched by any x86-64, e.g. "sm_90", or "compute_90" for PTX that runs
            on it and newer ones; empty for CPU kernels.
    """

    halide: str
    cpu: str
    features: str
    capability: str = ""

    @staticmethod
    def host() -> Target:
        """Return the target of this machine, found without importing halide (~40 ms once).

        Raises:
            UnsupportedVersionError: the processor is not an x86-64.
        """
        return _host()

    @staticmethod
    def named(name: str) -> Target:
        """Return the target called `name` in `NAMED_TARGETS`; for "", that of this machine.

        Raises:
            TargetError: another name.
            UnsupportedVersionError: as `host`.
        """
        if not name:
            return _host()
        if name not in NAMED_TARGETS:
            known = ", ".join(NAMED_TARGETS)
            raise TargetError(f"there is no target {name!r}", where="target", cure=f"Use one of {known}.")
        found = NAMED_TARGETS[name]
        return Target(_halide_string(found.architecture, found.halide, ""), found.cpu, found.llvm_string)

    @staticmethod
    def cuda(major: int, minor: int, assembled: bool = True) -> Target:
        """Return the target of a GPU of compute capability `major`.`minor`; unless `assembled` it is PTX.

        Raises:
            Unsupported: the GPU is older than Ampere; kernels use its conversions to bfloat16.
        """
        if (major, minor) < (8, 0):
            raise Unsupported("gpu-too-old", f"the GPU has compute capability {major}.{minor}, which is less than 8.0")
        known = "cuda_capability_86" if (major, minor) >= (8, 6) else "cuda_capability_80"
        return Target(
            _halide_string(_HOST, ("cuda", known), ""),
            "x86-64",
            "",
            f"{'sm' if assembled else 'compute'}_{major}{minor}",
        )

    @property
    def architecture(self) -> str:
        """What the processor's instructions are, as Halide calls it: "x86-64", for example."""
        return self.halide.partition("-linux")[0]

    @property
    def vector_bytes(self) -> int:
        """Width of a vector register of the processor."""
        features = self.halide.split("-")
        return 64 if "avx512_skylake" in features else 32 if "avx2" in features else 16

    @property
    def vendor(self) -> str:
        """Who makes the processor: "amd" or "intel"; "" for a level, or where LLVM does not know it."""
        if self.cpu == "generic" or self.cpu.startswith("x86-64"):
            return ""
        return "amd" if self.cpu in _AMD else "intel"

    def check_runs_here(self) -> None:
        """Make sure that this machine can run code for this target.

        Raises:
            UnsupportedVersionError: it lacks features; running the code would end the process.
        """
        if self == _host():
            return
        if self.architecture != _host().architecture:
            raise UnsupportedVersionError(
                f"this processor is of the architecture {_host().architecture}",
                where=f"target {self.cpu}",
                cure="Set the option target to '', for this machine; another one's can only be packaged.",
            )
        if missing := self.requires() - _host().requires():
            raise UnsupportedVersionError(
                f"this processor lacks {', '.join(sorted(missing))}",
                where=f"target {self.cpu}",
                cure="Set the option target to a lower level, or to '' for this machine.",
            )

    def requires(self) -> frozenset[str]:
        """Return the LLVM features that a processor must have to run code for this target."""
        needed = {word[1:] for word in self.features.split(",") if word.startswith("+")}
        for feature in self.halide.split("-"):
            needed.update(_REQUIRES.get(feature, ()))
        for named in NAMED_TARGETS.values():
            if named.cpu == self.cpu and not self.features:
                needed.update(named.llvm)
        return frozenset(needed)

    def requirements(self) -> dict[str, Json]:
        """Return what a cache entry for this target requires, and a machine with this target provides."""
        return {"arch": self.architecture, "cpu_features": [*sorted(self.requires())]}

    def to_json(self) -> dict[str, str]:
        """Return the strings by name; `capability` only where there is one."""
        gpu = {"capability": self.capability} if self.capability else {}
        return {"halide": self.halide, "cpu": self.cpu, "features": self.features, **gpu}

    @staticmethod
    def from_json(data: dict[str, str]) -> Target:
        """Return the target that `to_json` wrote."""
        return Target(**data)


@cache
def _host() -> Target:
    machine = platform.machine()
    if machine not in ("x86_64", "AMD64"):
        raise UnsupportedVersionError(
            f"no target for the processor architecture {machine!r}",
            where="halide_backend.build.target",
            cure="Use an x86-64 machine, or leave config.cpu_backend at 'cpp' on this one.",
        )
    from llvmlite import binding as llvm

    return processor_target(llvm.get_host_cpu_name(), llvm.get_host_cpu_features())


def processor_target(name: str, features: Mapping[str, bool]) -> Target:
    """Return the target of one processor.

    Args:
        name: what LLVM takes it for, from its model number. A virtual machine may show that of another one.
        features: every feature LLVM knows, and whether this processor has it; those it lacks are denied by name, so
            none comes in with the name.
    """
    there = {feature for feature, has in features.items() if has}
    cpu = "sapphirerapids" if name in _INTEL_BEFORE_FP16 and "avx512fp16" in there else name
    return Target(
        _halide_string(_HOST, halide_features(there, cpu), cpu if cpu in _AMD else ""),
        cpu,
        ",".join(("+" if features[each] and each not in _DENIED else "-") + each for each in sorted(features)),
    )


def halide_features(llvm_features: set[str], cpu: str) -> tuple[str, ...]:
    """Translate the LLVM features that a processor has into Halide's, sorted."""
    features = {name for name, needs in _REQUIRES.items() if name not in _CHAIN and llvm_features.issuperset(needs)}
    for name in _CHAIN:
        if not llvm_features.issuperset(_REQUIRES[name]):
            break
        features.add(name)
    if cpu == "znver5" and features >= {"avx512_zen4", "avxvnni"}:
        features.add("avx512_zen5")
    return tuple(sorted(features))


def _halide_string(architecture: str, features: tuple[str, ...], tune: str) -> str:
    words = [f"{architecture}-linux"] + ([f"tune_{tune}"] if tune else [])
    return "-".join(words + sorted((*features, *BASE_FEATURES)))
