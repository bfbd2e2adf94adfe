#include "profiler.h"

#define FLAG "_is_profiler_enabled"

_Bool profiler_flag;

#if PY_VERSION_HEX < 0x030C0000

PyDictObject *profiler_flags;
uint64_t profiler_version;

void read_profiler_flag(void) {
    PyObject *value = PyDict_GetItemString((PyObject *)profiler_flags, FLAG);
    profiler_flag = value == Py_True;
    profiler_version = profiler_flags->ma_version_tag;
}

int follow_profiler(PyObject *flags) {
    PyDictObject *old = profiler_flags;
    profiler_flags = (PyDictObject *)Py_NewRef(flags);
    Py_XDECREF(old);
    read_profiler_flag();
    return PyDict_GetItemString(flags, FLAG) != NULL;
}

#else

static PyObject *followed; /* the dict; compared, never used, by the callback */

static int on_change(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *value) {
    if (dict != followed) return 0;
    if (event == PyDict_EVENT_ADDED || event == PyDict_EVENT_MODIFIED) {
        if (PyUnicode_Check(key) && PyUnicode_CompareWithASCIIString(key, FLAG) == 0) {
            profiler_flag = value == Py_True;
        }
    } else if (event == PyDict_EVENT_CLEARED || event == PyDict_EVENT_DEALLOCATED) {
        profiler_flag = 0;
    }
    return 0;
}

int follow_profiler(PyObject *flags) {
    static int watcher = -1;
    if (watcher < 0) watcher = PyDict_AddWatcher(on_change);
    if (watcher < 0 || PyDict_Watch(watcher, flags)) return -1;
    if (followed && followed != flags && PyDict_Unwatch(watcher, followed)) return -1;
    PyObject *old = followed;
    followed = Py_NewRef(flags);
    Py_XDECREF(old);
    PyObject *value = PyDict_GetItemString(flags, FLAG);
    profiler_flag = value == Py_True;
    return value != NULL;
}

#endif
