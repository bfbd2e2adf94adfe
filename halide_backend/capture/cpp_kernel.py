"""A kernel in Inductor's C++ wrapper: the function that the wrapper calls, and where its machine code is.

A wrapper of this process finds the code by name, so that its own C++, which is compiled and cached, fits every process.
A package of AOTInductor has the code in its source, as assembly language without instructions, so that nothing but what
Inductor compiles in any case has to be compiled and linked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._inductor.virtualized import V

from halide_backend.build.artifacts import Artifact
from halide_backend.build.assembler_text import assembler_text, data_text
from halide_backend.build.c_interface import c_function
from halide_backend.build.entry_names import entry_name, is_machine_code, named
from halide_backend.build.package_note import note
from halide_backend.build.processor import processor_check
from halide_backend.capture.bound_pipeline import BoundPipeline
from halide_backend.capture.package_targets import package_targets
from halide_backend.device_type import device_type
from halide_backend.launch.model_runtime import gpu_runtime, model_runtime

_STREAM = "halide_backend_stream_type"
_HIDDEN = 'extern "C" __attribute__((visibility("hidden")))'

_CALL = """
#ifndef HALIDE_BACKEND_CALL
#define HALIDE_BACKEND_CALL
#include <cstdint>
#include <stdexcept>
#include <string>
using halide_backend_stream_type = void*;  // has no star, so that the wrapper takes it for a number
using halide_backend_function = int32_t (*)(void* const*, const int64_t*, void*, char*);
struct halide_backend_kernel {
  halide_backend_function function;
  void* module;  // where a GPU finds what the function launches
};
static inline void halide_backend_call(
    const char* name, halide_backend_kernel kernel, void* const* buffers, const int64_t* numbers, void* stream) {
  void* launch[] = {kernel.module, stream};
  char message[256];
  if (kernel.function(buffers, numbers, kernel.module ? launch : nullptr, message)) {
    throw std::runtime_error(std::string("kernel ") + name + ": " + message);
  }
}
#endif
"""

#: The GIL may or may not be held, so no lock that C++ would take for a static variable may be waited for.
_FIND = """
#ifndef HALIDE_BACKEND_FIND
#define HALIDE_BACKEND_FIND
#include <atomic>
struct halide_backend_known {
  std::atomic<halide_backend_function> function{nullptr};
  std::atomic<void*> module{nullptr};
};
static inline halide_backend_kernel halide_backend_find(halide_backend_known& known, const char* entry) {
  halide_backend_function function = known.function.load(std::memory_order_acquire);
  if (function) return {function, known.module.load(std::memory_order_relaxed)};
  py::gil_scoped_acquire_simple gil;
  RAIIPyObject module(PyImport_ImportModule("halide_backend.loading"));
  RAIIPyObject found(module ? PyObject_CallMethod(module.get(), "c_function_addresses", "s", entry) : nullptr);
  if (!found) {
    PyErr_Print();
    throw std::runtime_error(std::string("halide_backend: kernel ") + entry + " cannot be loaded");
  }
  known.module.store(PyLong_AsVoidPtr(PyTuple_GetItem(found.get(), 1)), std::memory_order_relaxed);
  function = reinterpret_cast<halide_backend_function>(PyLong_AsVoidPtr(PyTuple_GetItem(found.get(), 0)));
  known.function.store(function, std::memory_order_release);
  return {function, known.module.load(std::memory_order_relaxed)};
}
#endif
"""

#: In a package: which of a kernel's functions the GPU runs.
_CHOICE = """
#ifndef HALIDE_BACKEND_GPU_CHOICE
#define HALIDE_BACKEND_GPU_CHOICE
struct GpuModel;
extern "C" __attribute__((visibility("hidden"))) int32_t halide_backend_gpu_target(char*);
static inline int32_t halide_backend_gpu_choice() {
  char message[256];
  int32_t number = halide_backend_gpu_target(message);
  if (number < 0) throw std::runtime_error(message);
  return number;
}
#endif
"""

#: What is needed for a GPU besides: the stream that is current.
_GPU = """
#ifndef HALIDE_BACKEND_GPU
#define HALIDE_BACKEND_GPU
static inline void* halide_backend_stream(int32_t device) {
  void* stream = nullptr;
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  return stream;
}
#endif
"""

#: Memory on the GPU for a scalar tensor on the CPU. Its value goes as an argument of the driver's, so that a CUDA graph
#: can record it. Only where there is such a scalar: who reads a wrapper, or counts its allocations as torch's own tests
#: do, should not find one that is never made.
_SCALAR = """
#ifndef HALIDE_BACKEND_SCALAR
#define HALIDE_BACKEND_SCALAR
#include <cstring>
template <typename Tensor>
static inline torch::aot_inductor::RAIIAtenTensorHandle halide_backend_on_gpu(
    const Tensor& scalar, int32_t dtype, int32_t bytes, int32_t device, void* stream) {
  AtenTensorHandle handle;
  AOTI_TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(0, nullptr, nullptr, dtype, aoti_torch_device_type_cuda(), device, &handle));
  torch::aot_inductor::RAIIAtenTensorHandle copy(handle);
  auto to = reinterpret_cast<CUdeviceptr>(copy.data_ptr());
  auto from = static_cast<const unsigned char*>(static_cast<const void*>(scalar.data_ptr()));
  CUstream queue = static_cast<CUstream>(stream);
  int32_t step = bytes < 4 ? bytes : 4;
  for (int32_t byte = 0; byte < bytes; byte += step) {
    uint32_t word = 0;
    memcpy(&word, from + byte, step);
    CUresult failed = step == 4 ? cuMemsetD32Async(to + byte, word, 1, queue)
        : step == 2             ? cuMemsetD16Async(to + byte, static_cast<uint16_t>(word), 1, queue)
                                : cuMemsetD8Async(to + byte, static_cast<uint8_t>(word), 1, queue);
    if (failed) throw std::runtime_error("a scalar tensor on the CPU cannot be given to the GPU");
  }
  return copy;
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


def types(arguments: int, pipelines: Sequence[BoundPipeline]) -> tuple[str, ...]:
    """The C++ types of the parameters of a kernel with so many arguments, and of the stream."""
    numbers = {position for pipeline in pipelines for position in pipeline.numbers}
    return *("int64_t" if position in numbers else "void*" for position in range(arguments)), _STREAM


def stream(device: torch.device) -> str:
    """What a launch on `device` is called with last."""
    if device_type(device).on_host:
        return "nullptr"
    return "stream" if V.graph.aot_mode else f"halide_backend_stream({device.index})"


def on_gpu(scalar: str, dtype: torch.dtype, device: torch.device) -> str:
    """A tensor on the GPU with the value that the tensor `scalar`, on the CPU and without dimensions, has now."""
    wrapper = V.graph.wrapper_code
    if _SCALAR not in wrapper.header.getvalue():
        wrapper.header.splice(_SCALAR)
    index = "this->device_idx_" if V.graph.aot_mode else device.index
    where = f"{wrapper.codegen_dtype(dtype)}, {dtype.itemsize}, {index}, {stream(device)}"
    return f"halide_backend_on_gpu({scalar}, {where})"


def define(
    wrapper: Any,
    name: str,
    types: Sequence[str],
    pipelines: Sequence[BoundPipeline],
    metadata: str,
    device: torch.device,
) -> None:
    """Define the kernel `name`, with parameters of these C++ types, in the C++ wrapper.

    Raises:
        LoadError: an object cannot be written as assembly language.
    """
    on_gpu = not device_type(device).on_host
    parameters = ", ".join(f"{kind} a{number}" for number, kind in enumerate(types))
    calls = "".join(_call(name, pipeline, f"a{len(types) - 1}") for pipeline in pipelines)
    function = f"static inline void {name}({parameters}) {{\n{calls}}}\n"
    header = _CALL + _GPU * on_gpu
    if V.graph.aot_mode:
        code = _once("RUNTIME", model_runtime())
        if on_gpu:
            targets = [artifact.manifest["capability"] for artifact in pipelines[0].artifacts]
            header += _CHOICE
            code += _once("GPU_RUNTIME", gpu_runtime(tuple(map(_gpu_target, pipelines[0].artifacts))))
        else:
            targets = [target_name or target.cpu for target_name, target in package_targets().items()]
            header += _PROCESSOR
            code += _once("PROCESSOR", processor_check(package_targets()))
        code += _assembly(note(name, targets, torch.__version__))
        launches = 0
        for pipeline in pipelines:
            for artifact in pipeline.artifacts:
                header += _declaration(artifact)
                code += _machine_code(artifact, name, launches)
            launches += len(pipeline.artifacts[0].manifest.get("entries", ()))
        wrapper.define_kernel(name, code, metadata=metadata, gpu=False, cpp_definition=header + function)
        return
    texts = "".join(f"    ({each.entry!r}, r'''\n{each.compilation.text}'''),\n" for each in pipelines)
    wrapper.add_import_once("from halide_backend.loading import load_c_functions")
    wrapper.imports.splice(f"load_c_functions({name!r}, [\n{texts}], {str(device)!r})\n")
    wrapper.define_kernel(name, header + _FIND + function, metadata=metadata, gpu=False)


def _call(name: str, pipeline: BoundPipeline, stream: str) -> str:
    lines, numbers = [], "nullptr"
    if V.graph.aot_mode:
        kernels = ", ".join(map(_kernel, pipeline.artifacts))
        lines.append(f"static constexpr halide_backend_kernel kernels[] = {{{kernels}}};")
        choice = "halide_backend_target()" if len(pipeline.artifacts) > 1 else "0"
        if pipeline.artifacts[0].image:
            choice = "halide_backend_gpu_choice()"
        kernel = f"kernels[{choice}]"
    else:
        lines.append("static halide_backend_known known;")
        kernel = f'halide_backend_find(known, "{pipeline.entry}")'
    lines.append(f"void* const buffers[] = {{{', '.join(f'a{position}' for position in pipeline.pointers)}}};")
    if pipeline.numbers:
        lines.append(f"const int64_t numbers[] = {{{', '.join(f'a{position}' for position in pipeline.numbers)}}};")
        numbers = "numbers"
    lines.append(f'halide_backend_call("{name}", {kernel}, buffers, {numbers}, {stream});')
    return "  {\n" + "".join(f"    {line}\n" for line in lines) + "  }\n"


def _kernel(artifact: Artifact) -> str:
    module = f"&{_module(artifact)}" if artifact.image else "nullptr"
    return f"{{{c_function(artifact.entry)}, {module}}}"


def _module(artifact: Artifact) -> str:
    """The symbol of what the artifact launches on a GPU."""
    return f"{c_function(artifact.entry)}_module"


def _declaration(artifact: Artifact) -> str:
    text = f"{_HIDDEN} int32_t {c_function(artifact.entry)}(void* const*, const int64_t*, void*, char*);\n"
    return text + f"{_HIDDEN} GpuModel {_module(artifact)};\n" if artifact.image else text


def _gpu_target(artifact: Artifact) -> tuple[int, bool]:
    """The compute capability that the artifact is for, 90 for 9.0, and whether it is PTX."""
    return int(artifact.manifest["capability"].partition("_")[2]), not is_machine_code(artifact.image)


def _machine_code(artifact: Artifact, kernel: str, launches: int) -> str:
    """The artifact's functions and what they launch on a GPU, after so many launches of the same kernel."""
    text = _assembly(assembler_text(artifact.object, artifact.entry))
    if artifact.image:
        entries = artifact.manifest["entries"]
        names = [entry_name(kernel, launches + k) for k in range(len(entries))]
        pairs = "".join(f"{called}\\0{shown}\\0" for called, shown in zip(entries, names))
        symbol = f"{c_function(artifact.entry)}_image"
        text += _assembly(data_text(symbol, named(artifact.image, names)))
        text += f"{_HIDDEN} const unsigned char {symbol}[];\n{_HIDDEN} GpuModel {_module(artifact)};\n"
        text += f'GpuModel {_module(artifact)}({symbol}, "{pairs}");\n'
    return _once(artifact.entry, text)


def _assembly(text: str) -> str:
    return f'__asm__(R"assembly(\n{text})assembly");\n'


def _once(name: str, text: str) -> str:
    """`text` for a source that may get it again: the graph that folds constants and the main one share a source."""
    return f"#ifndef HALIDE_BACKEND_{name}\n#define HALIDE_BACKEND_{name}\n{text}#endif\n"
