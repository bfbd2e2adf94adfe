"""A way around a fault of LLVM's: signs of the elements of a vector may be read from the wrong register.

AVX-512 makes a mask of the signs of a vector (`vpmovq2m`), and a second instruction moves it to a general register.
LLVM 22 replaces both by one of AVX (`vmovmskpd`), which can name the first 16 vector registers only, also where the
vector lies in another one. The encoder then leaves out the fifth bit of its number: of xmm17 becomes xmm1.
"""

from __future__ import annotations

import re

#: vmovmskps and vmovmskpd (0x50), and vpmovmskb (0xd7), of a register, in the encoding of three bytes, whose bit X is
#: 0: there the encoder puts the fifth bit, and processors do not look. All correct instructions have a 1.
_MISREAD = {
    "avx512dq": re.compile(rb"\xc4[\x01\x21\x81\xa1][\x78\x79\x7c\x7d]\x50[\xc0-\xff]", re.DOTALL),
    "avx512bw": re.compile(rb"\xc4[\x01\x21\x81\xa1][\x79\x7d]\xd7[\xc0-\xff]", re.DOTALL),
}
_MISREAD_IN_ASSEMBLY = {
    "avx512dq": re.compile(r"\bvmovmskp[sd]\s+%[xy]mm(?:1[6-9]|2\d|3[01]),"),
    "avx512bw": re.compile(r"\bvpmovmskb\s+%[xy]mm(?:1[6-9]|2\d|3[01]),"),
}

_ATTRIBUTE = re.compile(r'("target-features"="[^"]*)"')


def misread(code: bytes | str) -> list[str]:
    """The features of which x86 machine code, or assembly language in AT&T syntax, has such replacements."""
    if isinstance(code, str):
        return [feature for feature, pattern in _MISREAD_IN_ASSEMBLY.items() if pattern.search(code)]
    return [feature for feature, pattern in _MISREAD.items() if pattern.search(code)]


def without(features: list[str], ir: str) -> str:
    """IR of which LLVM uses no instructions of these features: it compares with 0 then, and replaces nothing."""
    absent = "".join(f",-{feature}" for feature in features)
    return _ATTRIBUTE.sub(rf'\1{absent}"', ir)
