#include "program.h"

#include <string.h>

static long long integer(PyObject *value, long long low, long long high, const char *what) {
    long long number = value ? PyLong_AsLongLong(value) : 0;
    if (!value) {
        PyErr_Format(PyExc_ValueError, "%s is missing", what);
        return -1;
    }
    if (PyErr_Occurred()) return -1;
    if (number < low || number > high) {
        PyErr_Format(PyExc_ValueError, "%s is %lld, outside %lld ... %lld", what, number, low, high);
        return -1;
    }
    return number;
}

static int parse_kind(PyObject *argument) {
    static const char *const kinds[] = {"buffer", "int64", "int32", "status"};
    PyObject *kind = PyDict_Check(argument) ? PyDict_GetItemString(argument, "kind") : NULL;
    if (kind && PyUnicode_Check(kind)) {
        for (int k = 0; k <= STATUS; k++) {
            if (PyUnicode_CompareWithASCIIString(kind, kinds[k]) == 0) return k;
        }
    }
    PyErr_Format(PyExc_ValueError, "an argument has no known kind: %R", argument);
    return -1;
}

static Py_ssize_t count_dims(PyObject *argument) {
    PyObject *dims = PyDict_GetItemString(argument, "dims");
    if (!dims || !PySequence_Check(dims)) {
        PyErr_Format(PyExc_ValueError, "a buffer has no dims: %R", argument);
        return -1;
    }
    return PySequence_Size(dims);
}

static int parse_dim(PyObject *pair, halide_dimension_t *dim) {
    PyObject *fast = PySequence_Fast(pair, "a dim must be a pair (extent, stride)");
    if (!fast) return -1;
    if (PySequence_Fast_GET_SIZE(fast) != 2) {
        PyErr_SetString(PyExc_ValueError, "a dim must be a pair (extent, stride)");
    } else {
        dim->extent = (int32_t)integer(PySequence_Fast_GET_ITEM(fast, 0), 0, INT32_MAX, "an extent");
        if (!PyErr_Occurred()) {
            dim->stride =
                (int32_t)integer(PySequence_Fast_GET_ITEM(fast, 1), INT32_MIN, INT32_MAX, "a stride");
        }
    }
    Py_DECREF(fast);
    return PyErr_Occurred() ? -1 : 0;
}

static int parse_buffer(PyObject *argument, struct binding *binding, halide_dimension_t *dims) {
    binding->buffer = (halide_buffer_t){.lanes = 1, .dim = dims};
    binding->buffer.code =
        (uint8_t)integer(PyDict_GetItemString(argument, "code"), 0, 3, "a buffer's type code");
    if (PyErr_Occurred()) return -1;
    binding->buffer.bits = (uint8_t)integer(PyDict_GetItemString(argument, "bits"), 1, 64, "a buffer's bits");
    if (PyErr_Occurred()) return -1;
    PyObject *offset = PyDict_GetItemString(argument, "offset");
    binding->offset = offset ? integer(offset, INT64_MIN, INT64_MAX, "a buffer's offset") : 0;
    if (PyErr_Occurred()) return -1;
    PyObject *alignment = PyDict_GetItemString(argument, "alignment");
    binding->misaligned = (uintptr_t)(alignment ? integer(alignment, 1, 4096, "a buffer's alignment") : 1) - 1;
    if (PyErr_Occurred()) return -1;
    PyObject *pairs = PyDict_GetItemString(argument, "dims");
    binding->buffer.dimensions = (int32_t)PySequence_Size(pairs);
    for (int32_t k = 0; k < binding->buffer.dimensions; k++) {
        PyObject *pair = PySequence_GetItem(pairs, k);
        if (!pair) return -1;
        int failed = parse_dim(pair, &dims[k]);
        Py_DECREF(pair);
        if (failed) return -1;
        if (dims[k].extent == 0) binding->empty = 1;
    }
    return 0;
}

/* The four parts of one pipeline, as lists or tuples; `code` and whatever follows is only kept. */
struct parts {
    PyObject *whole, *arguments, *positions, *checks;
    struct cuda_module *module; /* borrowed; the seventh part, if there is one */
    int variant;                /* the eighth */
};

static void free_parts(struct parts *parts) {
    Py_CLEAR(parts->whole);
    Py_CLEAR(parts->arguments);
    Py_CLEAR(parts->positions);
    Py_CLEAR(parts->checks);
}

static int take_parts(PyObject *pipelines, int stage, struct parts *parts) {
    static const char *const form = "a pipeline must be (address, arguments, positions, checks, ...)";
    memset(parts, 0, sizeof *parts);
    parts->whole = PySequence_Fast(PySequence_Fast_GET_ITEM(pipelines, stage), form);
    if (!parts->whole) return -1;
    if (PySequence_Fast_GET_SIZE(parts->whole) < 4) {
        PyErr_SetString(PyExc_ValueError, form);
        return -1;
    }
    PyObject **items = PySequence_Fast_ITEMS(parts->whole);
    if (PySequence_Fast_GET_SIZE(parts->whole) > 6 && items[6] != Py_None) {
        if (!PyObject_TypeCheck(items[6], &cuda_module_type)) {
            PyErr_SetString(PyExc_TypeError, "a pipeline's module must be a CudaModule");
            return -1;
        }
        parts->module = (struct cuda_module *)items[6];
    }
    parts->variant = -1;
    if (parts->module && PySequence_Fast_GET_SIZE(parts->whole) > 7) {
        parts->variant = (int)integer(items[7], -1, UINT16_MAX, "a variant");
        if (PyErr_Occurred()) return -1;
    }
    if (!(parts->arguments = PySequence_Fast(items[1], "a pipeline's arguments must be a sequence")) ||
        !(parts->positions = PySequence_Fast(items[2], "a pipeline's positions must be a sequence")) ||
        !(parts->checks = PySequence_Fast(items[3], "a pipeline's checks must be a sequence"))) {
        return -1;
    }
    return 0;
}

/* First pass: how many bindings and dims there are, so that each array is allocated once. */
static int measure(PyObject *pipelines, int *n_bindings, int *n_dims) {
    for (int s = 0; s < (int)PySequence_Fast_GET_SIZE(pipelines); s++) {
        struct parts parts;
        Py_ssize_t needed = 0;
        int failed = take_parts(pipelines, s, &parts);
        for (Py_ssize_t i = 0; !failed && i < PySequence_Fast_GET_SIZE(parts.arguments); i++) {
            PyObject *argument = PySequence_Fast_GET_ITEM(parts.arguments, i);
            int kind = parse_kind(argument);
            Py_ssize_t dims = kind == BUFFER ? count_dims(argument) : 1;
            failed = kind < 0 || dims < 0;
            needed += kind != STATUS;
            *n_dims += (int)dims;
            *n_bindings += 1;
        }
        if (!failed && needed != PySequence_Fast_GET_SIZE(parts.positions)) {
            PyErr_Format(PyExc_ValueError, "%zd positions for %zd arguments",
                         PySequence_Fast_GET_SIZE(parts.positions), needed);
            failed = 1;
        }
        free_parts(&parts);
        if (failed) return -1;
    }
    return 0;
}

static uint32_t reserve(struct program *program, size_t bytes) {
    uint32_t at = program->frame_size;
    program->frame_size += (uint32_t)((bytes + 7) & ~(size_t)7);
    return at;
}

static int fill_binding(struct program *program, struct stage *stage, struct binding *binding,
                        PyObject *argument, halide_dimension_t **dims) {
    switch (binding->kind) {
    case BUFFER:
        if (parse_buffer(argument, binding, *dims)) return -1;
        if (stage->module) binding->buffer.device_interface = halide_cuda_device_interface();
        *dims += binding->buffer.dimensions;
        break;
    case STATUS:
        **dims = (halide_dimension_t){0, stage->n_checks, 1, 0};
        binding->buffer = (halide_buffer_t){.code = 0, .bits = 32, .lanes = 1, .dimensions = 1, .dim = *dims};
        *dims += 1;
        break;
    default:
        *dims += 1;
        break;
    }
    int is_number = binding->kind != BUFFER && binding->kind != STATUS;
    binding->slot = reserve(program, is_number ? 8 : sizeof(halide_buffer_t));
    return 0;
}

static int fill_stage(struct program *program, int s, struct parts *parts, Py_ssize_t arity,
                      struct binding **next, halide_dimension_t **dims) {
    struct stage *stage = &program->stages[s];
    int n_arguments = (int)PySequence_Fast_GET_SIZE(parts->arguments);
    void *address = PyLong_AsVoidPtr(PySequence_Fast_GET_ITEM(parts->whole, 0));
    if (PyErr_Occurred()) return -1;
    if (!address) {
        PyErr_SetString(PyExc_ValueError, "a pipeline's address is 0");
        return -1;
    }
    *(void **)&stage->function = address;
    stage->n_checks = (int)PySequence_Fast_GET_SIZE(parts->checks);
    stage->module = parts->module;
    stage->variant = parts->variant;
    program->on_cuda |= parts->module != NULL;
    stage->arguments = reserve(program, sizeof(void *) * (size_t)n_arguments);
    stage->status = reserve(program, sizeof(int32_t) * (size_t)stage->n_checks);
    Py_ssize_t taken = 0;
    for (int i = 0; i < n_arguments; i++) {
        PyObject *argument = PySequence_Fast_GET_ITEM(parts->arguments, i);
        struct binding *binding = (*next)++;
        binding->kind = (enum argument_kind)parse_kind(argument);
        binding->stage = s;
        binding->index = i;
        if (binding->kind != STATUS) {
            binding->position = (int)integer(PySequence_Fast_GET_ITEM(parts->positions, taken++), 0,
                                             arity - 1, "a position");
            if (PyErr_Occurred()) return -1;
        }
        if (fill_binding(program, stage, binding, argument, dims)) return -1;
    }
    return 0;
}

/* Says which kernel the exception at hand is about. */
static void name_kernel(PyObject *name) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_Format(type, "kernel %U: %S", name, value ? value : Py_None);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

static int fill_program(struct program *program, PyObject *pipelines, Py_ssize_t arity) {
    int n_dims = 0;
    if (PySequence_Fast_GET_SIZE(pipelines) == 0) {
        PyErr_SetString(PyExc_ValueError, "there is no pipeline");
        return -1;
    }
    if (measure(pipelines, &program->n_bindings, &n_dims)) return -1;
    program->n_stages = (int)PySequence_Fast_GET_SIZE(pipelines);
    program->bindings = PyMem_Calloc((size_t)program->n_bindings + 1, sizeof *program->bindings);
    program->stages = PyMem_Calloc((size_t)program->n_stages, sizeof *program->stages);
    program->dims = PyMem_Calloc((size_t)n_dims + 1, sizeof *program->dims);
    if (!program->bindings || !program->stages || !program->dims) {
        PyErr_NoMemory();
        return -1;
    }
    struct binding *next = program->bindings;
    halide_dimension_t *dims = program->dims;
    program->stream = reserve(program, sizeof(void *));
    for (int s = 0; s < program->n_stages; s++) {
        struct parts parts;
        int failed = take_parts(pipelines, s, &parts) ||
                     fill_stage(program, s, &parts, arity, &next, &dims);
        free_parts(&parts);
        if (failed) return -1;
    }
    return 0;
}

struct program *parse_program(PyObject *name, PyObject *pipelines, Py_ssize_t arity, int release_gil) {
    PyObject *fast = PySequence_Tuple(pipelines);
    struct program *program = fast ? PyMem_Calloc(1, sizeof *program) : NULL;
    if (fast && !program) PyErr_NoMemory();
    if (program) {
        program->pipelines = Py_NewRef(fast);
        program->release_gil = release_gil;
        if (fill_program(program, fast, arity)) {
            free_program(program);
            program = NULL;
        }
    }
    Py_XDECREF(fast);
    if (!program) name_kernel(name);
    return program;
}

void free_program(struct program *program) {
    if (!program) return;
    Py_CLEAR(program->pipelines);
    PyMem_Free(program->bindings);
    PyMem_Free(program->stages);
    PyMem_Free(program->dims);
    PyMem_Free(program);
}
