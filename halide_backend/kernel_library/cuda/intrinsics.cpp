/* halide_backend.kernel_library.cuda._intrinsics: calls of LLVM intrinsics and libdevice functions as Halide expressions.
 *
 * Halide's Python bindings lack Halide::Internal::Call::make. An Expr is a counted pointer to an immutable node, so
 * this module overwrites a fresh Expr of theirs; pybind11's conduit, which checks that both sides were built for the
 * same C++ ABI, hands out its address. */
#include <Python.h>

#include <Halide.h>
#include <pybind11/conduit/pybind11_conduit_v1.h>

namespace {

/* NULL with a Python exception where `object` is no Expr of the same ABI. */
Halide::Expr *expression(PyObject *object) {
    Halide::Expr *found = nullptr;
    try {
        found = pybind11_conduit_v1::get_type_pointer_ephemeral<Halide::Expr>(object);
    } catch (const std::exception &error) {
        PyErr_SetString(PyExc_TypeError, error.what());
    }
    if (!found && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_TypeError, "not a halide.Expr, or one of another C++ ABI");
    }
    return found;
}

/* call(into, like, name, arguments, pure): `into` becomes name(*arguments), of the type of `like`; Halide neither moves
 * a call that is not pure, nor what has one as an operand. */
PyObject *call(PyObject *, PyObject *positional) {
    PyObject *into, *like, *arguments;
    const char *name;
    int pure;
    if (!PyArg_ParseTuple(positional, "OOsO!p:call", &into, &like, &name, &PyTuple_Type, &arguments, &pure)) return nullptr;
    Halide::Expr *result = expression(into), *model = result ? expression(like) : nullptr;
    if (!model) return nullptr;
    std::vector<Halide::Expr> operands;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(arguments); k++) {
        Halide::Expr *operand = expression(PyTuple_GET_ITEM(arguments, k));
        if (!operand) return nullptr;
        operands.push_back(*operand);
    }
    try {
        using Halide::Internal::Call;
        *result = Call::make(model->type(), name, operands, pure ? Call::PureExtern : Call::Extern);
    } catch (const std::exception &error) {
        PyErr_SetString(PyExc_ValueError, error.what());
        return nullptr;
    }
    Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"call", call, METH_VARARGS, "call(into, like, name, arguments, pure): see intrinsics.py."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_intrinsics", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__intrinsics() { return PyModule_Create(&definition); }
