"""LaunchLine: the call of a kernel, as a line of Inductor's wrapper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor.codegen.wrapper import WrapperLine
from torch._inductor.utils import IndentedBuffer


@dataclass(frozen=True)
class LaunchLine(WrapperLine):
    """One launch of `kernel` with `arguments`, expressions of the wrapper; on a GPU, on the stream that is current there.

    Inductor's own line for calls of kernels knows the devices that Inductor knows.
    """

    wrapper: Any
    kernel: str
    arguments: tuple[str, ...]
    device: torch.device

    def codegen(self, code: IndentedBuffer) -> None:
        """Write the call: Inductor asks when all lines are there and memory is planned."""
        stream = () if self.device.type == "cpu" else (f"get_raw_stream({self.device.index})",)
        code.writeline(self.wrapper.wrap_kernel_call(self.kernel, (*self.arguments, *stream)))
