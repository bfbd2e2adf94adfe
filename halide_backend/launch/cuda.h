/* Kernels on a GPU: what the host half of a compiled kernel calls, over CUDA's driver. */
#ifndef HALIDE_BACKEND_CUDA_H
#define HALIDE_BACKEND_CUDA_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "halide_abi.h"

struct cuda_module; /* the Python object with a struct gpu_module */
struct gpu_module; /* gpu_module.inc */
struct gpu_launch;
extern PyTypeObject cuda_module_type;

/* The parameter of a joint kernel (build/ptx/batching.py): what its blocks do. */
#define TABLE_BYTES 4000
#define TABLE_ENTRIES 64
struct table {
    uint32_t begins[TABLE_ENTRIES]; /* the first block of each entry */
    uint32_t places[TABLE_ENTRIES]; /* variant << 16 | byte of the table where its arguments begin */
    uint32_t count, padding;
    uint8_t arguments[TABLE_BYTES - 8 * TABLE_ENTRIES - 8];
};

/* Launches of one run that wait to become one: all of `module`. */
struct together {
    struct gpu_module *module;
    void *stream;
    unsigned blocks, threads;
    size_t used; /* bytes of the arguments */
    struct table table;
};

/* From here on the kernels of this thread come from `module` and run on `stream` (a CUstream). With a `variant` that is
 * not negative they wait in `together` until launch_together() is called, or there is no more room. */
void set_cuda_launch(struct cuda_module *module, void *stream, struct together *together, int variant);

/* Launches what waits; returns an error of Halide's. */
int launch_together(struct together *together);

/* halide_backend_run (attempt.h) of a `body` that launches kernels. */
int32_t halide_backend_launch(int32_t (*body)(void *closure), void *closure, const struct gpu_launch *launch,
                              char *message);

/* What a device buffer names as its interface; kernels only compare it. */
const void *halide_cuda_device_interface(void);
extern const struct symbol cuda_symbols[];

#endif
