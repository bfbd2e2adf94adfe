"""A kernel in Inductor's C++ wrapper: the function that the wrapper calls, and where its machine code is.

A wrapper of this process finds the code by name, so that its own C++, which is compiled and cached, fits every process.
A package of AOTInductor has the code in its source, as assembly language without instructions, so that nothing but what
Inductor compiles in any case has to be compiled and linked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor.virtualized import V

from halide_backend.build.artifacts import Artifact
from halide_backend.build.assembler_text import assembler_text
from halide_backend.build.c_interface import c_function
from halide_backend.build.package_note import note
from halide_backend.build.processor import processor_check
from halide_backend.capture.package_targets import package_targets
from halide_backend.launch.model_runtime import model_runtime
from halide_backend.pipeline import Compilation

_CALL = """
#ifndef HALIDE_BACKEND_CALL
#define HALIDE_BACKEND_CALL
#include <cstdint>
#include <stdexcept>
#include <string>
using halide_backend_function = int32_t (*)(void* const*, const int64_t*, void*, char*);
static inline void halide_backend_call(
    const char* kernel, halide_backend_function function, void* const* buffers, const int64_t* numbers) {
  char message[256];
  if (function(buffers, numbers, nullptr, message)) {
    throw std::runtime_error(std::string("kernel ") + kernel + ": " + message);
  }
}
#endif
"""

#: The GIL may or may not be held, so no lock that C++ would take for a static variable may be waited for.
_FIND = """
#ifndef HALIDE_BACKEND_FIND
#define HALIDE_BACKEND_FIND
#include <atomic>
static inline halide_backend_function halide_backend_find(
    std::atomic<halide_backend_function>& known, const char* entry) {
  halide_backend_function function = known.load(std::memory_order_acquire);
  if (function) return function;
  py::gil_scoped_acquire_simple gil;
  RAIIPyObject module(PyImport_ImportModule("halide_backend.pipeline"));
  RAIIPyObject address(module ? PyObject_CallMethod(module.get(), "c_function_address", "s", entry) : nullptr);
  if (!address) {
    PyErr_Print();
    throw std::runtime_error(std::string("halide_backend: kernel ") + entry + " cannot be loaded");
  }
  function = reinterpret_cast<halide_backend_function>(PyLong_AsVoidPtr(address.get()));
  known.store(function, std::memory_order_release);
  return function;
}
#endif
"""


#: In a package: which of a kernel's functions the processor runs, and why none.
_PROCESSOR = """
#ifndef HALIDE_BACKEND_CHECK_PROCESSOR
#define HALIDE_BACKEND_CHECK_PROCESSOR \\
  if (const char* unsuitable = halide_backend_unsuitable()) throw std::runtime_error(unsuitable);
extern "C" __attribute__((visibility("hidden"))) int32_t halide_backend_target();
extern "C" __attribute__((visibility("hidden"))) const char* halide_backend_unsuitable();
#endif
"""


@dataclass(frozen=True)
class CppPipeline:
    """One pipeline of a kernel: `pointers` and `numbers` are the arguments of the kernel that it takes, by position."""

    compilation: Compilation
    pointers: tuple[int, ...]
    numbers: tuple[int, ...]

    @property
    def artifacts(self) -> list[Artifact]:
        """What is compiled for each target, the least demanding first."""
        return [each.build.artifact.result() for each in (self.compilation, *self.compilation.others)]

    @property
    def entry(self) -> str:
        """The pipeline's name: that of its function, in whatever process."""
        return self.artifacts[0].entry

    @property
    def functions(self) -> list[str]:
        """The C functions of its artifacts."""
        return [c_function(artifact.entry) for artifact in self.artifacts]


def types(arguments: int, pipelines: Sequence[CppPipeline]) -> tuple[str, ...]:
    """The C++ types of the parameters of a kernel with so many arguments."""
    numbers = {position for pipeline in pipelines for position in pipeline.numbers}
    return tuple("int64_t" if position in numbers else "void*" for position in range(arguments))


def define(wrapper: Any, name: str, types: Sequence[str], pipelines: Sequence[CppPipeline], metadata: str) -> None:
    """Define the kernel `name`, with parameters of these C++ types, in the C++ wrapper.

    Raises:
        LoadError: an object cannot be written as assembly language.
    """
    parameters = ", ".join(f"{kind} a{number}" for number, kind in enumerate(types))
    calls = "".join(_call(name, pipeline) for pipeline in pipelines)
    function = f"static inline void {name}({parameters}) {{\n{calls}}}\n"
    if V.graph.aot_mode:
        declared = "".join(
            f'extern "C" __attribute__((visibility("hidden"))) int32_t {c_name}'
            "(void* const*, const int64_t*, void*, char*);\n"
            for pipeline in pipelines
            for c_name in pipeline.functions
        )
        code = _once("RUNTIME", model_runtime()) + _once("PROCESSOR", processor_check(package_targets()))
        code += "".join(_machine_code(artifact) for pipeline in pipelines for artifact in pipeline.artifacts)
        names = [name or target.cpu for name, target in package_targets().items()]
        code += f'__asm__(R"assembly(\n{note(name, names, torch.__version__)})assembly");\n'
        header = _CALL + _PROCESSOR + declared + function
        wrapper.define_kernel(name, code, metadata=metadata, gpu=False, cpp_definition=header)
        return
    texts = "".join(f"    ({each.entry!r}, r'''\n{each.compilation.text}'''),\n" for each in pipelines)
    wrapper.add_import_once("from halide_backend.pipeline import load_c_functions")
    wrapper.imports.splice(f"load_c_functions({name!r}, [\n{texts}])\n")
    wrapper.define_kernel(name, _CALL + _FIND + function, metadata=metadata, gpu=False)


def _call(name: str, pipeline: CppPipeline) -> str:
    lines = []
    function, numbers = pipeline.functions[0], "nullptr"
    if len(pipeline.functions) > 1:
        lines.append(f"static constexpr halide_backend_function functions[] = {{{', '.join(pipeline.functions)}}};")
        function = "functions[halide_backend_target()]"
    if not V.graph.aot_mode:
        lines.append("static std::atomic<halide_backend_function> known{nullptr};")
        function = f'halide_backend_find(known, "{pipeline.entry}")'
    lines.append(f"void* const buffers[] = {{{', '.join(f'a{position}' for position in pipeline.pointers)}}};")
    if pipeline.numbers:
        lines.append(f"const int64_t numbers[] = {{{', '.join(f'a{position}' for position in pipeline.numbers)}}};")
        numbers = "numbers"
    lines.append(f'halide_backend_call("{name}", {function}, buffers, {numbers});')
    return "  {\n" + "".join(f"    {line}\n" for line in lines) + "  }\n"


def _machine_code(artifact: Artifact) -> str:
    text = assembler_text(artifact.object, artifact.entry)
    return _once(artifact.entry, f'__asm__(R"assembly(\n{text})assembly");\n')


def _once(name: str, text: str) -> str:
    """`text` for a source that may get it again: the graph that folds constants and the main one share a source."""
    return f"#ifndef HALIDE_BACKEND_{name}\n#define HALIDE_BACKEND_{name}\n{text}#endif\n"
