"""The runtime of models for a GPU, over a driver that writes down which kernels are loaded, launched, unloaded."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halide_backend.launch.model_runtime import gpu_runtime, model_runtime

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler (g++), as models do")

STRICT = ("-std=c++20", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror")

#: A driver whose current device is set by `use_device`; its context is its number plus one.
DRIVER = """
#include <cstdio>
#include <cstring>
static int device = -1, capability, launch_result;
static char told[4096];
struct Configuration { unsigned blocks[3], threads[3], shared; void* stream; const int* attributes; unsigned count; };
#define TELL(...) snprintf(told + strlen(told), sizeof told - strlen(told), __VA_ARGS__)
extern "C" {
void use_device(int number, int of_capability, int result) {
  device = number, capability = of_capability, launch_result = result;
}
const char* take() { static char taken[4096]; strcpy(taken, told); *told = 0; return taken; }
int cuCtxGetCurrent(long* context) { return *context = device + 1, 0; }
int cuCtxPushCurrent_v2(long context) { TELL("push %ld;", context); return 0; }
int cuCtxPopCurrent_v2(long* context) { return *context = 0, 0; }
int cuCtxGetDevice(int* number) { return *number = device, 0; }
int cuDeviceGetAttribute(int* value, int attribute, int) {
  return *value = attribute == 75 ? capability / 10 : capability % 10, 0;
}
int cuModuleLoadDataEx(const char** module, const char* image, unsigned, void*, void*) {
  TELL("load %s;", image);
  return *module = image, strcmp(image, "bad") ? 0 : 200;
}
int cuModuleUnload(const char* module) { TELL("unload %s;", module); return 0; }
int cuModuleGetFunction(const char** function, const char*, const char* name) { return *function = name, 0; }
int cuGetErrorString(int code, const char** text) { return *text = code == 200 ? "invalid image" : "failed", 0; }
int cuModuleGetGlobal_v2(void*, void*, const char* module, const char*) { return strcmp(module, "waiting") ? 500 : 0; }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuLaunchKernelEx(const Configuration* c, const char* function, void** values, void**) {
  TELL("launch %s %ux%ux%u %ux%ux%u %u stream %ld: %llx %d;", function, c->blocks[0], c->blocks[1], c->blocks[2],
       c->threads[0], c->threads[1], c->threads[2], c->shared, (long)c->stream, *(unsigned long long*)values[0],
       *(int*)values[1]);
  if (c->count) TELL("%u attributes, %d: %d;", c->count, c->attributes[0], c->attributes[2]);
  return launch_result;
}
}
"""

#: The host half of a kernel by hand, with a buffer and a number.
MODEL = """
static GpuModel good("good", "grid\\\\0halide_add\\\\0"), bad("bad", ""), waiting("waiting", "");
struct Call { int blocks; uint64_t address; };
static int32_t body(void* closure) {
  Call& call = *static_cast<Call*>(closure);
  static const char name[] = "grid";
  int32_t number = 7;
  size_t sizes[] = {8, 4, 0};
  void* arguments[] = {&call.address, &number};
  int8_t is_buffer[] = {1, 0};
  return halide_cuda_run(nullptr, nullptr, name, call.blocks, 2, 1, 32, 1, 1, 16, sizes, arguments, is_buffer);
}
extern "C" int32_t launch(int works, int blocks, uint64_t address, long stream, char* message) {
  Call call{blocks, address};
  gpu_launch given{works == 2 ? &waiting : works ? &good : &bad, reinterpret_cast<void*>(stream)};
  return halide_backend_launch(body, &call, &given, message);
}
extern "C" int32_t target(char* message) { return halide_backend_gpu_target(message); }
"""

TARGETS = ((80, False), (90, False), (86, False), (90, True))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the driver and a model."""
    folder = tmp_path_factory.mktemp("gpu")
    (folder / "driver.cpp").write_text(DRIVER)
    (folder / "model.cpp").write_text(model_runtime() + gpu_runtime(TARGETS) + MODEL.replace("\\\\", "\\"))
    driver = ["-std=c++20", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1", "driver.cpp", "-o", "libcuda.so.1"]
    subprocess.run(["g++", *driver], cwd=folder, check=True)
    subprocess.run(["g++", *STRICT, "model.cpp", "-o", "model.so", "-ldl"], cwd=folder, check=True)
    return folder


@pytest.fixture
def in_child(built: Path) -> Callable[[Callable[[Any, Any], str]], str]:
    """Calls a function with driver and model in a process of its own, and returns what it returned."""

    def run(function: Callable[[Any, Any], str]) -> str:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                driver, model = ctypes.CDLL(str(built / "libcuda.so.1")), ctypes.CDLL(str(built / "model.so"))
                driver.take.restype = ctypes.c_char_p
                os.write(writing, function(driver, model).encode())
            except BaseException as error:
                os.write(writing, repr(error).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with open(reading) as result:
            text = result.read()
        os.waitpid(child, 0)
        return text

    return run


def launched(model: Any, works: int = 1, blocks: int = 3, address: int = 0x1234, stream: int = 5) -> tuple[int, str]:
    message = ctypes.create_string_buffer(256)
    result = model.launch(works, blocks, ctypes.c_uint64(address), ctypes.c_long(stream), message)
    return result, message.value.decode()


def test_a_launch(in_child: Any) -> None:
    """With the name for profilers, on the caller's stream; loaded once for each context, and unloaded in the end."""

    def work(driver: Any, model: Any) -> str:
        told = []
        for device in (1, 0, 1):
            driver.use_device(device, 90, 0)
            assert launched(model) == (0, "")
            assert launched(model, blocks=0) == (0, "")
            told.append(driver.take().decode())
        ctypes.CDLL(None).dlclose(ctypes.c_void_p(model._handle))
        return "|".join([*told, driver.take().decode()])

    launch = "launch halide_add 3x2x1 32x1x1 16 stream 5: 1234 7;"
    first, second, third, end = in_child(work).split("|")
    assert [first, second, third] == [f"load good;{launch}", f"load good;{launch}", launch]
    assert end == "push 1;unload good;push 2;unload good;"


def test_what_waits_is_launched_while_the_kernel_before_it_ends(in_child: Any) -> None:
    """Attribute 6 is CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION."""

    def work(driver: Any, model: Any) -> str:
        driver.use_device(0, 90, 0)
        assert launched(model, works=2) == launched(model, works=1) == (0, "")
        return str(driver.take().decode())

    waiting, plain = "launch grid 3x2x1", "launch halide_add 3x2x1"
    grid = " 32x1x1 16 stream 5: 1234 7;"
    assert in_child(work) == f"load waiting;{waiting}{grid}1 attributes, 6: 1;load good;{plain}{grid}"


def test_what_fails_has_a_message(in_child: Any) -> None:
    def work(driver: Any, model: Any) -> str:
        driver.use_device(-1, 0, 0)
        told = [launched(model)]
        driver.use_device(0, 90, 0)
        told.append(launched(model, works=0))
        driver.use_device(0, 90, 700)
        told.append(launched(model))
        driver.use_device(0, 90, 0)
        told.append(launched(model))
        return "|".join(f"{code} {message}" for code, message in told)

    assert in_child(work).split("|") == [
        "-1 no CUDA device is current on this thread",
        "-1 CUDA error 200 while loading grid: invalid image",
        "-1 CUDA error 700 while launching halide_add: failed",
        "0 ",
    ]


def test_which_kernels_a_gpu_runs(in_child: Any) -> None:
    """The newest machine code of the same major version that is not newer than the GPU, else PTX that is not."""

    def work(driver: Any, model: Any) -> str:
        found, message = [], ctypes.create_string_buffer(256)
        for device, capability in enumerate((80, 86, 89, 90, 100, 120, 75)):
            driver.use_device(device, capability, 0)
            found.append(f"{model.target(message)}")
        driver.use_device(3, 0, 0)  # asked once for each device
        found.append(f"{model.target(ctypes.create_string_buffer(256))}")
        return " ".join(found) + "|" + message.value.decode()

    found, message = in_child(work).split("|")
    assert found.split() == ["0", "2", "2", "1", "3", "3", "-1", "1"]
    assert message == "the GPU has compute capability 7.5, and this model has kernels for 8.0, 9.0, 8.6, 9.0 and newer"


def test_without_a_driver(built: Path) -> None:
    """In a process of its own, because the driver stays once it is there."""
    script = f"""
import ctypes
import ctypes.util
message = ctypes.create_string_buffer(256)
model = ctypes.CDLL({str(built / "model.so")!r})
print(model.target(message), message.value.decode())
print(model.launch(1, 1, ctypes.c_uint64(1), ctypes.c_long(0), message), message.value.decode())
"""
    if ctypes.util.find_library("cuda") is not None:
        pytest.skip("there is a driver")
    done = subprocess.run(["python3", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-1 there is no CUDA driver (libcuda.so.1) on this machine"] * 2
