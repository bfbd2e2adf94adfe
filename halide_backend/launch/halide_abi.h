/* What compiled kernels (Halide 21, target feature no_runtime) and this process agree upon. The layouts and error codes
 * follow HalideRuntime.h of Halide 21. */
#ifndef HALIDE_BACKEND_HALIDE_ABI_H
#define HALIDE_BACKEND_HALIDE_ABI_H

#include <stdint.h>

typedef struct {
    int32_t min, extent, stride; /* elements */
    uint32_t flags;
} halide_dimension_t;

typedef struct {
    uint64_t device;
    const void *device_interface;
    uint8_t *host;
    uint64_t flags;
    uint8_t code, bits;
    uint16_t lanes;
    int32_t dimensions;
    const halide_dimension_t *dim;
    void *padding;
} halide_buffer_t;

/* `<entry>_argv` of a compiled pipeline: one pointer per argument, to a halide_buffer_t or to a number. */
typedef int (*pipeline_function)(void **arguments);
typedef int (*halide_task_t)(void *user_context, int index, uint8_t *closure);

enum {
    HALIDE_ERROR_GENERIC = -1,
    HALIDE_ERROR_OUT_OF_MEMORY = -11,
};

/* A function that compiled kernels may call. */
struct symbol {
    const char *name;
    void *address;
};

#endif
