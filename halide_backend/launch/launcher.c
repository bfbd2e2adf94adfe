/* Launcher: a compiled kernel as a Python callable. */
#include "launcher.h"

#include "attempt.h"
#include "parallel.h"
#include "profiler.h"

#include <stdatomic.h>
#include <string.h>
#include <structmember.h>

struct hooks hooks;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    _Atomic(struct program *) program; /* NULL while pending; set once */
    PyObject *name, *resolve;
    Py_ssize_t arity;
    PyThread_type_lock lock; /* held while resolve() runs */
    unsigned lock_fork;      /* fork_count when the lock was made: a lock does not survive a fork */
    unsigned long resolver;  /* the thread that holds it, or 0 */
} Launcher;

#define STACK_FRAME 2048 /* bytes; a call that needs more takes them from the heap */

/* What went wrong in a run: `check` is the number of a failed check, or -1 with Halide's error code. */
struct outcome {
    int stage, code, check;
    struct attempt attempt;
};

static int failed_check(const struct stage *stage, const char *frame) {
    const int32_t *status = (const int32_t *)(frame + stage->status);
    for (int k = 0; k < stage->n_checks; k++) {
        if (status[k]) return k;
    }
    return -1;
}

/* Returns whether something failed. Needs no GIL. */
static __attribute__((noinline)) _Bool run(const struct program *program, char *frame,
                                           struct outcome *outcome) {
    struct together together;
    together.table.count = 0;
    begin_attempt(&outcome->attempt);
    outcome->code = 0;
    outcome->check = -1;
    int failed = setjmp(outcome->attempt.failed);
    if (failed) {
        outcome->code = failed;
    } else {
        for (outcome->stage = 0; outcome->stage < program->n_stages; outcome->stage++) {
            const struct stage *stage = &program->stages[outcome->stage];
            if (stage->module) {
                set_cuda_launch(stage->module, *(void **)(frame + program->stream), &together, stage->variant);
            }
            outcome->code = stage->function((void **)(frame + stage->arguments));
            if (outcome->code) break;
            if (stage->n_checks) outcome->check = failed_check(stage, frame);
            if (outcome->check >= 0) break;
        }
        if (!outcome->code && together.table.count) {
            outcome->stage = program->n_stages - 1;
            outcome->code = launch_together(&together);
        }
    }
    end_attempt(&outcome->attempt);
    return outcome->code != 0 || outcome->check >= 0;
}

static _Bool run_program(const struct program *program, char *frame, struct outcome *outcome) {
    if (!program->release_gil) return run(program, frame, outcome);
    _Bool failed;
    Py_BEGIN_ALLOW_THREADS
    failed = run(program, frame, outcome);
    Py_END_ALLOW_THREADS
    return failed;
}

static PyObject *raise_failure(Launcher *self, const struct program *program, struct outcome *outcome) {
    PyObject *pipeline = PyTuple_GET_ITEM(program->pipelines, outcome->stage);
    const char *text = outcome->attempt.message;
    PyObject *message = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    if (!message) return NULL;
    PyObject *result = PyObject_CallFunction(hooks.on_failure, "OOiiN", self->name, pipeline,
                                             outcome->code, outcome->check, message);
    if (result) {
        Py_DECREF(result);
        PyErr_Format(PyExc_SystemError, "kernel %U failed and on_failure raised nothing", self->name);
    }
    return NULL;
}

static PyObject *run_named(Launcher *self, const struct program *program, char *frame) {
    struct outcome outcome;
    PyObject *range = PyObject_CallFunctionObjArgs(hooks.profiler_range, self->name, NULL);
    PyObject *entered = range ? PyObject_CallMethod(range, "__enter__", NULL) : NULL;
    PyObject *left = NULL;
    if (entered) {
        _Bool failed = run_program(program, frame, &outcome);
        left = PyObject_CallMethod(range, "__exit__", "OOO", Py_None, Py_None, Py_None);
        if (left && failed) {
            Py_CLEAR(left);
            raise_failure(self, program, &outcome);
        }
    }
    Py_XDECREF(range);
    Py_XDECREF(entered);
    if (!left) return NULL;
    Py_DECREF(left);
    Py_RETURN_NONE;
}

static PyObject *run_bound(Launcher *self, const struct program *program, char *frame) {
    struct outcome outcome;
    if (profiler_is_on()) return run_named(self, program, frame);
    if (run_program(program, frame, &outcome)) return raise_failure(self, program, &outcome);
    Py_RETURN_NONE;
}

static inline _Bool fits(const Launcher *self, size_t nargsf, PyObject *keywords) {
    return PyVectorcall_NARGS(nargsf) == self->arity && (!keywords || PyTuple_GET_SIZE(keywords) == 0);
}

static PyObject *refuse_call(Launcher *self, size_t nargsf, PyObject *keywords) {
    PyObject *result = PyObject_CallFunction(hooks.wrong_call, "OnnO", self->name, self->arity,
                                             PyVectorcall_NARGS(nargsf), keywords ? keywords : Py_None);
    if (result) PyErr_Format(PyExc_SystemError, "kernel %U: wrong_call raised nothing", self->name);
    Py_XDECREF(result);
    return NULL;
}

static PyObject *call(PyObject *callable, PyObject *const *arguments, size_t nargsf, PyObject *keywords) {
    Launcher *self = (Launcher *)callable;
    if (!fits(self, nargsf, keywords)) return refuse_call(self, nargsf, keywords);
    const struct program *program = atomic_load_explicit(&self->program, memory_order_acquire);
    _Alignas(16) char stack[STACK_FRAME];
    if (program->frame_size <= STACK_FRAME) {
        if (bind(self->name, program, arguments, self->arity, stack)) return NULL;
        return run_bound(self, program, stack);
    }
    char *heap = PyMem_RawMalloc(program->frame_size);
    if (!heap) return PyErr_NoMemory();
    PyObject *result = bind(self->name, program, arguments, self->arity, heap) ? NULL : run_bound(self, program, heap);
    PyMem_RawFree(heap);
    return result;
}

/* resolve() must return (pipelines, release_gil). Leaves the launcher pending where it fails. */
static int resolve(Launcher *self) {
    if (!self->resolve) {
        PyErr_Format(PyExc_RuntimeError, "kernel %U: called while it is being destroyed", self->name);
        return -1;
    }
    PyObject *answer = PyObject_CallNoArgs(self->resolve);
    if (!answer) return -1;
    PyObject *pipelines;
    int release_gil;
    struct program *program = NULL;
    if (!PyTuple_Check(answer)) {
        PyErr_Format(PyExc_TypeError, "kernel %U: resolve() must return (pipelines, release_gil)", self->name);
    } else if (PyArg_ParseTuple(answer, "Op", &pipelines, &release_gil)) {
        program = parse_program(self->name, pipelines, self->arity, release_gil);
    }
    Py_DECREF(answer);
    if (!program) return -1;
    atomic_store_explicit(&self->program, program, memory_order_release);
    Py_CLEAR(self->resolve);
    return 0;
}

static int lock(Launcher *self) {
    if (!self->lock || self->lock_fork != fork_count) {
        self->lock = PyThread_allocate_lock();
        self->lock_fork = fork_count;
        self->resolver = 0;
    }
    if (!self->lock) {
        PyErr_NoMemory();
        return -1;
    }
    if (self->resolver == PyThread_get_thread_ident()) {
        PyErr_Format(PyExc_RuntimeError, "kernel %U was called by its own resolve()", self->name);
        return -1;
    }
    if (!PyThread_acquire_lock(self->lock, NOWAIT_LOCK)) {
        Py_BEGIN_ALLOW_THREADS
        PyThread_acquire_lock(self->lock, WAIT_LOCK);
        Py_END_ALLOW_THREADS
    }
    self->resolver = PyThread_get_thread_ident();
    return 0;
}

static void unlock(Launcher *self) {
    self->resolver = 0;
    PyThread_release_lock(self->lock);
}

/* Resolves a pending launcher, lets Python check the arguments once, and then steps out of the way. */
static PyObject *first_call(PyObject *callable, PyObject *const *arguments, size_t nargsf,
                            PyObject *keywords) {
    Launcher *self = (Launcher *)callable;
    if (!fits(self, nargsf, keywords)) return refuse_call(self, nargsf, keywords);
    if (!atomic_load_explicit(&self->program, memory_order_acquire)) {
        if (lock(self)) return NULL;
        int failed = atomic_load(&self->program) == NULL && resolve(self);
        unlock(self);
        if (failed) return NULL;
    }
    PyObject *values = PyTuple_New(self->arity);
    if (!values) return NULL;
    for (Py_ssize_t i = 0; i < self->arity; i++) PyTuple_SET_ITEM(values, i, Py_NewRef(arguments[i]));
    PyObject *checked = PyObject_CallFunctionObjArgs(hooks.check_call, self->name,
                                                     atomic_load(&self->program)->pipelines, values, NULL);
    Py_DECREF(values);
    if (!checked) return NULL;
    Py_DECREF(checked);
    self->vectorcall = call;
    return call(callable, arguments, nargsf, keywords);
}

static PyObject *new_launcher(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    static char *names[] = {"name", "pipelines", "arity", "release_gil", "resolve", NULL};
    PyObject *name, *pipelines, *resolve = Py_None;
    Py_ssize_t arity;
    int release_gil = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "UOn|pO:Launcher", names, &name, &pipelines,
                                     &arity, &release_gil, &resolve)) {
        return NULL;
    }
    if (!hooks.convert) {
        PyErr_SetString(PyExc_RuntimeError, "configure() was not called");
        return NULL;
    }
    if ((pipelines == Py_None) == (resolve == Py_None) || arity < 0) {
        PyErr_Format(PyExc_ValueError,
                     "kernel %U: give either pipelines or resolve, and an arity >= 0", name);
        return NULL;
    }
    struct program *program = NULL;
    if (pipelines != Py_None) {
        program = parse_program(name, pipelines, arity, release_gil);
        if (!program) return NULL;
    }
    Launcher *self = (Launcher *)type->tp_alloc(type, 0);
    if (!self) {
        free_program(program);
        return NULL;
    }
    self->vectorcall = first_call;
    atomic_init(&self->program, program);
    self->name = Py_NewRef(name);
    self->resolve = resolve == Py_None ? NULL : Py_NewRef(resolve);
    self->arity = arity;
    return (PyObject *)self;
}

static int traverse(PyObject *object, visitproc visit, void *arg) {
    Launcher *self = (Launcher *)object;
    struct program *program = atomic_load(&self->program);
    Py_VISIT(self->resolve);
    if (program) Py_VISIT(program->pipelines);
    return 0;
}

static int clear(PyObject *object) {
    Launcher *self = (Launcher *)object;
    Py_CLEAR(self->resolve);
    return 0;
}

static void dealloc(PyObject *object) {
    Launcher *self = (Launcher *)object;
    PyObject_GC_UnTrack(object);
    free_program(atomic_load(&self->program));
    Py_CLEAR(self->resolve);
    Py_CLEAR(self->name);
    if (self->lock && self->lock_fork == fork_count) PyThread_free_lock(self->lock);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *represent(PyObject *object) {
    Launcher *self = (Launcher *)object;
    const char *state = atomic_load(&self->program) ? "" : ", pending";
    return PyUnicode_FromFormat("<Launcher %U of %zd arguments%s>", self->name, self->arity, state);
}

static PyObject *get_pending(PyObject *object, void *closure) {
    (void)closure;
    return PyBool_FromLong(atomic_load(&((Launcher *)object)->program) == NULL);
}

static PyObject *get_release_gil(PyObject *object, void *closure) {
    (void)closure;
    struct program *program = atomic_load(&((Launcher *)object)->program);
    return PyBool_FromLong(program && program->release_gil);
}

static PyGetSetDef properties[] = {
    {"pending", get_pending, NULL, "Whether resolve() has yet to succeed.", NULL},
    {"release_gil", get_release_gil, NULL, "Whether other Python threads run during a call.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef members[] = {
    {"__name__", T_OBJECT_EX, offsetof(Launcher, name), READONLY, "Name of the kernel."},
    {"arity", T_PYSSIZET, offsetof(Launcher, arity), READONLY, "Number of Python arguments."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject launcher_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "halide_backend.launch._native.Launcher",
    .tp_doc = "Launcher(name, pipelines, arity, release_gil=False, resolve=None)",
    .tp_basicsize = sizeof(Launcher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC,
    .tp_new = new_launcher,
    .tp_dealloc = dealloc,
    .tp_traverse = traverse,
    .tp_clear = clear,
    .tp_repr = represent,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Launcher, vectorcall),
    .tp_members = members,
    .tp_getset = properties,
};
