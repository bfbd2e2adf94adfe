/* The one shared Halide runtime of this process: what compiled kernels (Halide 21, target feature
 * no_runtime) call, and how a failure inside a kernel reaches the launcher. The layouts and error
 * codes follow HalideRuntime.h of Halide 21. */
#ifndef HALIDE_BACKEND_RUNTIME_H
#define HALIDE_BACKEND_RUNTIME_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    int32_t min, extent, stride; /* elements */
    uint32_t flags;
} halide_dimension_t;

typedef struct {
    uint64_t device;
    const void *device_interface;
    uint8_t *host;
    uint64_t flags;
    uint8_t code, bits;
    uint16_t lanes;
    int32_t dimensions;
    const halide_dimension_t *dim;
    void *padding;
} halide_buffer_t;

/* `<entry>_argv` of a compiled pipeline: one pointer per argument, to a halide_buffer_t or to a number. */
typedef int (*pipeline_function)(void **arguments);
typedef int (*halide_task_t)(void *user_context, int index, uint8_t *closure);

enum {
    HALIDE_ERROR_GENERIC = -1,
    HALIDE_ERROR_OUT_OF_MEMORY = -11,
};

#define MESSAGE_SIZE 256

struct block;

/* One run of generated code on one thread. A runtime function that cannot go on jumps to the
 * innermost attempt, because objects compiled with no_asserts test neither the result of
 * halide_malloc nor that of halide_do_par_for. Only frames of generated code, which own nothing but
 * blocks of halide_malloc, lie between the two; the jump frees those blocks. */
struct attempt {
    jmp_buf failed;
    struct attempt *outer;
    struct block *blocks;
    char message[MESSAGE_SIZE];
};

/* Initial-exec: one instruction instead of a call per access. A few pointers fit glibc's reserve. */
extern _Thread_local struct attempt *current_attempt __attribute__((tls_model("initial-exec")));

void release_blocks(struct attempt *attempt);

static inline void begin_attempt(struct attempt *attempt) {
    attempt->outer = current_attempt;
    attempt->blocks = NULL;
    attempt->message[0] = '\0';
    current_attempt = attempt;
}

static inline void end_attempt(struct attempt *attempt) {
    if (attempt->blocks) release_blocks(attempt);
    current_attempt = attempt->outer;
}

/* Ends the innermost attempt of this thread with `code`; `message` may be NULL to keep what
 * halide_error has stored. Returns `code` only where generated code runs outside any attempt. */
int fail(int code, const char *message);

/* memory.c */
int start_memory(void);
void *halide_malloc(void *user_context, size_t size);
void halide_free(void *user_context, void *pointer);
struct mutex_array *halide_mutex_array_create(uint64_t size);
void halide_mutex_array_destroy(void *user_context, void *array);
int halide_mutex_array_lock(struct mutex_array *array, int entry);
int halide_mutex_array_unlock(struct mutex_array *array, int entry);

/* failure.c */
void halide_error(void *user_context, const char *message);
struct symbol {
    const char *name;
    void *address;
};
extern const struct symbol assertion_symbols[];

/* parallel.c */
int start_parallel(void);
void connect_torch(void);           /* find torch's OpenMP and thread count in this process */
const char *openmp_path(void);      /* "" where there is none */
int threads_follow_torch(void);     /* 1: at::get_num_threads was found */
int halide_do_par_for(void *user_context, halide_task_t task, int first, int count, uint8_t *closure);
extern unsigned fork_count;         /* number of forks between the loading process and this one */

#endif
