/* Launches on a GPU. The host half of a kernel, which Halide writes, computes grid and arguments and calls
 * halide_cuda_run; everything else that Halide's own runtime would do is done by torch: memory, streams, the current
 * device. Nothing here allocates device memory, copies or waits, so a launch may be recorded into a CUDA graph. */
#include "cuda.h"

#include "attempt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* The driver's interface, as cuda.h declares it; the library is looked for when the first kernel is launched. */
typedef int CUresult; /* 0 is success */
typedef void *CUcontext, *CUmodule, *CUfunction, *CUstream;

static struct {
    CUresult (*context)(CUcontext *current);
    CUresult (*load)(CUmodule *module, const void *image, unsigned options, void *names, void *values);
    CUresult (*function)(CUfunction *function, CUmodule module, const char *name);
    CUresult (*launch)(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared,
                       CUstream stream, void **arguments, void **extra);
    CUresult (*describe)(CUresult code, const char **text);
} driver;

/* A kernel in a context: modules belong to one context, of which a process has one for each GPU. */
struct kernel {
    const char *name; /* the caller's pointer, which alone is compared */
    const char *symbol;
    CUcontext context;
    CUfunction function;
    struct kernel *next;
};

struct loaded {
    CUcontext context;
    CUmodule module;
    struct loaded *next;
};

struct cuda_module {
    PyObject_HEAD
    PyObject *image;
    PyObject *names;
    _Atomic(struct kernel *) kernels;
    struct loaded *loaded;
};

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local struct cuda_module *current_module __attribute__((tls_model("initial-exec")));
static _Thread_local CUstream current_stream __attribute__((tls_model("initial-exec")));

static _Thread_local struct together *current_together __attribute__((tls_model("initial-exec")));
static _Thread_local int current_variant __attribute__((tls_model("initial-exec")));

void set_cuda_launch(struct cuda_module *module, void *stream, struct together *together, int variant) {
    current_module = module;
    current_stream = stream;
    current_together = variant < 0 ? NULL : together;
    current_variant = variant;
}

static int cuda_failure(const char *doing, const char *name, CUresult code) {
    char message[MESSAGE_SIZE];
    const char *text = NULL;
    if (driver.describe) driver.describe(code, &text);
    snprintf(message, sizeof message, "CUDA error %d while %s %s: %s", code, doing, name, text ? text : "unknown");
    return fail(HALIDE_ERROR_GENERIC, message);
}

static _Bool find_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_LAZY);
    if (!library) return 0;
    *(void **)&driver.context = dlsym(library, "cuCtxGetCurrent");
    *(void **)&driver.load = dlsym(library, "cuModuleLoadDataEx");
    *(void **)&driver.function = dlsym(library, "cuModuleGetFunction");
    *(void **)&driver.describe = dlsym(library, "cuGetErrorString");
    *(void **)&driver.launch = dlsym(library, "cuLaunchKernel");
    return driver.context && driver.load && driver.function && driver.describe && driver.launch;
}

static struct kernel *known_kernel(struct cuda_module *module, const char *name, CUcontext context) {
    struct kernel *kernel = atomic_load_explicit(&module->kernels, memory_order_acquire);
    while (kernel && (kernel->name != name || kernel->context != context)) kernel = kernel->next;
    return kernel;
}

/* The entry's name in the image: profilers show it, so it has the name that the graph gave the kernel. */
static const char *symbol_of(struct cuda_module *module, const char *name) {
    const char *called = module->names ? PyBytes_AS_STRING(module->names) : "";
    while (*called) {
        const char *symbol = called + strlen(called) + 1;
        if (!strcmp(called, name)) return symbol;
        called = symbol + strlen(symbol) + 1;
    }
    return name;
}

/* With the lock held. */
static CUresult load_kernel(struct cuda_module *module, struct kernel *kernel) {
    struct loaded *loaded = module->loaded;
    while (loaded && loaded->context != kernel->context) loaded = loaded->next;
    if (!loaded) {
        CUmodule handle;
        CUresult code = driver.load(&handle, PyBytes_AS_STRING(module->image), 0, NULL, NULL);
        if (code) return code;
        loaded = PyMem_RawMalloc(sizeof *loaded);
        if (!loaded) return 2; /* CUDA_ERROR_OUT_OF_MEMORY */
        *loaded = (struct loaded){kernel->context, handle, module->loaded};
        module->loaded = loaded;
    }
    return driver.function(&kernel->function, loaded->module, kernel->symbol);
}

static struct kernel *find_kernel(struct cuda_module *module, const char *name) {
    CUcontext context = NULL;
    if (driver.context) driver.context(&context);
    struct kernel *kernel = context ? known_kernel(module, name, context) : NULL;
    if (kernel) return kernel;
    CUresult code = 0;
    pthread_mutex_lock(&loading);
    _Bool ready = driver.launch || find_driver();
    if (ready && !context) driver.context(&context);
    kernel = context ? known_kernel(module, name, context) : NULL;
    if (context && !kernel) {
        kernel = PyMem_RawMalloc(sizeof *kernel);
        if (kernel) {
            const char *symbol = symbol_of(module, name);
            *kernel = (struct kernel){name, symbol, context, NULL, atomic_load(&module->kernels)};
            code = load_kernel(module, kernel);
            if (!code) {
                atomic_store_explicit(&module->kernels, kernel, memory_order_release);
            } else {
                PyMem_RawFree(kernel);
                kernel = NULL;
            }
        }
    }
    pthread_mutex_unlock(&loading);
    if (!ready) fail(HALIDE_ERROR_GENERIC, "there is no CUDA driver (libcuda.so.1) on this machine");
    if (!context) fail(HALIDE_ERROR_GENERIC, "no CUDA device is current on this thread");
    if (!kernel) cuda_failure("loading", symbol_of(module, name), code ? code : 2);
    return kernel;
}

#define MOST_ARGUMENTS 1024 /* 4 KiB of parameters, what a kernel may have, are 512 pointers */

static int launch(struct kernel *kernel, const unsigned blocks[3], const unsigned threads[3],
                  int shared, CUstream stream, void **values) {
    CUresult code = driver.launch(kernel->function, blocks[0], blocks[1], blocks[2], threads[0], threads[1], threads[2],
                                  (unsigned)shared, stream, values, NULL);
    return code ? cuda_failure("launching", kernel->symbol, code) : 0;
}

int launch_together(struct together *together) {
    static const char name[] = "joint";
    struct table *table = &together->table;
    if (!table->count) return 0;
    struct kernel *kernel = find_kernel(together->module, name);
    void *values[] = {table};
    int failed = kernel ? launch(kernel, (unsigned[]){together->blocks, 1, 1},
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
    void *values[MOST_ARGUMENTS];
    /* An empty tensor has no memory, but a masked load reads its place 0 where it uses nothing of it. Let that be the
     * beginning of a piece of memory that another tensor lies in. */
    uint64_t elsewhere = 0;
    for (int k = 0; sizes[k]; k++) {
        if (k == MOST_ARGUMENTS) return fail(HALIDE_ERROR_GENERIC, "a CUDA kernel has too many arguments");
        values[k] = is_buffer[k] ? &((halide_buffer_t *)arguments[k])->device : arguments[k];
        if (is_buffer[k] && *(uint64_t *)values[k]) elsewhere = *(uint64_t *)values[k] & ~(uint64_t)255;
    }
    for (int k = 0; sizes[k]; k++) {
        if (is_buffer[k] && !*(uint64_t *)values[k]) values[k] = &elsewhere;
    }
    if (current_together) {
        return wait_together(current_together, (unsigned)blocks_x, (unsigned)threads_x, sizes, values);
    }
    struct kernel *kernel = find_kernel(current_module, name);
    if (!kernel) return HALIDE_ERROR_GENERIC;
    return launch(kernel, (unsigned[]){(unsigned)blocks_x, (unsigned)blocks_y, (unsigned)blocks_z},
                  (unsigned[]){(unsigned)threads_x, (unsigned)threads_y, (unsigned)threads_z}, shared, current_stream,
                  values);
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
    atomic_init(&self->kernels, NULL);
    return (PyObject *)self;
}

/* What the driver has loaded stays: a CUDA graph may still hold the kernels, and at exit the driver may be gone. */
static void delete_module(PyObject *object) {
    struct cuda_module *self = (struct cuda_module *)object;
    Py_CLEAR(self->image);
    Py_CLEAR(self->names);
    for (struct kernel *kernel = atomic_load(&self->kernels), *next; kernel; kernel = next) {
        next = kernel->next;
        PyMem_RawFree(kernel);
    }
    for (struct loaded *loaded = self->loaded, *next; loaded; loaded = next) {
        next = loaded->next;
        PyMem_RawFree(loaded);
    }
    Py_TYPE(object)->tp_free(object);
}

PyTypeObject cuda_module_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "halide_backend.launch._native.CudaModule",
    .tp_doc = "CudaModule(image, names=b''): kernels for a GPU, machine code or PTX that ends with a zero byte",
    .tp_basicsize = sizeof(struct cuda_module),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = new_module,
    .tp_dealloc = delete_module,
};
