"""Inductor's own backend for a device: what this one leaves to it, and its answers about that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch._inductor import config as inductor_config

#: Device type -> the name that Inductor's own backend has in its configuration.
_NAMES = {"cpu": "cpp", "cuda": "triton"}


class Delegate:
    """Makes the scheduling object of Inductor's own backend when it is first needed."""

    def __init__(self, device: str, scheduler: Any) -> None:
        self.name = _NAMES[device]
        self._device = device
        self._scheduler = scheduler
        self._backend: Any = None

    @contextmanager
    def __call__(self) -> Iterator[Any]:
        """The scheduling object, under its own name, which parts of Inductor compare."""
        with inductor_config.patch({f"{self._device}_backend": self.name}):
            if self._backend is None:
                self._backend = self._make()
            yield self._backend

    def _make(self) -> Any:
        if self._device == "cuda":
            from torch._inductor.codegen.cuda_combined_scheduling import CUDACombinedScheduling

            return CUDACombinedScheduling(self._scheduler)
        from torch._inductor.codegen.cpp import CppScheduling

        return CppScheduling(self._scheduler)
