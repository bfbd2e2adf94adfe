"""Kernels as Python callables: connects the native launcher to torch, and names what failed.

A kernel is one or more Halide pipelines, called with torch tensors and Python numbers.
`make_launcher` is the only entry; everything that costs time in a call is in C (`_native`),
everything that explains an error is here.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from halide_backend import errors
from halide_backend.launch import argument

if TYPE_CHECKING:
    from halide_backend.launch._native import CudaModule, Launcher

_REINSTALL = "reinstall halide-backend from a wheel built for this Python (pip install --force-reinstall)"

#: Exception class per `error` of a manifest's check.
_CHECK_ERRORS: dict[str, type[errors.HalideBackendError]] = {
    "IndexError": errors.KernelIndexError,
    "ZeroDivisionError": errors.KernelZeroDivisionError,
    "RuntimeError": errors.KernelRuntimeError,
}


class Pipeline(NamedTuple):
    """One Halide pipeline of a kernel, in the order in which the native launcher reads it.

    `address` is that of the object's `<entry>_argv` function. `arguments` and `checks` are those of
    the manifest, all of `arguments` but the status in the order of `positions`: the Python argument
    each one takes. `code` is whatever keeps the machine code alive; it lives as long as the
    launcher. `module` holds the kernels that the function launches on a GPU; if `variant` is not
    negative it holds one kernel for several pipelines, which are launched together, and this is the
    variant with that number.
    """

    address: int
    arguments: Sequence[Mapping[str, Any]]
    positions: Sequence[int]
    checks: Sequence[Mapping[str, str]] = ()
    release_gil: bool = True
    code: object = None
    module: CudaModule | None = None
    variant: int = -1


@dataclass(frozen=True)
class Runtime:
    """What the launcher found in this process.

    `openmp` is the path of the OpenMP library that parallel loops run on ("" where there is none
    and they run serially); `torch_threads` says whether torch.set_num_threads is followed,
    `profiler` whether kernels show their names in torch.profiler.
    """

    openmp: str
    torch_threads: bool
    profiler: bool


def native() -> ModuleType:
    """The compiled extension.

    Raises MissingNativeExtensionError where it is absent or was built for another Python.
    """
    try:
        from halide_backend.launch import _native
    except ImportError as error:
        raise errors.MissingNativeExtensionError(
            f"the compiled extension cannot be imported ({error})",
            where="halide_backend.launch._native",
            cure=_REINSTALL,
        ) from error
    return _native


@functools.cache
def configure() -> Runtime:
    """Connects the extension to the torch of this process, once; imports torch.

    Raises MissingNativeExtensionError, and UnsupportedVersionError where torch lacks what the
    launcher needs. Warns once where torch runs on no OpenMP that can be found: parallel loops are
    serial then.
    """
    extension = native()
    import torch

    try:
        data_ptr = torch._C._dynamo.guards._torchinductor_pyobject_tensor_data_ptr
        profiler_range = torch._C._profiler._RecordFunctionFast
    except AttributeError as error:
        raise errors.UnsupportedVersionError(
            f"torch {torch.__version__} lacks what the launcher needs ({error})",
            where="torch",
            cure="install torch>=2.11,<2.16",
        ) from error
    runtime = Runtime(
        **extension.configure(
            tensor_type=torch.Tensor,
            parameter_type=torch.nn.Parameter,
            data_ptr=data_ptr,
            convert=argument.convert,
            check_call=argument.check_call,
            wrong_call=_wrong_call,
            on_failure=_on_failure,
            profiler_flags=vars(torch.autograd.profiler),
            profiler_range=profiler_range,
        )
    )
    if not runtime.openmp:
        warnings.warn(
            "halide_backend: this process has no OpenMP library, so kernels run on one thread. "
            "What to do: install a build of torch with OpenMP (the wheels on PyPI have it).",
            RuntimeWarning,
            stacklevel=2,
        )
    return runtime


def make_launcher(
    name: str,
    pipelines: Sequence[Pipeline] | Callable[[], Sequence[Pipeline]],
    arity: int,
) -> Launcher:
    """The kernel `name` as a callable of `arity` positional tensors or numbers that returns None.

    Where `pipelines` is a callable, the launcher is pending: its first call, in whichever thread,
    calls it once and runs what it returns; if it raises, so does this and every later call until it
    succeeds. The GIL is released during a call if any of the pipelines asks for it.

    Raises ValueError, TypeError or OverflowError naming the kernel where a pipeline's description
    is malformed. A call raises KernelArgumentError before anything ran, or KernelIndexError,
    KernelZeroDivisionError or KernelRuntimeError for what failed inside.
    """
    configure()
    launcher: type[Launcher] = native().Launcher
    if not callable(pipelines):
        return launcher(name, pipelines, arity, any(p.release_gil for p in pipelines))
    obtain = pipelines

    def resolve() -> tuple[Sequence[Pipeline], bool]:
        found = obtain()
        return found, any(p.release_gil for p in found)

    return launcher(name, None, arity, resolve=resolve)


def _wrong_call(kernel: str, arity: int, given: int, keywords: tuple[str, ...] | None) -> NoReturn:
    problem = (
        f"got the keyword arguments {', '.join(keywords)}, but takes positional ones only"
        if keywords
        else f"takes {arity} arguments, got {given}"
    )
    raise errors.KernelArgumentError(problem, where=f"kernel {kernel}", cure="call it as the generated wrapper does")


def _on_failure(kernel: str, pipeline: Pipeline, code: int, check: int, message: str) -> NoReturn:
    """A pipeline returned `code`, or its check number `check` (>= 0) failed."""
    where = f"kernel {kernel}"
    if check < 0:
        raise errors.KernelRuntimeError(message or f"Halide error {code}", where=where)
    failed = pipeline[3][check]
    raise _CHECK_ERRORS[failed["error"]](failed["message"], where=where)
