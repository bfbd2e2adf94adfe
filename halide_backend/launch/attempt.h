/* How a failure inside a kernel reaches the launcher. Nothing here aborts. */
#ifndef HALIDE_BACKEND_ATTEMPT_H
#define HALIDE_BACKEND_ATTEMPT_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#define MESSAGE_SIZE 256

struct block;

/* One run of generated code on one thread. A runtime function that cannot go on jumps to the
 * innermost attempt, because objects compiled with no_asserts test neither the result of
 * halide_malloc nor that of halide_do_par_for. Only frames of generated code, which own nothing but
 * blocks of halide_malloc, lie between the two; end_attempt frees those blocks. */
struct attempt {
    jmp_buf failed;
    struct attempt *outer;
    struct block *blocks;
    void (*release)(struct attempt *); /* frees the blocks, where there are any */
    char message[MESSAGE_SIZE];
};

/* Initial-exec: one instruction instead of a call per access. A few pointers fit glibc's reserve. */
extern _Thread_local struct attempt *current_attempt __attribute__((tls_model("initial-exec")));

static inline void begin_attempt(struct attempt *attempt) {
    attempt->outer = current_attempt;
    attempt->blocks = NULL;
    attempt->message[0] = '\0';
    current_attempt = attempt;
}

static inline void end_attempt(struct attempt *attempt) {
    if (attempt->blocks) attempt->release(attempt);
    current_attempt = attempt->outer;
}

/* Ends the innermost attempt of this thread with `code`; `message` may be NULL to keep what
 * halide_error has stored. Returns `code` only where generated code runs outside any attempt. */
int fail(int code, const char *message);

void halide_error(void *user_context, const char *message);

/* Runs `body` in an attempt of its own. Returns what it returned or was ended with; where that is not 0, `message`, if
 * it is not NULL, gets the MESSAGE_SIZE bytes of the message. What C functions of pipelines (build/c_interface.py) call. */
int32_t halide_backend_run(int32_t (*body)(void *closure), void *closure, char *message);

#endif
