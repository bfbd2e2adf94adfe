"""LaunchLine: the call of a kernel, as a line of Inductor's wrapper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor.codegen.wrapper import WrapperLine
from torch._inductor.utils import IndentedBuffer

from halide_backend.device_type import CPU, device_type


@dataclass(frozen=True)
class LaunchLine(WrapperLine):
    """One launch of `kernel` with `arguments`, expressions of the wrapper; on a GPU, on the stream that is current.

    Inductor's own line for calls of kernels knows the devices that Inductor knows. `types` are those of the kernel's
    parameters in a C++ wrapper; in a Python one there are none.
    """

    wrapper: Any
    kernel: str
    arguments: tuple[str, ...]
    device: torch.device
    types: tuple[str, ...] = ()

    def codegen(self, code: IndentedBuffer) -> None:
        """Write the call: Inductor asks for it when all lines exist and memory is planned."""
        if self.types:
            from halide_backend.capture import cpp_kernel

            # What has a tensor's pointer depends on the wrapper: a handle, or an array on the stack. Calls of C++
            # functions are what the wrapper has for the CPU.
            self.wrapper._generate_kernel_call_helper(
                self.kernel,
                (*self.arguments, cpp_kernel.stream(self.device)),
                device=torch.device(CPU.name),
                triton=False,
                arg_types=self.types,
            )
            return
        stream = () if device_type(self.device).on_host else (f"get_raw_stream({self.device.index})",)
        code.writeline(self.wrapper.wrap_kernel_call(self.kernel, (*self.arguments, *stream)))
