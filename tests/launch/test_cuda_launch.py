"""Launches on a GPU, as far as they show on a machine without one."""

from __future__ import annotations

import ctypes.util
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halide_backend.errors import KernelRuntimeError
from halide_backend.launch.launcher import Pipeline, make_launcher, native

#: A kernel that launches a grid of so many blocks as its argument says, without arguments of its own.
_LAUNCH = """
declare i32 @halide_cuda_run(ptr, ptr, ptr, i32, i32, i32, i32, i32, i32, i32, ptr, ptr, ptr)
@name = constant [2 x i8] c"k\\00"
@sizes = constant [1 x i64] zeroinitializer
define i32 @kernel(ptr %arguments) {
  %place = load ptr, ptr %arguments
  %blocks = load i32, ptr %place
  %code = call i32 @halide_cuda_run(ptr null, ptr null, ptr @name, i32 %blocks, i32 1, i32 1, i32 1, i32 1, i32 1,
                                    i32 0, ptr @sizes, ptr null, ptr null)
  ret i32 %code
}
"""


@pytest.mark.skipif(ctypes.util.find_library("cuda") is not None, reason="there is a driver")
def test_a_grid_without_blocks_is_no_launch(link_ir: Callable[[str, str], tuple[int, Any]]) -> None:
    """A dynamic size may be 0, and the driver refuses an empty grid; here it would be missing already."""
    address, code = link_ir(_LAUNCH, "kernel")
    sizes = [{"kind": "int32", "name": "n0"}]
    pipeline = Pipeline(address, sizes, (0,), (), False, code, native().CudaModule(b"\0"))
    kernel = make_launcher("launches", [pipeline], 2)
    assert kernel(0, 0) is None
    with pytest.raises(KernelRuntimeError, match="no CUDA driver"):
        kernel(1, 0)


#: A driver that writes down which entries it is asked for.
_DRIVER = """
#include <stdio.h>
#include <string.h>
int cuCtxGetCurrent(void **context) { *context = (void *)1; return 0; }
int cuCtxPushCurrent_v2(void *context) { return context != (void *)1; }
int cuCtxPopCurrent_v2(void **context) { return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = attribute == 75 ? 9 : 0; return 0; }
int cuModuleUnload(void *module) { return 0; }
int cuModuleLoadDataEx(void **module, const void *image, unsigned n, void *names, void *values) {
    *module = (void *)image;
    return 0;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    FILE *file = fopen(module, "a");
    fprintf(file, "%s\\n", name);
    fclose(file);
    *function = module;
    return strcmp(name, "missing") ? 0 : 500;
}
int cuGetErrorString(int code, const char **text) { *text = "not found"; return 0; }
int cuModuleGetGlobal_v2(void *address, void *bytes, void *module, const char *name) { return 500; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuLaunchKernelEx(const void *configuration, ...) { return 0; }
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler to make a driver with")
def test_the_driver_is_asked_for_the_name_in_the_image(
    link_ir: Callable[[str, str], tuple[int, Any]], tmp_path: Path
) -> None:
    source, library, asked = tmp_path / "driver.c", tmp_path / "libcuda.so.1", tmp_path / "asked"
    source.write_text(_DRIVER)
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, source], check=True)
    address, code = link_ir(_LAUNCH, "kernel")
    sizes = [{"kind": "int32", "name": "n0"}]

    def launch(names: bytes) -> None:
        module = native().CudaModule(os.fsencode(asked) + b"\0", names)
        kernel = make_launcher("launches", [Pipeline(address, sizes, (0,), (), False, code, module)], 2)
        kernel(1, 0)
        kernel(2, 0)

    child = os.fork()
    if child == 0:  # The driver is looked for once in a process.
        ctypes.CDLL(str(library))
        try:
            launch(b"other\0wrong\0k\0halide_fused_add_2__0\0")
            launch(b"")
            launch(b"k\0missing\0")
        except KernelRuntimeError as error:
            os._exit(0 if "loading missing: not found" in str(error) else 2)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert asked.read_text().split() == ["halide_fused_add_2__0", "k", "missing"]
