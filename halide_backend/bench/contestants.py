"""Who is timed: this backend and those it is compared with, as callables compiled for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from halide_backend.cache_key import NAME
from halide_backend.errors import HalideBackendError
from halide_backend.inspection.compiled import EAGER, MAX_AUTOTUNE, Compiled, compile_for

#: This backend once more: what compiles alike should be as fast; with dynamic sizes, its own static kernels.
ITSELF = "itself"

#: What can be compared with, by device.
AGAINST = {
    "cpu": ("cpp", EAGER, ITSELF),
    "cuda": ("triton", f"triton{MAX_AUTOTUNE}", EAGER, ITSELF),
}

#: Level of `--target` -> what limits Inductor's C++ backend to it: bits of a vector, and the compiler's architecture.
_CPP_LIMITS = {"avx2": (256, "x86-64-v3"), "avx512": (512, "x86-64-v4")}


@dataclass(frozen=True)
class Contestants:
    """How all of them are compiled.

    Attributes:
        against: names of `AGAINST`, the most important one first.
        dynamic: every size may change, but for eager and for this backend against itself.
        target: a level of the option `target` that limits this backend and C++, or "".
    """

    against: tuple[str, ...]
    dynamic: bool = False
    target: str = ""

    def check(self, device: str) -> None:
        """Make sure that there are such backends.

        Raises:
            HalideBackendError: the device has no such backend, or a backend cannot be limited.
        """
        for name in self.against:
            if name not in AGAINST[device]:
                raise HalideBackendError(
                    f"Inductor has no {name} backend for {device}",
                    where=f"bench --against {name}",
                    cure=f"Use one of {', '.join(AGAINST[device])} with --device {device}.",
                )
        if self.target and (device != "cpu" or EAGER in self.against):
            raise HalideBackendError(
                "eager and GPUs run what they have",
                where=f"bench --target {self.target}",
                cure="Compare with cpp or itself, on the CPU.",
            )
        if self.target and "cpp" in self.against and not _cpp_can_be_limited():
            raise HalideBackendError(
                "this version of torch cannot limit its C++ backend",
                where=f"bench --target {self.target}",
                cure="Use torch 2.13 or newer, or --against itself.",
            )

    def names(self, *, ours_first: bool) -> tuple[str, ...]:
        """This backend and the others, it first or last."""
        return (NAME, *self.against) if ours_first else (*self.against, NAME)

    def compile(self, name: str, function: Callable[..., Any]) -> Compiled:
        """Return `function` compiled for the contestant `name`."""
        if name == ITSELF:
            return compile_for(NAME, function, options=self._options(NAME))
        return compile_for(name, function, dynamic=self.dynamic, options=self._options(name))

    def _options(self, name: str) -> dict[str, Any]:
        if name == NAME:
            # The rules are judged, not what somebody has tuned on this machine.
            return {f"{NAME}.tune": "never", **({f"{NAME}.target": self.target} if self.target else {})}
        if not self.target:
            return {}
        bits, architecture = _CPP_LIMITS[self.target]
        return {"cpp.simdlen": bits, "cpp.march": architecture}


def _cpp_can_be_limited() -> bool:
    from torch._inductor import config

    return hasattr(config.cpp, "march")
