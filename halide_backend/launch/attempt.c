#include "attempt.h"

#include <stdio.h>
#include <string.h>

_Thread_local struct attempt *current_attempt __attribute__((tls_model("initial-exec")));

void halide_error(void *user_context, const char *message) {
    (void)user_context;
    if (current_attempt) {
        snprintf(current_attempt->message, MESSAGE_SIZE, "%s", message);
    } else {
        fprintf(stderr, "halide_backend: %s\n", message);
    }
}

int fail(int code, const char *message) {
    if (message) halide_error(NULL, message);
    if (current_attempt) longjmp(current_attempt->failed, code);
    return code;
}

int32_t halide_backend_run(int32_t (*body)(void *closure), void *closure, char *message) {
    struct attempt attempt;
    begin_attempt(&attempt);
    int32_t code = setjmp(attempt.failed);
    if (!code) code = body(closure);
    if (code && message) memcpy(message, attempt.message, MESSAGE_SIZE);
    end_attempt(&attempt);
    return code;
}
