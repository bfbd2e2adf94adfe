/* What compiled kernels call in a model that runs without Python: this text becomes part of each model's C++ source.
 *
 * A model is a library that is loaded and unloaded while threads live. So nothing here outlasts a call: no memory is
 * kept for a thread, no function is registered for its end, and the one thread-local pointer is of the default TLS
 * model, because glibc has room for the static one of a hundred libraries or so. All symbols are hidden: two models of
 * different versions in one process have nothing in common. */
#include <atomic>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

extern "C" {
/* torch/csrc/stable/c/shim.h. Without libtorch parallel loops are serial. */
__attribute__((weak)) int32_t torch_parallel_for(
    int64_t begin, int64_t end, int64_t grain, void (*function)(int64_t begin, int64_t end, void* context),
    void* context);
}

namespace halide_backend_runtime {

constexpr size_t message_size = 256;  // bytes
constexpr size_t alignment = 64;      // bytes; the widest vector of any CPU target, and a cache line
constexpr int generic_error = -1, out_of_memory = -11;  // halide_error_code_t

/* Precedes every block of memory. */
struct Block {
  Block *next, *previous;
  void* allocated;  // what free() takes
};

/* One run of generated code on one thread. What cannot go on jumps to the innermost one, because kernels test no
 * results; only frames of generated code lie in between, which own nothing but `blocks`. */
struct Attempt {
  jmp_buf failed;
  Attempt* outer;
  Block blocks;  // the head of a circular list
  char message[message_size];
};

static thread_local Attempt* current = nullptr;

static void begin(Attempt& attempt) {
  attempt.outer = current;
  attempt.blocks.next = attempt.blocks.previous = &attempt.blocks;
  attempt.message[0] = '\0';
  current = &attempt;
}

static void end(Attempt& attempt) {
  for (Block *block = attempt.blocks.next, *next; block != &attempt.blocks; block = next) {
    next = block->next;
    free(block->allocated);
  }
  current = attempt.outer;
}

static void set_message(const char* message) {
  if (current) snprintf(current->message, message_size, "%s", message);
}

static int fail(int code, const char* message) {
  if (message) set_message(message);
  if (current) longjmp(current->failed, code);
  return code;
}

using Task = int (*)(void* user_context, int index, uint8_t* closure);

/* A parallel loop, and the first failure in it. */
struct Loop {
  Task task;
  void* user_context;
  uint8_t* closure;
  std::atomic<int> is_reported;
  std::atomic<int> code;
  char message[message_size];
};

static void report(Loop& loop, int code, const char* message) {
  if (loop.is_reported.exchange(1)) return;
  memcpy(loop.message, message, message_size);
  loop.code = code;
}

static void run_range(int64_t first, int64_t last, void* context) {
  Loop& loop = *static_cast<Loop*>(context);
  Attempt attempt;
  begin(attempt);
  int failed = setjmp(attempt.failed);
  if (failed) {
    report(loop, failed, attempt.message);
  } else {
    for (int64_t index = first; index < last && !loop.is_reported.load(std::memory_order_relaxed); index++) {
      int code = loop.task(loop.user_context, static_cast<int>(index), loop.closure);
      if (code) report(loop, code, attempt.message);
    }
  }
  end(attempt);
}

}  // namespace halide_backend_runtime

extern "C" {
#pragma GCC visibility push(hidden)

int32_t halide_backend_run(int32_t (*body)(void*), void* closure, char* message) {
  halide_backend_runtime::Attempt attempt;
  halide_backend_runtime::begin(attempt);
  int code = setjmp(attempt.failed);
  if (!code) code = body(closure);
  if (code && message) memcpy(message, attempt.message, halide_backend_runtime::message_size);
  halide_backend_runtime::end(attempt);
  return code;
}

void halide_error(void*, const char* message) { halide_backend_runtime::set_message(message); }

int halide_do_par_for(
    void* user_context, halide_backend_runtime::Task task, int first, int count, uint8_t* closure) {
  if (count <= 1 || !torch_parallel_for) {
    for (int index = first; index < first + count; index++) {
      int code = task(user_context, index, closure);
      if (code) return halide_backend_runtime::fail(code, nullptr);
    }
    return 0;
  }
  halide_backend_runtime::Loop loop{task, user_context, closure, {}, {}, {}};
  int64_t end = static_cast<int64_t>(first) + count;
  int32_t failed = torch_parallel_for(first, end, 1, halide_backend_runtime::run_range, &loop);
  if (failed) {
    return halide_backend_runtime::fail(halide_backend_runtime::generic_error, "torch cannot run a parallel loop");
  }
  int code = loop.code;
  return code ? halide_backend_runtime::fail(code, loop.message) : 0;
}

void* halide_malloc(void*, size_t size) {
  using namespace halide_backend_runtime;
  /* Halide reads up to 8 bytes past the end. */
  size_t padding = sizeof(Block) + alignment + 8;
  void* allocated = size < SIZE_MAX / 2 ? malloc(size + padding) : nullptr;
  if (!allocated) {
    fail(out_of_memory, "not enough memory for the kernel's scratch space");
    return nullptr;
  }
  uintptr_t after = reinterpret_cast<uintptr_t>(allocated) + sizeof(Block) + alignment - 1;
  Block* block = reinterpret_cast<Block*>(after / alignment * alignment) - 1;
  block->allocated = allocated;
  block->next = block->previous = block;
  if (current) {
    block->next = current->blocks.next;
    block->previous = &current->blocks;
    block->next->previous = block->previous->next = block;
  }
  return block + 1;
}

void halide_free(void*, void* pointer) {
  using namespace halide_backend_runtime;
  if (!pointer) return;
  Block* block = static_cast<Block*>(pointer) - 1;
  block->next->previous = block->previous;
  block->previous->next = block->next;
  free(block->allocated);
}

/* Locks of atomic updates that are too wide for one machine instruction; words, because RISC-V exchanges no bytes. */
void* halide_mutex_array_create(uint64_t count) {
  void* array = halide_malloc(nullptr, count * sizeof(uint32_t));
  if (array) memset(array, 0, count * sizeof(uint32_t));
  return array;
}

void halide_mutex_array_destroy(void* user_context, void* array) { halide_free(user_context, array); }

int halide_mutex_array_lock(void* array, int entry) {
  while (__atomic_exchange_n(static_cast<uint32_t*>(array) + entry, 1, __ATOMIC_ACQUIRE)) std::this_thread::yield();
  return 0;
}

int halide_mutex_array_unlock(void* array, int entry) {
  __atomic_store_n(static_cast<uint32_t*>(array) + entry, 0, __ATOMIC_RELEASE);
  return 0;
}

#pragma GCC visibility pop
}
