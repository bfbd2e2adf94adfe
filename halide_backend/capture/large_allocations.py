"""Inductor's Python wrapper: large blocks of memory that it allocates on a CPU ask for huge pages."""

from __future__ import annotations

import math
from typing import Any

import torch

from halide_backend.capture.sizes import hint
from halide_backend.device_type import CPU, DeviceType
from halide_backend.launch.freed_memory import LARGE_BLOCK, in_huge_pages
from halide_backend.selection import is_selected


def with_huge_pages(wrapper: Any, kind: DeviceType) -> Any:
    """`wrapper`, a class that Inductor makes Python wrappers of, or one that extends it while this backend is selected
    for devices of the type `kind`."""

    class LargeAllocations(wrapper):
        """A Python wrapper in which memory of `LARGE_BLOCK` bytes and more, or typically so many, is a call more."""

        @staticmethod
        def create(is_subgraph: bool, *arguments: Any, **named: Any) -> Any:
            ours = is_selected(kind) and not is_subgraph
            return LargeAllocations() if ours else wrapper.create(is_subgraph, *arguments, **named)

        def make_allocation(
            self, name: str, device: torch.device, dtype: torch.dtype, shape: Any, *others: Any, **named: Any
        ) -> str:
            line: str = super().make_allocation(name, device, dtype, shape, *others, **named)
            bytes_ = math.prod(map(hint, shape)) * dtype.itemsize
            if device.type != CPU.name or bytes_ < LARGE_BLOCK:
                return line
            module, function = in_huge_pages.__module__, in_huge_pages.__name__
            self.add_import_once(f"from {module} import {function}")
            target, _, allocated = line.partition(" = ")
            return f"{target} = {function}({allocated})"

    return LargeAllocations
