"""Inductor's C++ wrapper: the constructor of a packaged model asks whether the processor can run its kernels."""

from __future__ import annotations

from typing import Any

from halide_backend.device_type import DeviceType
from halide_backend.selection import is_selected

#: Kernels that are only delegated need no such question; then nothing defines the macro.
_CHECK = """
#ifdef HALIDE_BACKEND_CHECK_PROCESSOR
HALIDE_BACKEND_CHECK_PROCESSOR
#endif
"""


def with_processor_check(wrapper: Any, kind: DeviceType) -> Any:
    """`wrapper`, a class that Inductor makes C++ wrappers of, or one that extends it while this backend is selected for
    devices of the type `kind`."""

    class PackageWrapper(wrapper):
        """A C++ wrapper whose models can be refused by an exception when they are loaded."""

        @staticmethod
        def create(*arguments: Any, **named: Any) -> Any:
            return PackageWrapper() if is_selected(kind) else wrapper.create(*arguments, **named)

        def write_input_output_info(self, info_kind: str, idx: int, name: str) -> None:
            # The constructor of a model has one such line for each output, and in a model without one no kernel.
            if (info_kind, idx) == ("outputs_info_", 0):
                self.prefix.splice(_CHECK)
            super().write_input_output_info(info_kind, idx, name)

    return PackageWrapper
