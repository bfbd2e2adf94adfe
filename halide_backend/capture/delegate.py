"""Inductor's own backend for a device: what this one leaves to it, and its answers about that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch._inductor import config as inductor_config
from torch._inductor.codegen.wrapper import KernelCallLine
from torch._inductor.virtualized import V

from halide_backend.device_type import CPU, CUDA, DeviceType

#: Inductor's own backend -> the setting that has its name.
_SETTINGS = {each.delegate: each.setting for each in (CPU, CUDA)}


@contextmanager
def own_name(kind: DeviceType) -> Iterator[None]:
    """Gives Inductor's own backend for `kind` its name, which parts of Inductor compare where they write its code."""
    with inductor_config.patch({_SETTINGS[kind.delegate]: kind.delegate}):
        yield


@contextmanager
def kernels_called() -> Iterator[list[str]]:
    """The kernels that are called in what is added to the wrapper in the meantime, by their names in it."""
    lines = V.graph.wrapper_code.lines
    before = len(lines)
    found: list[str] = []
    yield found
    # Lines of text have no name of a kernel.
    found += [line.kernel_name for line in lines[before:] if isinstance(line, KernelCallLine)]


class Delegate:
    """A scheduling object of Inductor's own, under its own name; `make` makes it when it is first needed."""

    def __init__(self, kind: DeviceType, make: Callable[[], Any]) -> None:
        self.name = str(kind.delegate)
        self._kind = kind
        self._make = make
        self._backend: Any = None

    @contextmanager
    def __call__(self) -> Iterator[Any]:
        with own_name(self._kind):
            if self._backend is None:
                self._backend = self._make()
            yield self._backend
