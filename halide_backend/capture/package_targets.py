"""The processors that a package of AOTInductor is made for, and whether Inductor's own part of it will run on them."""

from __future__ import annotations

from torch._inductor import config as inductor

from halide_backend.build.named_targets import GPU_TARGETS, NAMED_TARGETS
from halide_backend.build.target import Target
from halide_backend.errors import TargetError, UnsupportedVersionError
from halide_backend.versions import takes_march

#: Width of the vectors, in bits, of Inductor's own C++ kernels for a first target: its option cpp.simdlen. 512 would be
#: more than a level, all that this machine has; 0 is none.
_VECTOR_BITS = {"avx2": 256, "avx512": 256}


def package_targets() -> dict[str, Target]:
    """What kernels of a package are compiled for, by name, the least demanding first; "" is this machine.

    Raises:
        TargetError: the options name what does not go together, or Inductor would compile its part of the package for
            other processors.
        UnsupportedVersionError: this torch cannot compile it for others.
    """
    from halide_backend import config

    names = _names()
    targets = {name: Target.named(name) for name in names or [config.target]}
    where = f"aot_targets={config.aot_targets!r}" if config.aot_targets else f"target={config.target!r}"
    if len({target.architecture for target in targets.values()}) > 1:
        raise TargetError(
            "the targets are of several architectures, and a package has one library",
            where=where,
            cure="Make one each.",
        )
    if names:
        _check_settings(names[0], where)
    return targets


def gpu_package_targets() -> tuple[Target, ...]:
    """What kernels of a package for a GPU are compiled for, the oldest first; empty for the GPU at hand."""
    asked = _asked()
    versions = [divmod(int(name.removeprefix("sm_")), 10) for name in GPU_TARGETS if name in asked and name != "ptx"]
    targets = [Target.cuda(*version) for version in versions]
    if "ptx" in asked:
        targets.append(Target.cuda(*(versions[-1] if versions else (8, 0)), assembled=False))
    return tuple(targets)


def aot_configs() -> dict[str, str | int]:
    """What Inductor has to be told for a package: `inductor_configs` of `torch._inductor.aoti_compile_and_package`."""
    names = _names()
    return {"cpu_backend": "halide_backend", "cuda_backend": "halide_backend", **(_settings(names[0]) if names else {})}


def _names() -> list[str]:
    """The processors that `aot_targets` names, the least demanding first; else `target`, if that is another
    architecture than this machine's.
    """
    from halide_backend import config

    asked = _asked()
    names = [name for name in NAMED_TARGETS if name in asked]
    foreign = config.target and Target.named(config.target).architecture != Target.host().architecture
    return names or [config.target] * bool(foreign)


def _asked() -> list[str]:
    from halide_backend import config

    return config.aot_targets.replace(" ", "").split(",")


def _check_settings(first: str, where: str) -> None:
    if not takes_march():
        raise UnsupportedVersionError(
            "this torch compiles the C++ part of a package for this machine alone",
            where=where,
            cure="Use torch 2.13 or newer, or leave aot_targets empty.",
        )
    settings = _settings(first)
    own = NAMED_TARGETS[first].architecture
    alike = [named.march for named in NAMED_TARGETS.values() if named.architecture == own]
    runs = inductor.cpp.march in ("", own, *alike[: alike.index(NAMED_TARGETS[first].march) + 1])
    sources = inductor.aot_inductor.package_cpp_only
    if not sources and own != Target.host().architecture:
        raise TargetError(
            "Inductor would compile its part of the package here, for this machine's architecture",
            where=where,
            cure=f"Pass inductor_configs=halide_backend.aot_configs(), which has {settings}.",
        )
    if not runs or inductor.cpp.simdlen not in (0, settings["cpp.simdlen"]):
        raise TargetError(
            "Inductor would compile its part of the package for other processors: "
            f"cpp.march is {inductor.cpp.march!r}, cpp.simdlen {inductor.cpp.simdlen!r}",
            where=where,
            cure=f"Pass inductor_configs=halide_backend.aot_configs(), which has {settings}.",
        )


def _settings(first: str) -> dict[str, str | int]:
    """Inductor's options for C++ code that runs wherever kernels for the target `first` do."""
    named = NAMED_TARGETS[first]
    foreign = named.architecture != Target.host().architecture
    sources = {"aot_inductor.package_cpp_only": True} if foreign else {}
    return {"cpp.march": "" if foreign else named.march, "cpp.simdlen": _VECTOR_BITS.get(first, 0), **sources}
