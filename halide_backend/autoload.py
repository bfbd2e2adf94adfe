"""Makes the backend known to Inductor without anybody importing it.

`install` is the `torch.backends` entry point, which torch calls at the end of `import torch`.
Registering there would import Inductor and cost every user of torch a second, so all it does is to
wait: a finder on `sys.meta_path` registers the backend right after `torch._inductor.compile_fx`,
through which every compilation goes, has been imported, and then takes itself away. Nothing here
may raise: an error would make `import torch` fail.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: Imported by torch for the first compilation, whatever leads to it, and not before. Every other
#: module of Inductor that registering needs has been imported by then.
TRIGGER = "torch._inductor.compile_fx"


def install() -> None:
    """Register the backend now if Inductor is there already, else as soon as it is imported."""
    try:
        if TRIGGER in sys.modules:
            _register()
        elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
            sys.meta_path.insert(0, _Finder())
    except Exception as error:
        _report(error)


class _Finder:
    """Answers for the trigger alone, with the spec that the other finders have for it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != TRIGGER:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self)  # type: ignore[assignment]
                return spec
        return None

    def remove(self) -> None:
        # A new list instead of list.remove: a thread that is importing something else walks the old
        # one and would skip a finder if the list shrank under it.
        sys.meta_path = [finder for finder in sys.meta_path if finder is not self]


class _Loader:
    """The loader found for the trigger, and the registration after it."""

    def __init__(self, loader: Any, finder: _Finder) -> None:
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        # A module made from the spec but kept out of sys.modules is somebody's private copy.
        if sys.modules.get(TRIGGER) is module:
            self._finder.remove()
            try:
                _register()
            except Exception as error:
                _report(error)


def _register() -> None:
    from halide_backend.plugin import register

    register()


def _report(error: Exception) -> None:
    # Logged, not warned: under `-W error` a warning is an exception.
    import logging

    logging.getLogger("halide_backend").warning(
        "halide_backend is not available to torch.compile (%s: %s); Inductor's own backends are "
        "not affected. What to do: run `halide-backend doctor`, or remove the package with "
        "`pip uninstall halide-backend`.",
        type(error).__name__,
        error,
    )
