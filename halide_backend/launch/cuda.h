/* Kernels on a GPU: what the host half of a compiled kernel calls, over CUDA's driver. */
#ifndef HALIDE_BACKEND_CUDA_H
#define HALIDE_BACKEND_CUDA_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "runtime.h"

struct cuda_module;
extern PyTypeObject cuda_module_type;

/* From here on the kernels of this thread come from `module` and run on `stream` (a CUstream). */
void set_cuda_launch(struct cuda_module *module, void *stream);

/* What a device buffer names as its interface; kernels only compare it. */
const void *halide_cuda_device_interface(void);
extern const struct symbol cuda_symbols[];

#endif
