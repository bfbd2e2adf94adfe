/* How a failure inside generated code is kept until the launcher can raise it. Nothing here aborts. */
#include "runtime.h"

#include <stdio.h>
#include <string.h>

_Thread_local struct attempt *current_attempt __attribute__((tls_model("initial-exec")));

static void store(struct attempt *attempt, const char *message) {
    snprintf(attempt->message, MESSAGE_SIZE, "%s", message);
}

void halide_error(void *user_context, const char *message) {
    (void)user_context;
    if (current_attempt) {
        store(current_attempt, message);
    } else {
        fprintf(stderr, "halide_backend: %s\n", message);
    }
}

int fail(int code, const char *message) {
    struct attempt *attempt = current_attempt;
    if (message) halide_error(NULL, message);
    if (!attempt) return code;
    release_blocks(attempt);
    longjmp(attempt->failed, code);
}

/* The assertions of objects compiled without no_asserts (a debugging aid). The first string that
 * Halide passes names the buffer, function or condition; further arguments differ per assertion and
 * are left unread, which the C calling conventions of Linux allow. */
#define ASSERTION(name, code, text)                                         \
    static int name(void *user_context, const char *subject) {              \
        char message[MESSAGE_SIZE];                                         \
        snprintf(message, sizeof message, "%s: %s", subject, text);         \
        halide_error(user_context, message);                                \
        return code;                                                        \
    }
#define PLAIN_ASSERTION(name, code, text)                                   \
    static int name(void *user_context) {                                   \
        halide_error(user_context, text);                                   \
        return code;                                                        \
    }

#define ASSERTIONS(WITH, WITHOUT)                                                                                \
    WITH(halide_error_explicit_bounds_too_small, -2, "the declared bounds do not cover what is required")        \
    WITH(halide_error_bad_type, -3, "the buffer has the wrong element type")                                     \
    WITH(halide_error_access_out_of_bounds, -4, "an access lies outside the buffer")                             \
    WITH(halide_error_buffer_allocation_too_large, -5, "the allocation is too large")                            \
    WITH(halide_error_buffer_extents_too_large, -6, "the buffer has too many elements")                          \
    WITH(halide_error_constraints_make_required_region_smaller, -7, "the constraints shrink the required region") \
    WITH(halide_error_constraint_violated, -8, "a constraint on the buffer is violated")                         \
    WITH(halide_error_param_too_small_i64, -9, "the parameter is too small")                                     \
    WITH(halide_error_param_too_small_u64, -9, "the parameter is too small")                                     \
    WITH(halide_error_param_too_small_f64, -9, "the parameter is too small")                                     \
    WITH(halide_error_param_too_large_i64, -10, "the parameter is too large")                                    \
    WITH(halide_error_param_too_large_u64, -10, "the parameter is too large")                                    \
    WITH(halide_error_param_too_large_f64, -10, "the parameter is too large")                                    \
    WITHOUT(halide_error_out_of_memory, -11, "not enough memory for the kernel's scratch space")                 \
    WITH(halide_error_buffer_argument_is_null, -12, "the buffer argument is NULL")                               \
    WITHOUT(halide_error_no_device_interface, -19, "the buffer has no device interface")                         \
    WITH(halide_error_unaligned_host_ptr, -24, "the buffer is not aligned")                                      \
    WITH(halide_error_bad_fold, -25, "the storage cannot be folded")                                             \
    WITH(halide_error_fold_factor_too_small, -26, "the fold factor is too small")                                \
    WITH(halide_error_requirement_failed, -27, "the requirement does not hold")                                  \
    WITH(halide_error_buffer_extents_negative, -28, "the buffer has a negative extent")                          \
    WITH(halide_error_specialize_fail, -31, "no specialization fits")                                            \
    WITH(halide_error_host_is_null, -34, "the buffer has no host memory")                                        \
    WITH(halide_error_bad_extern_fold, -35, "the storage of an extern stage cannot be folded")                   \
    WITHOUT(halide_error_device_interface_no_device, -36, "the buffer has a device interface but no device")     \
    WITHOUT(halide_error_host_and_device_dirty, -37, "both copies of the buffer are dirty")                      \
    WITH(halide_error_buffer_is_null, -38, "the buffer is NULL")                                                 \
    WITH(halide_error_bad_dimensions, -43, "the buffer has the wrong number of dimensions")                      \
    WITH(halide_error_device_dirty_with_no_device_support, -44, "the buffer is dirty on a device")               \
    WITH(halide_error_storage_bound_too_small, -45, "the bound on the storage is too small")                     \
    WITH(halide_error_split_factor_not_positive, -46, "the split factor is not positive")                        \
    WITH(halide_error_vscale_invalid, -47, "the vector length of this CPU is not the compiled one")

ASSERTIONS(ASSERTION, PLAIN_ASSERTION)

#define SYMBOL(name, code, text) {#name, (void *)name},
const struct symbol assertion_symbols[] = {ASSERTIONS(SYMBOL, SYMBOL){NULL, NULL}};
