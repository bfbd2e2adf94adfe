/* From Python arguments to Halide arguments. */
#include "launcher.h"

#include <string.h>

/* What the buffers of empty tensors point to: Halide takes a NULL host for a bounds query. */
static _Alignas(64) uint8_t nowhere[64];

static PyObject *argument_value(PyObject *name, const struct program *program,
                                const struct binding *binding, PyObject *value) {
    PyObject *pipeline = PyTuple_GET_ITEM(program->pipelines, binding->stage);
    return PyObject_CallFunction(hooks.convert, "OOiO", name, pipeline, binding->index, value);
}

/* Slow but complete: Python finds the pointer of any tensor subclass, or raises what is wrong. */
static int convert_buffer(PyObject *name, const struct program *program, const struct binding *binding,
                          PyObject *value, uint8_t **pointer) {
    PyObject *address = argument_value(name, program, binding, value);
    if (!address) return -1;
    *pointer = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    if (PyErr_Occurred()) return -1;
    if (!*pointer && !binding->empty) {
        PyErr_Format(PyExc_SystemError, "kernel %U: a tensor with elements has no memory", name);
        return -1;
    }
    return 0;
}

static int bind_buffer(PyObject *name, const struct program *program, const struct binding *binding,
                       PyObject *value, char *frame) {
    uint8_t *pointer = NULL;
    if (Py_TYPE(value) == hooks.tensor_type || Py_TYPE(value) == hooks.parameter_type) {
        pointer = hooks.data_ptr(value);
    }
    if (!pointer) {
        if (convert_buffer(name, program, binding, value, &pointer)) return -1;
    }
    if (((uintptr_t)pointer + (uintptr_t)binding->offset) & binding->misaligned) {
        /* Explains, and raises. */
        if (convert_buffer(name, program, binding, value, &pointer)) return -1;
    }
    halide_buffer_t *buffer = (halide_buffer_t *)(frame + binding->slot);
    *buffer = binding->buffer;
    if (buffer->device_interface) {
        buffer->device = (uint64_t)(uintptr_t)pointer + (uint64_t)binding->offset;
    } else {
        buffer->host = pointer ? pointer + binding->offset : nowhere;
    }
    return 0;
}

static int bind_integer(PyObject *name, const struct program *program, const struct binding *binding,
                        PyObject *value, char *frame) {
    int overflow = 0;
    long long number = PyLong_CheckExact(value) ? PyLong_AsLongLongAndOverflow(value, &overflow) : 0;
    _Bool in_range = binding->kind == INT64 || (number >= INT32_MIN && number <= INT32_MAX);
    if (!PyLong_CheckExact(value) || overflow || !in_range) {
        PyObject *converted = argument_value(name, program, binding, value);
        if (!converted) return -1;
        number = PyLong_AsLongLong(converted);
        Py_DECREF(converted);
        if (number == -1 && PyErr_Occurred()) return -1;
    }
    if (binding->kind == INT64) {
        int64_t wide = number;
        memcpy(frame + binding->slot, &wide, sizeof wide);
    } else {
        int32_t narrow = (int32_t)number;
        memcpy(frame + binding->slot, &narrow, sizeof narrow);
    }
    return 0;
}

static void bind_status(const struct stage *stage, const struct binding *binding, char *frame) {
    halide_buffer_t *buffer = (halide_buffer_t *)(frame + binding->slot);
    *buffer = binding->buffer;
    buffer->host = (uint8_t *)frame + stage->status;
    memset(buffer->host, 0, sizeof(int32_t) * (size_t)stage->n_checks);
}

static int bind_stream(PyObject *name, const struct program *program, PyObject *value, char *frame) {
    void *stream = PyLong_CheckExact(value) ? PyLong_AsVoidPtr(value) : NULL;
    if (!PyLong_CheckExact(value)) {
        PyErr_Format(PyExc_TypeError, "kernel %U: the last argument must be the number of a stream", name);
    }
    memcpy(frame + program->stream, &stream, sizeof stream);
    return PyErr_Occurred() ? -1 : 0;
}

/* Every argument of every pipeline is bound before the first one runs: a refused call writes nothing. */
int bind(PyObject *name, const struct program *program, PyObject *const *arguments, Py_ssize_t arity, char *frame) {
    if (program->on_cuda && bind_stream(name, program, arity ? arguments[arity - 1] : Py_None, frame)) return -1;
    const struct binding *end = program->bindings + program->n_bindings;
    for (const struct binding *binding = program->bindings; binding < end; binding++) {
        const struct stage *stage = &program->stages[binding->stage];
        ((void **)(frame + stage->arguments))[binding->index] = frame + binding->slot;
        int failed = 0;
        switch (binding->kind) {
        case BUFFER:
            failed = bind_buffer(name, program, binding, arguments[binding->position], frame);
            break;
        case INT64:
        case INT32:
            failed = bind_integer(name, program, binding, arguments[binding->position], frame);
            break;
        case STATUS:
            bind_status(stage, binding, frame);
            break;
        }
        if (failed) return -1;
    }
    return 0;
}
