/* A program: the pipelines of one launcher, parsed once, so that a call only copies and runs. */
#ifndef HALIDE_BACKEND_PROGRAM_H
#define HALIDE_BACKEND_PROGRAM_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "cuda.h"

enum argument_kind { BUFFER, INT64, INT32, STATUS };

/* One Halide argument. Its value lies at byte `slot` of the call's frame. */
struct binding {
    enum argument_kind kind;
    uint8_t empty;          /* BUFFER: no elements, so a NULL pointer is fine */
    int stage, index;       /* which pipeline, and which argument of it */
    int position;           /* which Python argument; unused for STATUS */
    uint32_t slot;          /* bytes */
    int64_t offset;         /* BUFFER: bytes between data_ptr and `host` or `device` */
    uintptr_t misaligned;   /* BUFFER: bits of the address that have to be 0 */
    halide_buffer_t buffer; /* BUFFER and STATUS: all but `host` or `device` */
};

/* One pipeline. Its argument pointers start at byte `arguments` of the frame. */
struct stage {
    pipeline_function function;
    uint32_t arguments, status; /* bytes */
    int n_checks;
    struct cuda_module *module; /* NULL for a pipeline that runs on the CPU */
    int variant;                /* of a joint kernel, or -1 */
};

struct program {
    PyObject *pipelines; /* as given; keeps the machine code alive */
    int n_bindings, n_stages, release_gil;
    int on_cuda;         /* some stage has a module: the last Python argument is the stream */
    uint32_t frame_size; /* bytes */
    uint32_t stream;     /* where the stream lies in the frame */
    struct binding *bindings;
    struct stage *stages;
    halide_dimension_t *dims;
};

/* NULL with a Python exception where `pipelines` is not what _native.pyi describes. */
struct program *parse_program(PyObject *name, PyObject *pipelines, Py_ssize_t arity, int release_gil);
void free_program(struct program *program);

#endif
