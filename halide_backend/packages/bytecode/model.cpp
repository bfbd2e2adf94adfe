/* The library in a package that was made without a compiler: torch's container of models, around a model that is read
 * from the package's other files when it is loaded. It is built once for each minor version of torch (library.py). */
#include <torch/csrc/inductor/aoti_runtime/model_container.h>
#include <torch/headeronly/version.h>

#include "../../launch/model_runtime.cpp"

#define HALIDE_BACKEND_ARCHITECTURE
#define HALIDE_BACKEND_TARGETS {}
#include "../../launch/model_processor.cpp"
#include "program.hpp"

/* torch takes weights from here unless USE_MMAP_EXTERNAL is defined, as it is; the names have to exist. */
uint8_t _binary_constants_bin_start[1];
uint8_t _binary_constants_bin_end[1];

namespace halide_backend {

constexpr int64_t format = HALIDE_BACKEND_BYTECODE_FORMAT;

void* runtime_function(const std::string& name) {
#define HALIDE_BACKEND_RUNTIME_FUNCTION(name) {#name, reinterpret_cast<void*>(name)},
  static const std::unordered_map<std::string, void*> functions = {HALIDE_BACKEND_RUNTIME};
  auto found = functions.find(name);
  return found == functions.end() ? nullptr : found->second;
}

/* Throws unless the processor has the features that the kernels were compiled for. */
static void check_processor(Reader& reader) {
  std::vector<std::string> names;
  halide_backend_processor::Target target = {};
  int64_t count = reader.integer();
  if (count < 0 || count >= 64) fail("the bytecode of this package is damaged");
  names.reserve(static_cast<size_t>(count));
  for (int64_t number = 0; number < count; number++) {
    names.push_back(reader.text());
    uint32_t place[5];
    for (uint32_t& word : place) word = static_cast<uint32_t>(reader.integer());
    target.features[number] = {names.back().c_str(), place[0], place[1], place[2], place[3], place[4]};
  }
  char missing[384];
  if (!halide_backend_processor::runs(target, missing, sizeof missing)) {
    fail(std::string("this processor cannot run the kernels of this model; it lacks ") + missing);
  }
}

/* Where this library was extracted, and with it the package's other files. torch tells models for a CPU no folder. */
static std::string folder() {
  Dl_info library;
  if (!dladdr(reinterpret_cast<void*>(folder), &library) || !library.dli_fname) fail("this library cannot be found");
  std::string path = library.dli_fname;
  size_t end = path.rfind('/');
  return end == std::string::npos ? "." : path.substr(0, end);
}

/* torch's classes, which this library is compiled with, may change with each minor version. */
static void check_torch() {
  uint64_t own = TORCH_ABI_VERSION, found = aoti_torch_abi_version();
  auto text = [](uint64_t version) { return std::to_string(version >> 56) + "." + std::to_string(version >> 48 & 255); };
  if (own >> 48 != found >> 48) fail("this package is for torch " + text(own) + ", not for " + text(found));
}

/* What a package's files have of a model, beside its weights. */
struct Files : torch::aot_inductor::AOTInductorModelKernelsBase {
  struct Constant {
    std::string name, full_name;
    int32_t dtype;
    int64_t offset, bytes;
    int32_t type;
    std::vector<int64_t> sizes, strides;
  };

  explicit Files(const std::string& folder) : weights(folder + "/model.weights") {
    Reader reader(folder + "/model.bytecode");
    if (reader.text() != "halide_backend bytecode" || reader.integer() != format) {
      fail("the bytecode of this package is of another version than its library");
    }
    reader.text();  // what `halide-backend inspect` shows
    check_processor(reader);
    auto kernels = std::make_shared<const KernelImage>(folder + "/model.kernels", reader);
    in_spec = reader.text();
    out_spec = reader.text();
    inputs = reader.list(&Reader::text);
    outputs = reader.list(&Reader::text);
    for (int64_t left = reader.integer(); left > 0; left--) {
      Constant constant{reader.text(), reader.text(), dtype_number(reader.text())};
      constant.offset = reader.integer();
      constant.bytes = reader.integer();
      constant.type = static_cast<int32_t>(reader.integer());
      constant.sizes = reader.integers();
      constant.strides = reader.integers();
      constants.push_back(std::move(constant));
    }
    program = std::make_unique<const Program>(reader, std::move(kernels));
  }

  MappedFile weights;
  std::string in_spec, out_spec;
  std::vector<std::string> inputs, outputs;
  std::vector<Constant> constants;
  std::unique_ptr<const Program> program;
};

}  // namespace halide_backend

namespace torch::aot_inductor {

AOTInductorModel::AOTInductorModel(
    std::shared_ptr<ConstantMap> constants_map,
    std::shared_ptr<std::vector<ConstantHandle>> constants_array,
    const std::string& device_str,
    std::optional<std::string> cubin_dir)
    : AOTInductorModelBase(0, 0, 0, device_str, std::move(cubin_dir)) {
  halide_backend::check_torch();
  auto files = std::make_unique<halide_backend::Files>(halide_backend::folder());
  for (const std::string& name : files->inputs) inputs_info_.push_back({name.c_str()});
  for (const std::string& name : files->outputs) outputs_info_.push_back({name.c_str()});
  size_t bytes = 0;
  for (const auto& constant : files->constants) {
    ConstInfo info;
    info.name = constant.name.c_str();
    info.original_fqn = constant.full_name.c_str();
    info.dtype = constant.dtype;
    info.device_type = aoti_torch_device_type_cpu();
    info.offset = constant.offset;
    info.data_size = static_cast<size_t>(constant.bytes);
    info.shape = constant.sizes;
    info.stride = constant.strides;
    info.layout = aoti_torch_layout_strided();
    info.type = constant.type;
    constants_info_.push_back(std::move(info));
    bytes += static_cast<size_t>(constant.bytes);
  }
  in_spec_ = files->in_spec;
  out_spec_ = files->out_spec;
  user_managed_mmap = reinterpret_cast<uint8_t*>(files->weights.at(0, bytes));
  kernels_ = std::move(files);
  update_constants_map(std::move(constants_map));
  update_constants_array(std::move(constants_array));
}

void AOTInductorModel::run_impl(
    AtenTensorHandle* input_handles, AtenTensorHandle* output_handles, DeviceStreamType, AOTIProxyExecutorHandle) {
  static_cast<halide_backend::Files&>(*kernels_).program->run(input_handles, output_handles, *constants_);
}

std::unordered_map<std::string, AtenTensorHandle> AOTInductorModel::const_run_impl(
    DeviceStreamType, AOTIProxyExecutorHandle, bool) {
  return {};
}

}  // namespace torch::aot_inductor

#include HALIDE_BACKEND_TORCH_INTERFACE
