"""A callable compiled for a backend that it carries with it, with the code that was generated for it.

Two backends are compared in one process only through this module. Compiling a function twice with a change of
`torch._inductor.config` and `torch._dynamo.reset()` in between does not do: Dynamo keeps what it compiled with the code
object and tells backends apart by their options, so the earlier callable runs from then on what was compiled last
(issue 20: a benchmark timed this backend against itself).
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from halide_backend.cache_key import NAME
from halide_backend.errors import WrongBackendError
from halide_backend.kernel_records.journal import journal

EAGER = "eager"

#: Ending of the name of a backend that tries several configurations of each kernel and keeps the fastest.
MAX_AUTOTUNE = "-max-autotune"

#: Backend -> Inductor's options that choose it. Inductor has one backend of its own for each device.
_OPTIONS: dict[str, dict[str, Any]] = {
    NAME: {"cpu_backend": NAME, "cuda_backend": NAME},
    "cpp": {"cpu_backend": "cpp", "cuda_backend": "triton"},
    "triton": {"cpu_backend": "cpp", "cuda_backend": "triton"},
    f"triton{MAX_AUTOTUNE}": {"cpu_backend": "cpp", "cuda_backend": "triton", "max_autotune": True},
}
BACKENDS = (*_OPTIONS, EAGER)

#: Backend -> what defines one of its kernels in Inductor's wrapper code.
_DEFINITION = {
    NAME: re.compile(r"= load_kernel\("),
    "cpp": re.compile(r"= async_compile\.cpp(?:_pybinding)?\("),
    "triton": re.compile(r"= async_compile\.triton\("),
}

#: Numbers of the code objects made here: equal code objects share what Dynamo remembers of them.
_number = itertools.count()

#: Backend -> what the names of its kernels in a profile begin with, their launches and what runs on a GPU. C++ kernels
#: are not in one.
_PROFILED = {NAME: "halide_", "triton": "triton_"}


@dataclass
class Compiled:
    """A callable and what it runs.

    Attributes:
        call: the callable; eager's is the function itself.
        backend: name of its backend, one of `BACKENDS`.
        codes: wrapper code of each graph in the order of their compilation, backward graphs among them. A graph that
            was loaded from one of Inductor's caches of whole graphs is missing.
        delegated: number of kernels that this backend left to Inductor's own.
    """

    call: Callable[..., Any]
    backend: str
    codes: list[str] = field(default_factory=list)
    delegated: int = 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call it; what is timed should use `call`, which is one Python call less."""
        return self.call(*arguments, **named)

    def kernels(self) -> Counter[str]:
        """Number of kernels in the generated code, by the backend that they are written for."""
        found = {name: sum(len(kernel.findall(code)) for code in self.codes) for name, kernel in _DEFINITION.items()}
        return Counter({name: count for name, count in found.items() if count})

    def check_code(self) -> None:
        """Make sure that something was compiled, and with the backend that was asked for.

        Raises:
            WrongBackendError: nothing was, or kernels are another backend's.
        """
        if self.backend == EAGER:
            return
        if not self.codes:
            raise WrongBackendError(
                "nothing was compiled", where=f"callable for {self.backend}", cure="Call it before checking it."
            )
        kernels = self.kernels()
        if self.backend == NAME:
            others = sum(kernels.values()) - kernels[NAME]
            if others and not self.delegated:
                raise self._wrong(f"{others} kernels of other backends in its code, none of them delegated")
        elif kernels[NAME]:
            raise self._wrong(f"{kernels[NAME]} kernels of {NAME} in its code")

    def check_run(self, run: Callable[[], object]) -> Counter[str]:
        """Profile `run`, which calls it, and return how many events of kernels there were, by backend (none of C++).

        Raises:
            WrongBackendError: kernels of another backend ran, or none of this one although its code has some.
        """
        self.check_code()
        ran = kernels_run(run)
        if bool(ran[NAME]) != bool(self.kernels()[NAME]):
            raise self._wrong(f"its code has {self.kernels()[NAME]} kernels of {NAME}, and {ran[NAME]} ran")
        return ran

    def _wrong(self, what: str) -> WrongBackendError:
        return WrongBackendError(
            what,
            where=f"callable for {self.backend}",
            cure="Compile with halide_backend.inspection.compiled.compile_for, and change no option afterwards.",
        )


def compile_for(
    backend: str,
    function: Callable[..., Any],
    *,
    dynamic: bool | None = False,
    fullgraph: bool = False,
    caches: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Compiled:
    """Return `function`, which may be a module, compiled for `backend`.

    Args:
        backend: one of `BACKENDS`.
        dynamic, fullgraph: as of `torch.compile`.
        caches: whether Inductor may load whole graphs from its caches; the store of this backend's kernels is used
            in any case.
        options: further options of Inductor's, and of this backend with "halide_backend." in front.

    Raises:
        KeyError: no such backend.
    """
    if backend == EAGER:
        return Compiled(function, backend)
    import torch

    import halide_backend  # noqa: F401  (registers the backend)

    given = {**_OPTIONS[backend], **({} if caches else {"force_disable_caches": True}), **(options or {})}
    compiled = Compiled(function, backend)
    compiled.call = torch.compile(
        _copy(function, backend), backend=_recording(compiled, given), dynamic=dynamic, fullgraph=fullgraph
    )
    return compiled


def kernels_run(call: Callable[[], object]) -> Counter[str]:
    """Number of events of kernels in a profile of `call`, by backend; C++ kernels leave none."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, acc_events=True) as profiled:
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    names = [event.name for event in profiled.events()]
    return Counter(backend for name in names for backend, start in _PROFILED.items() if name.startswith(start))


def _copy(function: Callable[..., Any], backend: str) -> Callable[..., Any]:
    """A function that does what `function` does and has a code object of its own: compiled code belongs to those."""
    suffix = f"{backend.replace('-', '_')}_{next(_number)}"
    if isinstance(function, FunctionType) and not vars(function) and not f"{function.__module__}.".startswith("torch."):
        code = function.__code__.replace(co_name=f"{function.__code__.co_name}_{suffix}")
        copy = FunctionType(code, function.__globals__, code.co_name, function.__defaults__, function.__closure__)
        copy.__kwdefaults__ = function.__kwdefaults__
        return copy

    # Modules, bound methods, functions that carry something, as what torch.compiler.disable returns, and functions of
    # torch, around all of which torch.compile puts one code object, to give up when it has compiled it eight times.
    def call(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    call.__code__ = call.__code__.replace(co_name=f"call_{suffix}")
    return call


def _recording(compiled: Compiled, options: Mapping[str, Any]) -> Callable[[Any, Any], Any]:
    """The backend of one callable, as `torch.compile` calls it: Inductor with `options`, which keeps what it generates.

    No two are equal, so that Dynamo never takes what it compiled with one for what it compiled with another.
    """
    prefix = f"{NAME}."
    own = {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}
    others = {name: value for name, value in options.items() if not name.startswith(prefix)}

    def inductor(model: Any, inputs: Any) -> Any:
        from torch._inductor.compile_fx import compile_fx, compile_fx_inner

        from halide_backend import config

        def recorded(*arguments: Any, **named: Any) -> Any:
            before = _delegated()
            # The backward graph is compiled when the patch around this backend's call has long ended.
            with config.patch(own):
                graph = compile_fx_inner(*arguments, **named)
            compiled.delegated += _delegated() - before
            compiled.codes.append(str(getattr(graph, "source_code", "")))
            return graph

        with config.patch(own):
            return compile_fx(model, inputs, inner_compile=recorded, config_patches=others)

    return inductor


def _delegated() -> int:
    stats: Any = journal.stats()
    return int(stats["delegated_kernels"] + stats["delegated_templates"])
