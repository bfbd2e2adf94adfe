/* halide_backend.launch._native: the launcher, and the Halide runtime that all kernels share. */
#include "attempt.h"
#include "huge_pages.h"
#include "launcher.h"
#include "memory.h"
#include "parallel.h"
#include "profiler.h"

#define ABI 2 /* raise it when a compiled kernel of an older version could no longer run */

static const struct symbol runtime_symbols[] = {
    {"halide_do_par_for", (void *)halide_do_par_for},
    {"halide_malloc", (void *)halide_malloc},
    {"halide_free", (void *)halide_free},
    {"halide_error", (void *)halide_error},
    {"halide_backend_run", (void *)halide_backend_run},
    {"halide_mutex_array_create", (void *)halide_mutex_array_create},
    {"halide_mutex_array_destroy", (void *)halide_mutex_array_destroy},
    {"halide_mutex_array_lock", (void *)halide_mutex_array_lock},
    {"halide_mutex_array_unlock", (void *)halide_mutex_array_unlock},
    {NULL, NULL},
};

static int add_symbols(PyObject *table, const struct symbol *symbol) {
    for (; symbol->name; symbol++) {
        PyObject *address = PyLong_FromVoidPtr(symbol->address);
        int failed = !address || PyDict_SetItemString(table, symbol->name, address);
        Py_XDECREF(address);
        if (failed) return -1;
    }
    return 0;
}

static PyObject *symbols(PyObject *module, PyObject *ignored) {
    (void)module;
    (void)ignored;
    PyObject *table = PyDict_New();
    if (table && (add_symbols(table, runtime_symbols) || add_symbols(table, cuda_symbols))) Py_CLEAR(table);
    return table;
}

static PyObject *huge_pages(PyObject *module, PyObject *arguments) {
    (void)module;
    unsigned long long address;
    Py_ssize_t bytes;
    if (!PyArg_ParseTuple(arguments, "Kn:huge_pages", &address, &bytes)) return NULL;
    ask_for_huge_pages((void *)(uintptr_t)address, (size_t)bytes);
    Py_RETURN_NONE;
}

static void hold(PyObject **hook, PyObject *value) {
    PyObject *old = *hook;
    *hook = Py_NewRef(value);
    Py_XDECREF(old);
}

static PyObject *configure(PyObject *module, PyObject *arguments, PyObject *keywords) {
    (void)module;
    static char *names[] = {"tensor_type", "parameter_type", "data_ptr", "convert", "check_call",
                            "wrong_call", "on_failure", "profiler_flags", "profiler_range", NULL};
    PyObject *tensor, *parameter, *address, *convert, *check_call, *wrong_call, *on_failure;
    PyObject *flags, *range;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "$O!O!OOOOOO!O:configure", names, &PyType_Type,
                                     &tensor, &PyType_Type, &parameter, &address, &convert, &check_call,
                                     &wrong_call, &on_failure, &PyDict_Type, &flags, &range)) {
        return NULL;
    }
    void *data_ptr = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred()) return NULL;
    if (!data_ptr) {
        PyErr_SetString(PyExc_ValueError, "data_ptr is 0");
        return NULL;
    }
    int profiler = follow_profiler(flags);
    if (profiler < 0) return NULL;
    *(void **)&hooks.data_ptr = data_ptr;
    hold((PyObject **)&hooks.tensor_type, tensor);
    hold((PyObject **)&hooks.parameter_type, parameter);
    hold(&hooks.check_call, check_call);
    hold(&hooks.wrong_call, wrong_call);
    hold(&hooks.on_failure, on_failure);
    hold(&hooks.profiler_range, range);
    hold(&hooks.convert, convert);
    connect_torch();
    return Py_BuildValue("{s:s,s:O,s:O}", "openmp", openmp_path(), "torch_threads",
                         threads_follow_torch() ? Py_True : Py_False, "profiler",
                         profiler ? Py_True : Py_False);
}

static PyMethodDef functions[] = {
    {"symbols", symbols, METH_NOARGS, "Addresses of the runtime functions that kernels may call."},
    {"huge_pages", huge_pages, METH_VARARGS, "Ask for huge pages for a block of memory."},
    {"configure", (PyCFunction)(void (*)(void))configure, METH_VARARGS | METH_KEYWORDS,
     "Connect the launcher to torch; see launcher.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "halide_backend.launch._native",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__native(void) {
    if (start_memory() || start_parallel()) return PyErr_NoMemory();
    if (PyType_Ready(&launcher_type) || PyType_Ready(&cuda_module_type)) return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
#ifdef Py_GIL_DISABLED
    PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
    PyObject *table = Py_BuildValue("(ii)", TABLE_BYTES, TABLE_ENTRIES);
    if (!table || PyModule_AddIntConstant(module, "ABI", ABI) || PyModule_AddObjectRef(module, "TABLE", table) ||
        PyModule_AddObjectRef(module, "Launcher", (PyObject *)&launcher_type) ||
        PyModule_AddObjectRef(module, "CudaModule", (PyObject *)&cuda_module_type)) {
        Py_CLEAR(module);
    }
    Py_XDECREF(table);
    return module;
}
