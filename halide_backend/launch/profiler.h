/* Whether torch's profiler runs: the flag `torch.autograd.profiler._is_profiler_enabled`, which
 * Inductor consults too. Reading it by a dict look-up costs 7 ns a launch and asking
 * at::hasCallbacks 17 ns, so a copy is kept that follows the module's dict. */
#ifndef HALIDE_BACKEND_PROFILER_H
#define HALIDE_BACKEND_PROFILER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern _Bool profiler_flag;

/* `flags` is the dict of torch.autograd.profiler. Returns whether it has the flag, -1 on error. */
int follow_profiler(PyObject *flags);

#if PY_VERSION_HEX < 0x030C0000
extern PyDictObject *profiler_flags;
extern uint64_t profiler_version;
void read_profiler_flag(void);

static inline _Bool profiler_is_on(void) {
    if (profiler_flags->ma_version_tag != profiler_version) read_profiler_flag();
    return profiler_flag;
}
#else
static inline _Bool profiler_is_on(void) { return profiler_flag; }
#endif

#endif
