"""What a model asks of the processor that it is loaded on, as C++ source."""

from __future__ import annotations

from collections.abc import Mapping

from halide_backend.build.named_targets import NAMED_TARGETS, PSABI_LEVELS
from halide_backend.build.target import Target
from halide_backend.launch.model_runtime import model_processor

#: Where CPUID shows a feature: leaf, subleaf, register (EAX to EDX), bit (Intel's "Architectures Software Developer's
#: Manual", volume 2A, and AMD's "Programmer's Manual", volume 3). Of LLVM's features these are the ones whose
#: instructions it chooses on its own; others, those of caches or ciphers, are in no kernel.
_CPUID = {
    "sse3": (1, 0, 2, 0),
    "ssse3": (1, 0, 2, 9),
    "fma": (1, 0, 2, 12),
    "cx16": (1, 0, 2, 13),
    "sse4.1": (1, 0, 2, 19),
    "sse4.2": (1, 0, 2, 20),
    "movbe": (1, 0, 2, 22),
    "popcnt": (1, 0, 2, 23),
    "avx": (1, 0, 2, 28),
    "f16c": (1, 0, 2, 29),
    "bmi": (7, 0, 1, 3),
    "avx2": (7, 0, 1, 5),
    "bmi2": (7, 0, 1, 8),
    "avx512f": (7, 0, 1, 16),
    "avx512dq": (7, 0, 1, 17),
    "avx512ifma": (7, 0, 1, 21),
    "avx512cd": (7, 0, 1, 28),
    "avx512bw": (7, 0, 1, 30),
    "avx512vl": (7, 0, 1, 31),
    "avx512vbmi": (7, 0, 2, 1),
    "avx512vbmi2": (7, 0, 2, 6),
    "gfni": (7, 0, 2, 8),
    "avx512vnni": (7, 0, 2, 11),
    "avx512bitalg": (7, 0, 2, 12),
    "avx512vpopcntdq": (7, 0, 2, 14),
    "avx512fp16": (7, 0, 3, 23),
    "avxvnni": (7, 1, 0, 4),
    "avx512bf16": (7, 1, 0, 5),
    "avxifma": (7, 1, 0, 23),
    "avxvnniint8": (7, 1, 3, 4),
    "avxneconvert": (7, 1, 3, 5),
    "avxvnniint16": (7, 1, 3, 10),
    "sahf": (0x80000001, 0, 2, 0),
    "lzcnt": (0x80000001, 0, 2, 5),
    "sse4a": (0x80000001, 0, 2, 6),
    "xop": (0x80000001, 0, 2, 11),
    "fma4": (0x80000001, 0, 2, 16),
    "tbm": (0x80000001, 0, 2, 21),
}
#: Where Linux tells a program what other processors have: entry of the auxiliary vector (16 is AT_HWCAP, 26 AT_HWCAP2),
#: 0, 0, bit (asm/hwcap.h; of RISC-V the letter of the extension).
_HWCAP = {"sve": (16, 0, 0, 22), "sve2": (26, 0, 0, 1), "v": (16, 0, 0, ord("V") - ord("A"))}
_PLACES = {**_CPUID, **_HWCAP}
#: What C++ compilers define for an architecture.
_MACROS = {named.architecture: named.macro for named in NAMED_TARGETS.values()}
#: Bits of XCR0 for the registers of AVX, and with those of AVX-512.
_YMM, _ZMM = 0x06, 0xE6
_WITH_YMM = {"f16c", "fma", "fma4", "xop"}

#: A note (x86-64 psABI, "Program Property") by which the C library refuses to load a library on a processor below a
#: level: 0xc0008002 is GNU_PROPERTY_X86_ISA_1_NEEDED, whose bit k stands for level k + 1.
_NOTE = """__asm__(R"assembly(
.pushsection .note.gnu.property, "a"
.balign 8
.long 4, 16, 5
.asciz "GNU"
.long 0xc0008002, 4, {bits}, 0
.popsection
)assembly");
"""


def processor_check(targets: Mapping[str, Target]) -> str:
    """C++ text that defines `halide_backend_target` and `halide_backend_unsuitable` (launch/model_processor.cpp) for
    kernels that are compiled for all of `targets`, by their names, the least demanding first.

    All of the library around it is compiled for the first one. So the C library is told not to load it elsewhere,
    as far as it tells processors apart.
    """
    rows = ", \\\n".join(f'    {{"{name}", {{{_text(target)}}}}}' for name, target in targets.items())
    first = next(iter(targets.values()))
    level = sum(first.requires() >= features for features in PSABI_LEVELS)
    note = _NOTE.format(bits=1 << level) if level else ""
    return f"""#if defined({_MACROS[first.architecture]})
#define HALIDE_BACKEND_ARCHITECTURE
#endif
#define HALIDE_BACKEND_TARGETS \\
{rows}
{model_processor()}{note}"""


def features(target: Target) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """What `target` needs and LLVM chooses on its own: names, and the numbers of `Feature` in model_processor.cpp."""
    needed = target.requires()
    return tuple((name, (*place, _saved(name))) for name, place in _PLACES.items() if name in needed)


def _saved(name: str) -> int:
    return _ZMM if name.startswith("avx512") else _YMM if name.startswith("avx") or name in _WITH_YMM else 0


def _text(target: Target) -> str:
    return ", ".join(f'{{"{name}", {", ".join(map(hex, numbers))}}}' for name, numbers in features(target))
