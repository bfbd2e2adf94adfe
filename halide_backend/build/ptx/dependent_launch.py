"""Kernels that are launched while the kernel before them ends, and wait for what that one stores.

A GPU begins a kernel some time after the last block of the one before it has ended. From compute capability 9.0 on a
kernel may say where it waits for that instead of not being there, if it is launched so (`launch/gpu_module.inc`):
it is there the moment the last block ends. An image tells the launcher that all its kernels wait, by a name in it.
"""

from __future__ import annotations

from dataclasses import replace

from halide_backend.build.ptx.instructions import Module, statements

#: What the image of kernels that wait defines.
MARK = "halide_backend_waits"

#: The version of PTX, and the compute capability, that have the instruction.
_VERSION, _CAPABILITY = (7, 8), 90

_WAIT = "\n\tgriddepcontrol.wait;"


def waiting(module: Module, capability: str) -> Module:
    """`module`, complete, for `capability` ("sm_90"), whose kernels first wait for the kernel before them, if they can.

    They wait before they read anything but their parameters, as what they read, or overwrite, may be the other's.
    """
    if int(capability.rpartition("_")[2]) < _CAPABILITY:
        return module
    functions = [replace(each, statements=statements(_WAIT) + each.statements) for each in module.functions]
    functions[0] = replace(functions[0], before=f"{functions[0].before}.visible .global .b8 {MARK};\n")
    return replace(module, functions=tuple(functions)).requiring(_VERSION, _CAPABILITY)
