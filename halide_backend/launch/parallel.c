/* Parallel loops of kernels, on the OpenMP runtime and with the number of threads of torch.
 *
 * A second pool beside torch's gets no speed-up, because idle OpenMP workers spin on the cores. We
 * link against neither torch nor OpenMP: both are looked up in the process that loaded us. */
#define _GNU_SOURCE
#include "parallel.h"

#include "attempt.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static void (*gomp_parallel)(void (*function)(void *), void *data, unsigned threads, unsigned flags);
static int (*omp_get_thread_num)(void);
static int (*omp_get_num_threads)(void);
static int (*omp_in_parallel)(void);
static int (*omp_get_max_threads)(void);
static int (*torch_get_num_threads)(void);
unsigned fork_count;

static void count_fork(void) { fork_count++; }

int start_parallel(void) { return pthread_atfork(NULL, NULL, count_fork); }

struct library_search {
    const char *const *prefixes; /* NULL-terminated beginnings of the file name */
    void *handle;
};

static int match_library(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    struct library_search *search = data;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *file = slash ? slash + 1 : info->dlpi_name;
    for (const char *const *prefix = search->prefixes; *prefix; prefix++) {
        if (strncmp(file, *prefix, strlen(*prefix)) == 0) {
            search->handle = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
            if (search->handle) return 1;
        }
    }
    return 0;
}

/* A handle of the first loaded library whose file name begins with one of `prefixes`, or NULL. */
static void *loaded_library(const char *const *prefixes) {
    struct library_search search = {prefixes, NULL};
    dl_iterate_phdr(match_library, &search);
    return search.handle;
}

static _Bool take_openmp(void *scope) {
    void *parallel = dlsym(scope, "GOMP_parallel");
    void *thread = dlsym(scope, "omp_get_thread_num"), *team = dlsym(scope, "omp_get_num_threads");
    void *inside = dlsym(scope, "omp_in_parallel"), *most = dlsym(scope, "omp_get_max_threads");
    if (!parallel || !thread || !team || !inside || !most) return 0;
    *(void **)&omp_get_thread_num = thread;
    *(void **)&omp_get_num_threads = team;
    *(void **)&omp_in_parallel = inside;
    *(void **)&omp_get_max_threads = most;
    *(void **)&gomp_parallel = parallel;
    return 1;
}

void connect_torch(void) {
    static const char *const torch_names[] = {"libtorch_cpu.so", NULL};
    static const char *const openmp_names[] = {"libgomp", "libiomp5", "libomp", NULL};
    void *torch = loaded_library(torch_names);
    if (torch) *(void **)&torch_get_num_threads = dlsym(torch, "_ZN2at15get_num_threadsEv");
    /* The order in which the dynamic linker resolved torch's own calls: the global scope (a
     * preloaded OpenMP wins there), then torch's libraries. */
    if (!take_openmp(RTLD_DEFAULT) && !(torch && take_openmp(torch))) {
        void *openmp = loaded_library(openmp_names);
        if (openmp) take_openmp(openmp);
    }
}

const char *openmp_path(void) {
    Dl_info info;
    if (!gomp_parallel || !dladdr(*(void **)&gomp_parallel, &info) || !info.dli_fname) return "";
    return info.dli_fname;
}

int threads_follow_torch(void) { return torch_get_num_threads != NULL; }

struct region {
    halide_task_t task;
    void *user_context;
    uint8_t *closure;
    int first, count;
    atomic_int code;
    char message[MESSAGE_SIZE];
};

static void report(struct region *region, int code, const char *message) {
    int none = 0;
    if (atomic_compare_exchange_strong(&region->code, &none, code)) {
        memcpy(region->message, message, MESSAGE_SIZE);
    }
}

static void run_range(struct region *region, int begin, int end) {
    struct attempt attempt;
    begin_attempt(&attempt);
    int failed = setjmp(attempt.failed);
    if (failed) {
        report(region, failed, attempt.message);
    } else {
        for (int i = begin; i < end; i++) {
            if (atomic_load_explicit(&region->code, memory_order_relaxed)) break;
            int code = region->task(region->user_context, region->first + i, region->closure);
            if (code) {
                report(region, code, attempt.message);
                break;
            }
        }
    }
    end_attempt(&attempt);
}

static void run_share(void *data) {
    struct region *region = data;
    int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
    run_range(region, (int)(region->count * thread / threads),
              (int)(region->count * (thread + 1) / threads));
}

static int thread_limit(void) {
    /* The workers of a pool do not survive a fork; waiting for them would last forever. */
    if (!gomp_parallel || fork_count || omp_in_parallel()) return 1;
    return torch_get_num_threads ? torch_get_num_threads() : omp_get_max_threads();
}

/* Runs task(first) ... task(first + count - 1), each thread a contiguous range. Serial inside
 * another parallel region. The first error ends the caller's attempt. */
int halide_do_par_for(void *user_context, halide_task_t task, int first, int count, uint8_t *closure) {
    int threads = count > 1 ? thread_limit() : 1;
    if (threads <= 1) {
        for (int i = 0; i < count; i++) {
            int code = task(user_context, first + i, closure);
            if (code) return fail(code, NULL);
        }
        return 0;
    }
    struct region region = {
        .task = task, .user_context = user_context, .closure = closure, .first = first, .count = count};
    gomp_parallel(run_share, &region, (unsigned)(threads < count ? threads : count), 0);
    int code = atomic_load(&region.code);
    return code ? fail(code, region.message[0] ? region.message : NULL) : 0;
}
