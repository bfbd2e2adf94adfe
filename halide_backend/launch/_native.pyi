"""The compiled launcher and the Halide runtime that all kernels of a process share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

ABI: int
"""Raised when a kernel compiled for an older version could no longer run; in the cache key."""

class _Runtime(TypedDict):
    openmp: str
    torch_threads: bool
    profiler: bool

def symbols() -> dict[str, int]:
    """Addresses of every halide_* function that an object compiled with no_runtime may call."""

def huge_pages(address: int, bytes: int, /) -> None:
    """Asks for huge pages for a block of memory that nobody has written; a system without them changes nothing."""

def configure(
    *,
    tensor_type: type,
    parameter_type: type,
    data_ptr: int,
    convert: Callable[[str, Any, int, object], int],
    check_call: Callable[[str, Any, tuple[object, ...]], object],
    wrong_call: Callable[[str, int, int, tuple[str, ...] | None], object],
    on_failure: Callable[[str, Any, int, int, str], object],
    profiler_flags: dict[str, Any],
    profiler_range: Callable[[str], Any],
) -> _Runtime:
    """Connects the launcher to torch; see launcher.py for what each hook does.

    `data_ptr` is the address of a C function from a tensor object to its data pointer. It is called
    for objects of exactly `tensor_type` or `parameter_type`; `convert` answers for all others.
    While `profiler_flags` has a true `_is_profiler_enabled`, each call is a `profiler_range(name)`.
    """

TABLE: tuple[int, int]
"""Bytes of a joint kernel's parameter, and its most entries: see build/joining.py."""

class CudaModule:
    """Kernels for a GPU, loaded into each device's context when they are first launched there.

    `image` is machine code, or PTX that ends with a zero byte. `names` holds strings that end with a zero byte, in
    pairs: what the launching half of a kernel calls one of its entries, and that entry's name in `image`. Entries
    that are not among them have the name that they are called by.
    """

    address: int
    """What the C function of a pipeline finds them by: see docs/reference/c-interface.md."""

    def __new__(cls, image: bytes, names: bytes = b"") -> CudaModule: ...

class Launcher:
    """A kernel as a callable of `arity` positional tensors or numbers. Thread-safe and re-entrant.

    A pipeline is a sequence (address of `<entry>_argv`, arguments, positions, checks, ...) of which only the first
    four are read, and the seventh and eighth, the `CudaModule` of a pipeline that runs on a GPU and its variant in a
    joint one; the whole is kept alive. With one of these the last argument of a call is the CUDA stream, as a number.
    `resolve` returns (pipelines, release_gil).
    """

    __name__: str
    arity: int
    pending: bool
    release_gil: bool

    def __new__(
        cls,
        name: str,
        pipelines: Sequence[Sequence[Any]] | None,
        arity: int,
        release_gil: bool = False,
        resolve: Callable[[], tuple[Sequence[Sequence[Any]], bool]] | None = None,
    ) -> Launcher: ...
    def __call__(self, *arguments: object) -> None: ...
