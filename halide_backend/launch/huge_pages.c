#define _DEFAULT_SOURCE
#include "huge_pages.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

#define HUGE_PAGE ((uintptr_t)2 << 20) /* bytes, on x86-64 and on AArch64 with pages of 4 KB */

void ask_for_huge_pages(void *start, size_t bytes) {
#ifdef MADV_HUGEPAGE
    /* Only whole pages within the block: what lies around it stays as it is. */
    uintptr_t first = ((uintptr_t)start + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
    uintptr_t end = ((uintptr_t)start + bytes) & ~(HUGE_PAGE - 1);
    int before = errno;
    if (end > first) madvise((void *)first, end - first, MADV_HUGEPAGE);
    errno = before; /* a system without huge pages refuses: nothing depends on them */
#else
    (void)start;
    (void)bytes;
#endif
}
