"""Object files into this process: LLVM's ORC links each into a library of its own.

An object is asked what it needs before LLVM sees it, because a missing symbol must be an error
that names it, and because nothing else of this process is to be reachable from a kernel.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from llvmlite import binding as llvm
from llvmlite.binding import ffi

from halide_backend.build import elf
from halide_backend.errors import LoadError

_STALE = "Clear the kernel cache so that it is compiled anew; if it comes back, please report it."

_MATHEMATICS = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 expm1
    fabs floor fma fmax fmin fmod hypot ldexp lgamma log log10 log1p log2 nearbyint nextafter pow
    remainder rint round roundeven sin sincos sinh sqrt tan tanh tgamma trunc
"""
_MEMORY = "memcpy memmove memset memcmp"
_COMPILER_RUNTIME = """
    __extendhfsf2 __truncsfhf2 __truncdfhf2 __truncsfbf2 __truncdfbf2 __powisf2 __powidf2
    __divti3 __udivti3 __modti3 __umodti3 __multi3
"""

#: What LLVM may call on its own account: C's memory and mathematics functions, and what a
#: processor may lack, in the compiler's runtime library.
C_FUNCTIONS = frozenset(
    [name + suffix for name in _MATHEMATICS.split() for suffix in ("", "f")] + f"{_MEMORY} {_COMPILER_RUNTIME}".split()
)

# llvmlite guards all of LLVM with one re-entrant lock. It must not be held by a thread that a
# forked child does not have, or the child's first call would wait for ever.
_lock = ffi.lib._lock
os.register_at_fork(before=_lock.__enter__, after_in_parent=_lock.__exit__, after_in_child=_lock.__exit__)
_numbers = itertools.count()


@dataclass(frozen=True, eq=False)
class LoadedKernel:
    """Machine code in this process; it is unloaded when the last reference goes.

    Attributes:
        entry: the symbol it was found by.
        address: where it starts. Whoever keeps the address keeps this object too.
    """

    entry: str
    address: int
    _library: Any


def load_object(image: bytes, entry: str, symbols: Mapping[str, int]) -> LoadedKernel:
    """Link an object into this process (~0.3 ms).

    Safe from several threads, and in a forked child.

    Args:
        image: relocatable object, as `compiler.compile_kernel` makes it.
        entry: the symbol to find the address of.
        symbols: name -> address of what the object may call, besides `C_FUNCTIONS`.

    Raises:
        LoadError: not an object for this processor, the entry is not in it, or it calls
            something that is neither in `symbols` nor in `C_FUNCTIONS`.
    """
    imports = _imports(image, entry, symbols)
    library = llvm.JITLibraryBuilder().add_object_img(image).export_symbol(entry)
    for name, address in imports.items():
        library.import_symbol(name, address)
    with _lock:
        try:
            linked = library.link(_linker(), f"{entry}.{next(_numbers)}")
        except RuntimeError as error:
            raise _refused(f"LLVM cannot link it: {error}", entry) from error
    return LoadedKernel(entry, linked[entry], linked)


def _imports(image: bytes, entry: str, symbols: Mapping[str, int]) -> dict[str, int]:
    try:
        found = elf.symbols(image)
    except elf.NotAnObject as error:
        raise _refused(str(error), entry) from error
    if (found.kind, found.machine) != (elf.RELOCATABLE, elf.X86_64):
        raise _refused("it is not a relocatable x86-64 object", entry)
    if entry not in found.defined:
        raise _refused(f"it does not define {entry!r}", entry)
    imports = {name: symbols.get(name) or _c_function(name) for name in sorted(found.undefined)}
    if missing := [name for name, address in imports.items() if not address]:
        raise _refused(f"it calls what this process does not offer: {', '.join(missing)}", entry)
    return {name: address for name, address in imports.items() if address}


@cache
def _linker() -> llvm.orcjit.LLJIT:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # Position-independent code may be placed anywhere, far from what it calls.
    machine = llvm.Target.from_default_triple().create_target_machine(reloc="pic", jit=True)
    # JITLink keeps the sections of an object together; the older linker may place them more than
    # 2 GiB apart. It would also print its errors, which are raised instead.
    return llvm.create_lljit_compiler(machine, use_jit_link=True, suppress_errors=True)


@cache
def _c_function(name: str) -> int | None:
    if name in C_FUNCTIONS:
        for library in _c_libraries():
            function = getattr(library, name, None)
            if function is not None:
                return ctypes.cast(function, ctypes.c_void_p).value
    return None


@cache
def _c_libraries() -> tuple[ctypes.CDLL, ...]:
    # By their sonames: ctypes.util.find_library would start a compiler or linker to ask.
    libraries = []
    for soname in ("libc.so.6", "libm.so.6", "libgcc_s.so.1"):
        with contextlib.suppress(OSError):
            libraries.append(ctypes.CDLL(soname))
    return tuple(libraries)


def _refused(what: str, entry: str) -> LoadError:
    return LoadError(what, where=f"object of {entry}", cure=_STALE)
