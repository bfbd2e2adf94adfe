/* What the host half of kernels for a GPU calls in a model: model_runtime.cpp, gpu_module.inc and `gpu_targets` precede
 * this text. */
static thread_local const gpu_launch* gpu_current = nullptr;

/* What one pipeline of a model launches; it is unloaded with the library that it is part of. */
struct GpuModel : gpu_module {
  GpuModel(const void* image, const char* names) : gpu_module{image, names, nullptr, nullptr} {}
  GpuModel(const GpuModel&) = delete;
  GpuModel& operator=(const GpuModel&) = delete;
  ~GpuModel() { gpu_clear(this, 1); }
};

/* The compute capability of the current GPU, 90 for 9.0; 0 if the driver does not tell. */
static int gpu_capability() {
  constexpr int major_attribute = 75, minor_attribute = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
  int device, major, minor;
  if (gpu_driver.get_device(&device) || gpu_driver.get_attribute(&major, major_attribute, device) ||
      gpu_driver.get_attribute(&minor, minor_attribute, device)) {
    return 0;
  }
  return 10 * major + minor;
}

/* Machine code runs on GPUs of the same major version that are not older, PTX on all that are not. Machine code is
 * preferred, and of several the newest; -1 if none fits. */
static int32_t gpu_choice(int capability) {
  int32_t best = -1;
  for (int32_t number = 0; number < int32_t(std::size(gpu_targets)); number++) {
    const GpuTarget& target = gpu_targets[number];
    bool fits = target.capability <= capability && (target.is_ptx || target.capability / 10 == capability / 10);
    bool better = best < 0 || (gpu_targets[best].is_ptx && !target.is_ptx) ||
        (gpu_targets[best].is_ptx == target.is_ptx && target.capability > gpu_targets[best].capability);
    if (fits && better) best = number;
  }
  return best;
}

/* Without std::to_string, one of whose symbols would keep the library from being unloaded. */
static void gpu_say_unsuitable(int capability, char* message) {
  int used = snprintf(
      message, GPU_MESSAGE, "the GPU has compute capability %d.%d, and this model has kernels for", capability / 10,
      capability % 10);
  const char* comma = "";
  for (const GpuTarget& target : gpu_targets) {
    if (used >= GPU_MESSAGE) return;
    used += snprintf(
        message + used, size_t(GPU_MESSAGE - used), "%s %d.%d%s", comma, target.capability / 10,
        target.capability % 10, target.is_ptx ? " and newer" : "");
    comma = ",";
  }
}

extern "C" {
#pragma GCC visibility push(hidden)

/* Which of `gpu_targets` the current GPU runs; -1 with 256 bytes of `message` for none. */
int32_t halide_backend_gpu_target(char* message) {
  static std::atomic<int32_t> known[64];  // for each device, its target counted from 1
  static std::atomic<bool> ready;
  if (!ready.load(std::memory_order_acquire)) {
    pthread_mutex_lock(&gpu_loading);
    ready.store(gpu_driver.launch || gpu_find_driver(), std::memory_order_release);
    pthread_mutex_unlock(&gpu_loading);
    if (!ready) {
      snprintf(message, GPU_MESSAGE, "there is no CUDA driver (libcuda.so.1) on this machine");
      return -1;
    }
  }
  int device = -1;
  bool counted = !gpu_driver.get_device(&device) && device >= 0 && device < int(std::size(known));
  if (int32_t number = counted ? known[device].load(std::memory_order_relaxed) : 0) return number - 1;
  int capability = gpu_capability();
  int32_t number = gpu_choice(capability);
  if (number < 0) {
    gpu_say_unsuitable(capability, message);
  } else if (counted) {
    known[device].store(number + 1, std::memory_order_relaxed);
  }
  return number;
}

int32_t halide_backend_launch(int32_t (*body)(void*), void* closure, const gpu_launch* launch, char* message) {
  gpu_current = launch;
  return halide_backend_run(body, closure, message);
}

int halide_cuda_run(
    void*, void*, const char* name, int blocks_x, int blocks_y, int blocks_z, int threads_x, int threads_y,
    int threads_z, int shared, size_t sizes[], void* arguments[], int8_t is_buffer[]) {
  if (!blocks_x || !blocks_y || !blocks_z) return 0;  // a dynamic size is 0; the driver refuses such a launch
  void* values[GPU_MOST_ARGUMENTS];
  uint64_t elsewhere;
  int failed = gpu_take_arguments(sizes, arguments, is_buffer, values, &elsewhere);
  if (failed) return failed;
  const gpu_kernel* kernel = gpu_find_kernel(gpu_current->module, name);
  if (!kernel) return GPU_ERROR;
  const unsigned blocks[] = {unsigned(blocks_x), unsigned(blocks_y), unsigned(blocks_z)};
  const unsigned threads[] = {unsigned(threads_x), unsigned(threads_y), unsigned(threads_z)};
  return gpu_launch_kernel(kernel, blocks, threads, shared, gpu_current->stream, values);
}

const void* halide_cuda_device_interface() {
  static const int64_t interface[64] = {};  // kernels only compare its address
  return interface;
}

int halide_cuda_initialize_kernels(void*, void** state, const char*, int) {
  *state = gpu_current->module;
  return 0;
}

void halide_cuda_finalize_kernels(void*, void*) {}

int halide_copy_to_device(void*, void*, const void*) { return 0; }  // all tensors are there

#pragma GCC visibility pop
}
