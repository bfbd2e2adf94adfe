"""Inductor's own backend for a device: what this one leaves to it, and its answers about that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch._inductor import config as inductor_config

#: Device type -> the name that Inductor's own backend has in its configuration.
NAMES = {"cpu": "cpp", "cuda": "triton"}


@contextmanager
def own_name(device: str) -> Iterator[None]:
    """Gives Inductor's own backend for `device` its name, which parts of Inductor compare where they write its code."""
    with inductor_config.patch({f"{device}_backend": NAMES[device]}):
        yield


class Delegate:
    """A scheduling object of Inductor's own, under its own name; `make` makes it when it is first needed."""

    def __init__(self, device: str, make: Callable[[], Any]) -> None:
        self.name = NAMES[device]
        self._device = device
        self._make = make
        self._backend: Any = None

    @contextmanager
    def __call__(self) -> Iterator[Any]:
        with own_name(self._device):
            if self._backend is None:
                self._backend = self._make()
            yield self._backend
