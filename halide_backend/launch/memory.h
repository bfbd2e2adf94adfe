/* Scratch memory of kernels, and the locks of Halide's atomic updates. */
#ifndef HALIDE_BACKEND_MEMORY_H
#define HALIDE_BACKEND_MEMORY_H

#include <stddef.h>
#include <stdint.h>

int start_memory(void);
void *halide_malloc(void *user_context, size_t size);
void halide_free(void *user_context, void *pointer);
struct mutex_array *halide_mutex_array_create(uint64_t size);
void halide_mutex_array_destroy(void *user_context, void *array);
int halide_mutex_array_lock(struct mutex_array *array, int entry);
int halide_mutex_array_unlock(struct mutex_array *array, int entry);

#endif
