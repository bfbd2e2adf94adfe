/* Huge pages for what a graph allocates: docs/how-to/keep-freed-memory.md. */
#ifndef HALIDE_BACKEND_HUGE_PAGES_H
#define HALIDE_BACKEND_HUGE_PAGES_H

#include <stddef.h>

/* Lets the first touch of `bytes` at `start` bring pages of 2 MB instead of 4 KB, where the system has them. */
void ask_for_huge_pages(void *start, size_t bytes);

#endif
