/* Launches on a GPU, for the launcher and for the C functions of pipelines. The host half of a kernel, which Halide
 * writes, computes grid and arguments and calls halide_cuda_run; everything else that Halide's own runtime would do is
 * done by torch: memory, streams, the current device. */
#include "cuda.h"

#include "attempt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_module.inc"

struct cuda_module {
    PyObject_HEAD
    PyObject *image;
    PyObject *names;
    struct gpu_module module;
};

static _Thread_local struct gpu_module *current_module __attribute__((tls_model("initial-exec")));
static _Thread_local void *current_stream __attribute__((tls_model("initial-exec")));

static _Thread_local struct together *current_together __attribute__((tls_model("initial-exec")));
static _Thread_local int current_variant __attribute__((tls_model("initial-exec")));

void set_cuda_launch(struct cuda_module *module, void *stream, struct together *together, int variant) {
    current_module = &module->module;
    current_stream = stream;
    current_together = variant < 0 ? NULL : together;
    current_variant = variant;
}

int32_t halide_backend_launch(int32_t (*body)(void *closure), void *closure, const struct gpu_launch *launch,
                              char *message) {
    current_module = launch->module;
    current_stream = launch->stream;
    current_together = NULL;
    return halide_backend_run(body, closure, message);
}

int launch_together(struct together *together) {
    static const char name[] = "joint";
    struct table *table = &together->table;
    if (!table->count) return 0;
    struct gpu_kernel *kernel = gpu_find_kernel(together->module, name);
    void *values[] = {table};
    int failed = kernel ? gpu_launch_kernel(kernel, (unsigned[]){together->blocks, 1, 1},
                                            (unsigned[]){together->threads, 1, 1}, 0, together->stream, values)
                        : HALIDE_ERROR_GENERIC;
    table->count = 0;
    return failed;
}

/* Whether the arguments of one more launch have room in the table. */
static _Bool add_entry(struct together *together, const size_t sizes[], void *values[]) {
    struct table *table = &together->table;
    size_t begin = (together->used + 7) & ~(size_t)7, end = begin;
    if (table->count == TABLE_ENTRIES) return 0;
    for (int k = 0; sizes[k]; k++) {
        end = (end + sizes[k] - 1) / sizes[k] * sizes[k];
        if (end + sizes[k] > sizeof table->arguments) return 0;
        memcpy(table->arguments + end, values[k], sizes[k]);
        end += sizes[k];
    }
    table->begins[table->count] = together->blocks;
    table->places[table->count] = (uint32_t)current_variant << 16 | (uint32_t)(offsetof(struct table, arguments) + begin);
    table->count++;
    together->used = end;
    return 1;
}

static int wait_together(struct together *together, unsigned blocks, unsigned threads, const size_t sizes[],
                         void *values[]) {
    if (together->table.count && (together->module != current_module || together->blocks > INT32_MAX - blocks)) {
        int failed = launch_together(together);
        if (failed) return failed;
    }
    for (int again = 0; again < 2; again++) {
        if (!together->table.count) {
            together->module = current_module;
            together->stream = current_stream;
            together->blocks = together->threads = 0;
            together->used = 0;
        }
        if (add_entry(together, sizes, values)) {
            together->blocks += blocks;
            if (threads > together->threads) together->threads = threads;
            return 0;
        }
        int failed = launch_together(together);
        if (failed) return failed;
    }
    return fail(HALIDE_ERROR_GENERIC, "a CUDA kernel has too many arguments to be launched with others");
}

static int halide_cuda_run(void *user_context, void *state, const char *name, int blocks_x, int blocks_y, int blocks_z,
                           int threads_x, int threads_y, int threads_z, int shared, size_t sizes[], void *arguments[],
                           int8_t is_buffer[]) {
    (void)user_context;
    (void)state;
    if (!blocks_x || !blocks_y || !blocks_z) return 0; /* a dynamic size is 0; the driver refuses such a launch */
    void *values[GPU_MOST_ARGUMENTS];
    uint64_t elsewhere;
    int failed = gpu_take_arguments(sizes, arguments, is_buffer, values, &elsewhere);
    if (failed) return failed;
    if (current_together) {
        return wait_together(current_together, (unsigned)blocks_x, (unsigned)threads_x, sizes, values);
    }
    struct gpu_kernel *kernel = gpu_find_kernel(current_module, name);
    if (!kernel) return HALIDE_ERROR_GENERIC;
    return gpu_launch_kernel(kernel, (unsigned[]){(unsigned)blocks_x, (unsigned)blocks_y, (unsigned)blocks_z},
                             (unsigned[]){(unsigned)threads_x, (unsigned)threads_y, (unsigned)threads_z}, shared,
                             current_stream, values);
}

static const int64_t interface[64];
const void *halide_cuda_device_interface(void) { return interface; }

/* The kernels are loaded by their module, from what the assembler made of this PTX. */
static int halide_cuda_initialize_kernels(void *user_context, void **state, const char *ptx, int size) {
    (void)user_context;
    (void)ptx;
    (void)size;
    *state = current_module;
    return 0;
}

static void halide_cuda_finalize_kernels(void *user_context, void *state) {
    (void)user_context;
    (void)state;
}

/* All tensors are on the device already. */
static int halide_copy_to_device(void *user_context, void *buffer, const void *device) {
    (void)user_context;
    (void)buffer;
    (void)device;
    return 0;
}

const struct symbol cuda_symbols[] = {
    {"halide_cuda_run", (void *)halide_cuda_run},
    {"halide_cuda_device_interface", (void *)halide_cuda_device_interface},
    {"halide_cuda_initialize_kernels", (void *)halide_cuda_initialize_kernels},
    {"halide_cuda_finalize_kernels", (void *)halide_cuda_finalize_kernels},
    {"halide_copy_to_device", (void *)halide_copy_to_device},
    {"halide_backend_launch", (void *)halide_backend_launch},
    {NULL, NULL},
};

static PyObject *new_module(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    static char *keys[] = {"image", "names", NULL};
    PyObject *image, *names = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "S|S:CudaModule", keys, &image, &names)) return NULL;
    struct cuda_module *self = (struct cuda_module *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->image = Py_NewRef(image);
    self->names = Py_XNewRef(names);
    self->module.image = PyBytes_AS_STRING(image);
    self->module.names = names ? PyBytes_AS_STRING(names) : "";
    return (PyObject *)self;
}

/* What the driver has loaded stays: a CUDA graph may still hold the kernels, and at exit the driver may be gone. */
static void delete_module(PyObject *object) {
    struct cuda_module *self = (struct cuda_module *)object;
    Py_CLEAR(self->image);
    Py_CLEAR(self->names);
    gpu_clear(&self->module, 0);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *get_address(PyObject *object, void *closure) {
    (void)closure;
    return PyLong_FromVoidPtr(&((struct cuda_module *)object)->module);
}

static PyGetSetDef properties[] = {
    {"address", get_address, NULL, "Where it is, for the `module` of a struct gpu_launch.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject cuda_module_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "halide_backend.launch._native.CudaModule",
    .tp_doc = "CudaModule(image, names=b''): kernels for a GPU, machine code or PTX that ends with a zero byte",
    .tp_basicsize = sizeof(struct cuda_module),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = new_module,
    .tp_dealloc = delete_module,
    .tp_getset = properties,
};
