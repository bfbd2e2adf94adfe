"""The C interface of a compiled pipeline: one function that takes plain pointers and numbers, as LLVM IR.

Whoever has no manifest, a C++ program for example, cannot fill Halide's buffers; this function has the manifest
compiled in. docs/reference/c-interface.md describes it for its callers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

#: Raised when a caller of an older version could no longer call the function; part of its name.
VERSION = 1

#: What the function asks of the runtime beside what kernels need: `int32_t halide_backend_run(int32_t (*body)(void *),
#: void *closure, char *message)` returns what `body` returns or is ended with, and the message of a failure.
RUN = "halide_backend_run"

#: The same for a body that launches kernels on a GPU, with one more argument before the message: `const struct
#: {void *module, *stream;} *`, where the runtime finds their images, and the CUstream.
LAUNCH = "halide_backend_launch"

_REFUSED = -1  # halide_error_code_generic_error
#: halide_buffer_t and halide_dimension_t (HalideRuntime.h, Halide 21); bytes of a buffer, and where `device`,
#: `device_interface` and `host` are in it.
_BUFFER, _DIM = "{ i64, ptr, ptr, i64, i8, i8, i16, i32, ptr, ptr }", "{ i32, i32, i32, i32 }"
_BUFFER_BYTES, _DEVICE, _INTERFACE, _HOST = 56, 0, 8, 16
_DEVICE_INTERFACE = "halide_cuda_device_interface"

#: What the function calls besides the entry: type of the result, types of the parameters.
_CALLS = {
    RUN: ("i32", "ptr, ptr, ptr"),
    LAUNCH: ("i32", "ptr, ptr, ptr, ptr"),
    _DEVICE_INTERFACE: ("ptr", ""),
    "halide_error": ("void", "ptr, ptr"),
    "llvm.memcpy.p0.p0.i64": ("void", "ptr, ptr, i64, i1"),
}
_DECLARED = re.compile(r"^declare [^@\n]*@([\w.$]+)\(", re.MULTILINE)
#: Definitions that are visible to other objects, as far as their linkage.
_VISIBLE = re.compile(r"^define (?!internal|private|linkonce|weak|available|hidden)(dso_local )?", re.MULTILINE)


def c_function(entry: str) -> str:
    """The name of the C function of the pipeline whose entry is `entry`."""
    return f"hb{VERSION}_{entry}"


def with_c_interface(ir: str, entry: str, manifest: Mapping[str, Any], on_gpu: bool = False) -> str:
    """`ir` and the C function of its pipeline; all that it defines is hidden, as far as it is visible to other objects.

    Args:
        ir: LLVM IR of a pipeline, or of the half of it that launches the other one on a GPU.
        entry: the pipeline's function, with a parameter for each argument of the manifest, in order.
        manifest: what `ExecutedText.manifest` returned.
        on_gpu: whether the pipeline runs on a GPU.
    """
    known = set(_DECLARED.findall(ir))
    declarations = [
        f"declare {result} @{name}({types})" for name, (result, types) in _CALLS.items() if name not in known
    ]
    function = _Function(c_function(entry), entry, manifest, on_gpu).text()
    return "\n".join([_VISIBLE.sub(r"define \1hidden ", ir), *declarations, function])


class _Function:
    """The function called `name` while it is written."""

    def __init__(self, name: str, entry: str, manifest: Mapping[str, Any], on_gpu: bool) -> None:
        self._name = name
        self._entry = entry
        self._checks = manifest["checks"]
        self._arguments = manifest["arguments"]
        self._buffers = [argument for argument in self._arguments if argument["kind"] in ("buffer", "status")]
        self._on_gpu = on_gpu
        self._globals: list[str] = []
        self._lines: list[str] = []

    def text(self) -> str:
        """Everything that is added to the module."""
        self._templates()
        size = len(self._buffers) * _BUFFER_BYTES
        self._lines += [
            f"%frame = alloca [{len(self._buffers)} x {_BUFFER}], align 8",
            f"%status = alloca [{len(self._checks)} x i32], align 4",
            "%buffers = load ptr, ptr %call",
            "%numbers.place = getelementptr ptr, ptr %call, i64 1",
            "%numbers = load ptr, ptr %numbers.place",
            f"call void @llvm.memcpy.p0.p0.i64(ptr %frame, ptr @{self._name}.buffers, i64 {size}, i1 false)",
            f"store [{len(self._checks)} x i32] zeroinitializer, ptr %status",
        ]
        if self._on_gpu:
            self._lines.append(f"%interface = call ptr @{_DEVICE_INTERFACE}()")
        given = ", ".join(self._given())
        self._lines += [
            f"%code = call i32 @{self._entry}({given})",
            "%done = icmp eq i32 %code, 0",
            "br i1 %done, label %run, label %failed",
            "failed:",
            "ret i32 %code",
            "run:",
        ]
        for number, check in enumerate(self._checks):
            self._lines += [
                f"%status.{number} = getelementptr i32, ptr %status, i64 {number}",
                f"%value.{number} = load i32, ptr %status.{number}",
                f"%passed.{number} = icmp eq i32 %value.{number}, 0",
            ]
            self._end_unless(f"passed.{number}", number + 1, check["message"])
        body = "\n".join(f"  {line}" for line in [*self._lines, "ret i32 0"])
        run = f"{LAUNCH}(ptr @{self._name}.body, ptr %call, ptr %stream, ptr %message)"
        if not self._on_gpu:
            run = f"{RUN}(ptr @{self._name}.body, ptr %call, ptr %message)"
        return f"""{chr(10).join(self._globals)}
define internal i32 @{self._name}.body(ptr %call) {{
{body}
}}
define hidden i32 @{self._name}(ptr %buffers, ptr %numbers, ptr %stream, ptr %message) {{
  %call = alloca [2 x ptr]
  %second = getelementptr ptr, ptr %call, i64 1
  store ptr %buffers, ptr %call
  store ptr %numbers, ptr %second
  %result = call i32 @{run}
  ret i32 %result
}}
"""

    def _templates(self) -> None:
        """The buffers but for what is known only when the function is called: where their memory is."""
        dims: list[str] = []
        buffers = []
        for argument in self._buffers:
            status = argument["kind"] == "status"
            pairs = [(len(self._checks), 1)] if status else argument["dims"]
            code, bits = (0, 32) if status else (argument["code"], argument["bits"])
            first = f"getelementptr ({_DIM}, ptr @{self._name}.dims, i64 {len(dims)})"
            kind = f"i8 {code}, i8 {bits}, i16 1, i32 {len(pairs)}"
            buffers.append(f"{_BUFFER} {{ i64 0, ptr null, ptr null, i64 0, {kind}, ptr {first}, ptr null }}")
            dims += [f"{_DIM} {{ i32 0, i32 {extent}, i32 {stride}, i32 0 }}" for extent, stride in pairs]
        for name, kind, items in (("dims", _DIM, dims), ("buffers", _BUFFER, buffers)):
            values = f"[ {', '.join(items)} ]" if items else "zeroinitializer"
            self._globals.append(f"@{self._name}.{name} = private constant [{len(items)} x {kind}] {values}")

    def _given(self) -> list[str]:
        """What the entry is called with, after everything that makes it."""
        given = []
        buffers = pointers = numbers = 0
        for number, argument in enumerate(self._arguments):
            if argument["kind"] in ("buffer", "status"):
                given.append(f"ptr %buffer.{number}")
                self._lines.append(f"%buffer.{number} = getelementptr i8, ptr %frame, i64 {buffers * _BUFFER_BYTES}")
                buffers += 1
                if argument["kind"] == "status":
                    self._set(number, _HOST, "%status")
                    continue
                self._lines += [
                    f"%pointer.place.{number} = getelementptr ptr, ptr %buffers, i64 {pointers}",
                    f"%pointer.{number} = load ptr, ptr %pointer.place.{number}",
                    f"%memory.{number} = getelementptr i8, ptr %pointer.{number}, i64 {argument.get('offset', 0)}",
                ]
                pointers += 1
                self._check_alignment(number, argument)
                if self._on_gpu:
                    self._set(number, _DEVICE, f"%memory.{number}")
                    self._set(number, _INTERFACE, "%interface")
                else:
                    self._set(number, _HOST, f"%memory.{number}")
                continue
            self._lines += [
                f"%number.place.{number} = getelementptr i64, ptr %numbers, i64 {numbers}",
                f"%number.{number} = load i64, ptr %number.place.{number}",
            ]
            numbers += 1
            if argument["kind"] == "int64":
                given.append(f"i64 %number.{number}")
                continue
            given.append(f"i32 %narrow.{number}")
            self._lines += [
                f"%narrow.{number} = trunc i64 %number.{number} to i32",
                f"%wide.{number} = sext i32 %narrow.{number} to i64",
                f"%fits.{number} = icmp eq i64 %number.{number}, %wide.{number}",
            ]
            self._end_unless(f"fits.{number}", _REFUSED, f"the number {argument['name']!r} does not fit 32 bits")
        return given

    def _set(self, number: int, place: int, pointer: str) -> None:
        """Store `pointer` in the buffer of argument `number`."""
        name = f"%place.{number}.{place}"
        self._lines += [
            f"{name} = getelementptr i8, ptr %buffer.{number}, i64 {place}",
            f"store ptr {pointer}, ptr {name}",
        ]

    def _check_alignment(self, number: int, argument: Mapping[str, Any]) -> None:
        alignment = argument.get("alignment", 1)
        if alignment == 1:
            return
        self._lines += [
            f"%address.{number} = ptrtoint ptr %memory.{number} to i64",
            f"%beyond.{number} = and i64 %address.{number}, {alignment - 1}",
            f"%aligned.{number} = icmp eq i64 %beyond.{number}, 0",
        ]
        message = f"the tensor {argument['name']!r} begins at an address that is no multiple of {alignment}"
        self._end_unless(f"aligned.{number}", _REFUSED, message)

    def _end_unless(self, condition: str, result: int, message: str) -> None:
        """Unless `condition` holds, end with `result` and `message`."""
        text = "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in message.encode())
        name = f"{self._name}.{condition}.message"
        self._globals.append(f'@{name} = private constant [{len(message.encode()) + 1} x i8] c"{text}\\00"')
        self._lines += [
            f"br i1 %{condition}, label %{condition}.true, label %{condition}.false",
            f"{condition}.false:",
            f"call void @halide_error(ptr null, ptr @{name})",
            f"ret i32 {result}",
            f"{condition}.true:",
        ]
