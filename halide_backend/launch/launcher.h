#ifndef HALIDE_BACKEND_LAUNCHER_H
#define HALIDE_BACKEND_LAUNCHER_H

#include "program.h"

/* What configure() was given; all NULL before. */
struct hooks {
    PyTypeObject *tensor_type, *parameter_type;
    void *(*data_ptr)(PyObject *tensor);
    PyObject *convert, *check_call, *wrong_call, *on_failure, *profiler_range;
};
extern struct hooks hooks;
extern PyTypeObject launcher_type;

/* Fills `frame` (program->frame_size bytes) for a call of kernel `name`; -1 with an exception. */
int bind(PyObject *name, const struct program *program, PyObject *const *arguments, Py_ssize_t arity, char *frame);

#endif
