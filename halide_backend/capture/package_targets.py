"""The processors that a package of AOTInductor is made for, and whether Inductor's own part of it will run on them."""

from __future__ import annotations

from torch._inductor import config as inductor

from halide_backend.build.named_targets import NAMED_TARGETS
from halide_backend.build.target import Target
from halide_backend.errors import TargetError, UnsupportedVersionError
from halide_backend.versions import takes_march

#: Width of the vectors, in bits, of Inductor's own C++ kernels: what its option cpp.simdlen makes of the first target.
#: 512 would be more than a level, all that this machine has.
_VECTOR_BITS = {"sse41": 0, "avx2": 256, "avx512": 256}


def package_targets() -> dict[str, Target]:
    """What kernels of a package are compiled for, by name, the least demanding first; "" is this machine.

    Raises:
        TargetError: the options name what does not go together, or Inductor would compile its part of the package for
            other processors.
        UnsupportedVersionError: this torch cannot compile it for others.
    """
    from halide_backend import config

    names = _names()
    if not names:
        return {config.target: Target.named(config.target)}
    _check_settings(names[0], f"aot_targets={config.aot_targets!r}")
    return {name: Target.named(name) for name in names}


def aot_configs() -> dict[str, str | int]:
    """What Inductor has to be told for a package: `inductor_configs` of `torch._inductor.aoti_compile_and_package`."""
    names = _names()
    return {"cpu_backend": "halide_backend", **(_settings(names[0]) if names else {})}


def _names() -> list[str]:
    """What the option `aot_targets` names, the least demanding first."""
    from halide_backend import config

    asked = config.aot_targets.replace(" ", "").split(",")
    return [name for name in NAMED_TARGETS if name in asked]


def _check_settings(first: str, where: str) -> None:
    if not takes_march():
        raise UnsupportedVersionError(
            "this torch compiles the C++ part of a package for this machine alone",
            where=where,
            cure="Use torch 2.13 or newer, or leave aot_targets empty.",
        )
    settings = _settings(first)
    below = list(NAMED_TARGETS)[: list(NAMED_TARGETS).index(first) + 1]
    runs = inductor.cpp.march in ("", "x86-64", *(NAMED_TARGETS[name].march for name in below))
    if not runs or inductor.cpp.simdlen not in (0, settings["cpp.simdlen"]):
        raise TargetError(
            "Inductor would compile its part of the package for other processors: "
            f"cpp.march is {inductor.cpp.march!r}, cpp.simdlen {inductor.cpp.simdlen!r}",
            where=where,
            cure=f"Pass inductor_configs=halide_backend.aot_configs(), which has {settings}.",
        )


def _settings(first: str) -> dict[str, str | int]:
    """Inductor's options for C++ code that runs wherever kernels for the target `first` do."""
    return {"cpp.march": NAMED_TARGETS[first].march, "cpp.simdlen": _VECTOR_BITS[first]}
