/* Scratch memory of kernels, and the locks of Halide's atomic updates that need one.
 *
 * Kernels allocate scratch per row, so a block must cost nanoseconds: each thread keeps the blocks
 * it freed in lists by power-of-two size, at most CACHE_LIMIT bytes, freed when the thread ends. */
#define _POSIX_C_SOURCE 200809L
#include "memory.h"

#include "attempt.h"
#include "halide_abi.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64 /* bytes; the widest vector of any CPU target, and a cache line */
#define SMALLEST 128 /* bytes of the smallest class */
#define CLASSES 14   /* 128 B ... 1 MiB; larger blocks go to the C library */
#define CACHE_LIMIT ((size_t)4 << 20)

/* What precedes every block. `link` is NULL where no attempt owns the block. */
struct block {
    struct block *next;
    struct block **link;
    unsigned size_class; /* CLASSES: not cached */
} __attribute__((aligned(ALIGNMENT)));

struct cache {
    struct block *free[CLASSES];
    size_t bytes;
};

static _Thread_local struct cache *cache __attribute__((tls_model("initial-exec")));
static pthread_key_t cache_key;

static void destroy_cache(void *pointer) {
    struct cache *dying = pointer;
    for (int k = 0; k < CLASSES; k++) {
        while (dying->free[k]) {
            struct block *block = dying->free[k];
            dying->free[k] = block->next;
            free(block);
        }
    }
    free(dying);
    cache = NULL;
}

int start_memory(void) { return pthread_key_create(&cache_key, destroy_cache); }

static struct cache *thread_cache(void) {
    if (!cache) {
        struct cache *fresh = calloc(1, sizeof *fresh);
        if (fresh && pthread_setspecific(cache_key, fresh) != 0) {
            free(fresh);
            fresh = NULL;
        }
        cache = fresh;
    }
    return cache;
}

static size_t class_size(unsigned size_class) { return (size_t)SMALLEST << size_class; }

static unsigned class_of(size_t size) {
    if (size <= SMALLEST) return 0;
    if (size > class_size(CLASSES - 1)) return CLASSES;
    return (unsigned)(57 - __builtin_clzll(size - 1));
}

static void release_blocks(struct attempt *attempt) {
    while (attempt->blocks) halide_free(NULL, attempt->blocks + 1);
}

static void own(struct block *block) {
    struct attempt *attempt = current_attempt;
    block->link = NULL;
    if (!attempt) return;
    attempt->release = release_blocks;
    block->next = attempt->blocks;
    if (block->next) block->next->link = &block->next;
    block->link = &attempt->blocks;
    attempt->blocks = block;
}

static void disown(struct block *block) {
    if (!block->link) return;
    *block->link = block->next;
    if (block->next) block->next->link = block->link;
}

static struct block *new_block(unsigned size_class, size_t size) {
    if (size_class < CLASSES) size = class_size(size_class);
    if (size > SIZE_MAX / 2) return NULL;
    /* Halide reads up to 8 bytes past the end, and wants whole multiples of the alignment. */
    size = (size + sizeof(struct block) + 8 + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    struct block *block = aligned_alloc(ALIGNMENT, size);
    if (block) block->size_class = size_class;
    return block;
}

void *halide_malloc(void *user_context, size_t size) {
    (void)user_context;
    unsigned size_class = class_of(size);
    struct block *block;
    if (size_class < CLASSES && cache && cache->free[size_class]) {
        block = cache->free[size_class];
        cache->free[size_class] = block->next;
        cache->bytes -= class_size(size_class);
    } else {
        block = new_block(size_class, size);
        if (!block) {
            fail(HALIDE_ERROR_OUT_OF_MEMORY, "not enough memory for the kernel's scratch space");
            return NULL;
        }
    }
    own(block);
    return block + 1;
}

void halide_free(void *user_context, void *pointer) {
    (void)user_context;
    if (!pointer) return;
    struct block *block = (struct block *)pointer - 1;
    disown(block);
    unsigned size_class = block->size_class;
    struct cache *mine = size_class < CLASSES ? thread_cache() : NULL;
    if (mine && mine->bytes + class_size(size_class) <= CACHE_LIMIT) {
        block->next = mine->free[size_class];
        mine->free[size_class] = block;
        mine->bytes += class_size(size_class);
    } else {
        free(block);
    }
}

/* Halide asks for these where an atomic update is too wide for one machine instruction. */
struct mutex_array {
    atomic_uchar locked[1];
};

struct mutex_array *halide_mutex_array_create(uint64_t size) {
    struct mutex_array *array = halide_malloc(NULL, size);
    if (array) memset(array, 0, size);
    return array;
}

void halide_mutex_array_destroy(void *user_context, void *array) { halide_free(user_context, array); }

int halide_mutex_array_lock(struct mutex_array *array, int entry) {
    for (int spins = 0; atomic_exchange_explicit(&array->locked[entry], 1, memory_order_acquire);) {
        if (++spins % 64 == 0) sched_yield();
    }
    return 0;
}

int halide_mutex_array_unlock(struct mutex_array *array, int entry) {
    atomic_store_explicit(&array->locked[entry], 0, memory_order_release);
    return 0;
}
