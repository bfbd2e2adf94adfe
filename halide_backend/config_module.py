"""What makes `halide_backend.config` a torch configuration module that checks what it is given."""

from __future__ import annotations

import sys
from typing import Any

from torch.utils._config_module import Config, install_config_module

from halide_backend.errors import UnknownOptionError
from halide_backend.options import OPTIONS, nearest, option


def declare(name: str) -> Any:
    """Return the torch configuration entry of the option called `name`, at its initial value."""
    described = option(name)
    return Config(default=described.initial(), value_type=described.type)


def install(name: str) -> None:
    """Turn the module called `name`, which declares every option, into a configuration module."""
    module = sys.modules[name]
    names = {option.name for option in OPTIONS}
    # torch would take everything a module has, what it imported too, for a configuration entry.
    for other in [n for n in vars(module) if n not in names and not n.startswith("__")]:
        delattr(module, other)
    install_config_module(module)

    class OptionsModule(type(module)):  # type: ignore[misc]
        def __setattr__(self, name: str, value: Any) -> None:
            if name in names:
                value = option(name).check(value)
            elif not name.startswith("_"):
                raise _unknown(name)
            super().__setattr__(name, value)

        def __getattr__(self, name: str) -> Any:
            if name not in names and not name.startswith("_"):
                raise _unknown(name)
            return super().__getattr__(name)

        def __dir__(self) -> list[str]:
            return sorted({*names, *super().__dir__()})

        def save_config_portable(self, **selection: Any) -> dict[str, Any]:
            """Options and whatever else decides what is generated, for Inductor's cache keys.

            Empty while Inductor is set to other backends for every device, so that upgrading this package or changing
            its options leaves their cache entries valid.
            """
            import torch

            from halide_backend import cache_key
            from halide_backend.device_type import device_types
            from halide_backend.selection import is_selected

            if not any(map(is_selected, device_types())):
                return {}
            schedules = cache_key.schedules(
                self.schedule_function,
                self.schedule_files,
                self.schedule_folder,
                self.tune,
                torch.get_num_threads(),
            )
            options: dict[str, Any] = super().save_config_portable(**selection)
            return {**options, **cache_key.entries(self.target), **cache_key.devices(), **schedules}

    def _unknown(option_name: str) -> UnknownOptionError:
        return UnknownOptionError(f"there is no option {option_name!r}", where=name, cure=nearest(option_name, names))

    # Past __setattr__, which takes names of options only.
    object.__setattr__(module, "__class__", OptionsModule)
