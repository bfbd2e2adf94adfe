#include "program.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "shims.hpp"

namespace halide_backend {
namespace {

/* The kinds of values; instructions.py has the same numbers. */
enum Kind : int64_t { CONSTANT, SIZE, TENSOR, DTYPE, TEXT, RESULT };

/* One value of an instruction: `number` is a constant, or where the frame has it. */
struct Value {
  Kind kind;
  int64_t number;
  std::string text;
};

Value read_value(Reader& reader) {
  Value value{static_cast<Kind>(reader.integer()), 0, ""};
  if (value.kind < CONSTANT || value.kind > RESULT) fail("the bytecode of this package has values of an unknown kind");
  if (value.kind == DTYPE) return {CONSTANT, dtype_number(reader.text()), ""};
  if (value.kind == TEXT) {
    value.text = reader.text();
  } else {
    value.number = reader.integer();
  }
  return value;
}

std::vector<Value> read_values(Reader& reader) {
  std::vector<Value> values;
  for (int64_t left = reader.integer(); left > 0; left--) values.push_back(read_value(reader));
  return values;
}

int64_t size_of(const Value& value, const Frame& frame) {
  return value.kind == SIZE ? frame.sizes.at(static_cast<size_t>(value.number)) : value.number;
}

std::vector<int64_t> sizes_of(const std::vector<Value>& values, const Frame& frame) {
  std::vector<int64_t> sizes;
  for (const Value& value : values) sizes.push_back(size_of(value, frame));
  return sizes;
}

void set(Frame& frame, int64_t number, AtenTensorHandle tensor) {
  frame.tensors.at(static_cast<size_t>(number)) = RAIIAtenTensorHandle(tensor);
}

/* One argument of a C function of torch: a value, or a pointer to values. */
struct Argument {
  bool is_pointer;
  std::vector<Value> values;
};

Word word_of(const Value& value, const Frame& frame) {
  switch (value.kind) {
    case TENSOR: return reinterpret_cast<Word>(frame.tensor(value.number));
    case TEXT: return reinterpret_cast<Word>(value.text.c_str());
    default: return static_cast<Word>(size_of(value, frame));
  }
}

Instruction read_size(Reader& reader) {
  int64_t size = reader.integer(), tensor = reader.integer(), axis = reader.integer();
  return [=](Frame& frame) {
    int64_t rank = 0, value = 0;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(frame.tensor(tensor), &rank));
    if (axis >= rank) fail("input " + std::to_string(tensor) + " has " + std::to_string(rank) + " dimensions, too few");
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_size(frame.tensor(tensor), axis, &value));
    frame.sizes.at(static_cast<size_t>(size)) = value;
  };
}

Instruction read_arithmetic(Reader& reader) {
  using Operation = int64_t (*)(int64_t, int64_t);
  static const std::unordered_map<std::string, Operation> operations = {
      {"add", [](int64_t a, int64_t b) { return a + b; }},
      {"sub", [](int64_t a, int64_t b) { return a - b; }},
      {"mul", [](int64_t a, int64_t b) { return a * b; }},
      {"floordiv",
       [](int64_t a, int64_t b) {
         if (!b) fail("a size is divided by zero");
         return a / b - (a % b && (a < 0) != (b < 0));
       }},
      {"sym_max", [](int64_t a, int64_t b) { return std::max(a, b); }},
      {"sym_min", [](int64_t a, int64_t b) { return std::min(a, b); }},
  };
  int64_t size = reader.integer();
  std::string name = reader.text();
  auto found = operations.find(name);
  if (found == operations.end()) fail("the bytecode of this package has an unknown operation " + name);
  Value left = read_value(reader), right = read_value(reader);
  return [=, operation = found->second](Frame& frame) {
    frame.sizes.at(static_cast<size_t>(size)) = operation(size_of(left, frame), size_of(right, frame));
  };
}

std::string text_of(const int64_t* sizes, size_t rank) {
  std::string text = "(";
  for (size_t axis = 0; axis < rank; axis++) text += (axis ? ", " : "") + std::to_string(sizes[axis]);
  return text + ")";
}

/* An input is what the model was exported for: kernels do not ask. */
Instruction read_check(Reader& reader) {
  int64_t tensor = reader.integer();
  std::string name = reader.text(), dtype = reader.text();
  std::vector<Value> sizes = read_values(reader), strides = read_values(reader);
  return [=, wanted = dtype_number(dtype)](Frame& frame) {
    int64_t rank = 0;
    int32_t type = 0, device = 0;
    int64_t *size = nullptr, *stride = nullptr;
    AtenTensorHandle handle = frame.tensor(tensor);
    bool is_defined = false;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_is_defined(handle, &is_defined));
    if (!is_defined) fail("input '" + name + "' is absent");
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(handle, &type));
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(handle, &device));
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(handle, &rank));
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(handle, &size));
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(handle, &stride));
    if (device != aoti_torch_device_type_cpu()) fail("input '" + name + "' is not on the CPU");
    if (type != wanted) fail("input '" + name + "' has another dtype than " + dtype);
    auto all = static_cast<size_t>(rank);
    std::vector<int64_t> right = sizes_of(sizes, frame), steps = sizes_of(strides, frame);
    if (all != right.size() || !std::equal(right.begin(), right.end(), size)) {
      fail("input '" + name + "' has sizes " + text_of(size, all) + ", not " + text_of(right.data(), right.size()));
    }
    bool is_empty = std::find(right.begin(), right.end(), 0) != right.end();
    for (size_t axis = 0; axis < all && !is_empty; axis++) {
      if (right[axis] > 1 && stride[axis] != steps[axis]) {
        fail("input '" + name + "' has strides " + text_of(stride, all) + ", not " + text_of(steps.data(), all));
      }
    }
  };
}

Instruction read_range(Reader& reader) {
  int64_t size = reader.integer();
  std::string name = reader.text();
  int64_t least = reader.integer(), most = reader.integer();
  return [=](Frame& frame) {
    int64_t value = frame.sizes.at(static_cast<size_t>(size));
    if (value >= least && value <= most) return;
    fail(name + " is " + std::to_string(value) + ", not from " + std::to_string(least) + " to " + std::to_string(most));
  };
}

Instruction read_empty(Reader& reader) {
  int64_t result = reader.integer();
  int32_t dtype = dtype_number(reader.text());
  std::vector<Value> sizes = read_values(reader), strides = read_values(reader);
  return [=](Frame& frame) {
    std::vector<int64_t> size = sizes_of(sizes, frame), stride = sizes_of(strides, frame);
    AtenTensorHandle tensor;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(
        static_cast<int64_t>(size.size()), size.data(), stride.data(), dtype, aoti_torch_device_type_cpu(), 0, &tensor));
    set(frame, result, tensor);
  };
}

Instruction read_view(Reader& reader) {
  int64_t result = reader.integer(), source = reader.integer();
  std::vector<Value> sizes = read_values(reader), strides = read_values(reader);
  Value offset = read_value(reader);
  return [=](Frame& frame) {
    std::vector<int64_t> size = sizes_of(sizes, frame), stride = sizes_of(strides, frame);
    AtenTensorHandle tensor;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch__reinterpret_tensor(
        frame.tensor(source), static_cast<int64_t>(size.size()), size.data(), stride.data(), size_of(offset, frame),
        &tensor));
    set(frame, result, tensor);
  };
}

Instruction read_shim(Reader& reader) {
  std::string name = reader.text();
  auto shim = shims.find(name);
  if (shim == shims.end()) fail("this library does not know the function " + name + " of torch");
  std::vector<Argument> arguments;
  std::vector<int64_t> results;
  size_t words = 0;
  for (int64_t left = reader.integer(); left > 0; left--) {
    bool is_pointer = reader.integer() != 0;
    arguments.push_back({is_pointer, read_values(reader)});
    const std::vector<Value>& values = arguments.back().values;
    if (!is_pointer && values.size() != 1) fail("the bytecode of this package is damaged");
    for (const Value& value : values) {
      if (value.kind == RESULT) results.push_back(value.number);
    }
    words += 1 + values.size();
  }
  return [=, function = shim->second](Frame& frame) {
    std::vector<AtenTensorHandle> made(results.size());
    AtenTensorHandle* next = made.data();
    std::vector<Word> memory(words);
    Word *argument = memory.data(), *pointed = argument + arguments.size();
    for (const Argument& each : arguments) {
      Word* to = each.is_pointer ? pointed : argument;
      if (each.is_pointer) *argument = reinterpret_cast<Word>(pointed);
      for (const Value& value : each.values) {
        *to++ = value.kind == RESULT ? reinterpret_cast<Word>(next++) : word_of(value, frame);
      }
      if (each.is_pointer) pointed = to;
      argument++;
    }
    AOTI_TORCH_ERROR_CODE_CHECK(function(memory.data()));
    for (size_t number = 0; number < results.size(); number++) set(frame, results[number], made[number]);
  };
}

Instruction read_kernel(Reader& reader, const KernelImage& kernels) {
  using Function = int32_t (*)(void* const*, const int64_t*, void*, char*);
  std::string name = reader.text();
  auto function = reinterpret_cast<Function>(kernels.function(reader.integer()));
  std::vector<int64_t> tensors = reader.integers();
  std::vector<Value> sizes = read_values(reader);
  return [=](Frame& frame) {
    std::vector<void*> pointers;
    for (int64_t tensor : tensors) {
      pointers.emplace_back();
      AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_data_ptr(frame.tensor(tensor), &pointers.back()));
    }
    std::vector<int64_t> numbers = sizes_of(sizes, frame);
    char message[256];
    if (function(pointers.data(), numbers.data(), nullptr, message)) {
      throw std::runtime_error("kernel " + name + ": " + message);
    }
  };
}

Instruction read_free(Reader& reader) {
  int64_t tensor = reader.integer();
  return [=](Frame& frame) { frame.tensors.at(static_cast<size_t>(tensor)).reset(); };
}

Instruction read_instruction(Reader& reader, const KernelImage& kernels) {
  using Read = Instruction (*)(Reader&);
  static const std::unordered_map<std::string, Read> reads = {
      {"SIZE", read_size},   {"ARITHMETIC", read_arithmetic}, {"CHECK", read_check}, {"RANGE", read_range},
      {"EMPTY", read_empty}, {"VIEW", read_view},             {"SHIM", read_shim},   {"FREE", read_free},
  };
  std::string name = reader.text();
  if (name == "KERNEL") return read_kernel(reader, kernels);
  auto read = reads.find(name);
  if (read == reads.end()) fail("the bytecode of this package has an unknown instruction " + name);
  return read->second(reader);
}

}  // namespace

int32_t dtype_number(const std::string& dtype) {
  static const std::unordered_map<std::string, int32_t (*)()> numbers = {
      {"float64", aoti_torch_dtype_float64},     {"float32", aoti_torch_dtype_float32},
      {"float16", aoti_torch_dtype_float16},     {"bfloat16", aoti_torch_dtype_bfloat16},
      {"int64", aoti_torch_dtype_int64},         {"int32", aoti_torch_dtype_int32},
      {"int16", aoti_torch_dtype_int16},         {"int8", aoti_torch_dtype_int8},
      {"uint8", aoti_torch_dtype_uint8},         {"bool", aoti_torch_dtype_bool},
  };
  auto number = numbers.find(dtype);
  if (number == numbers.end()) fail("this library does not know the dtype " + dtype);
  return number->second();
}

Program::Program(Reader& reader, std::shared_ptr<const KernelImage> kernels) : kernels_(std::move(kernels)) {
  inputs_ = static_cast<size_t>(reader.integer());
  tensors_ = static_cast<size_t>(reader.integer());
  sizes_ = static_cast<size_t>(reader.integer());
  for (int64_t left = reader.integer(); left > 0; left--) instructions_.push_back(read_instruction(reader, *kernels_));
  outputs_ = reader.integers();
}

void Program::run(
    AtenTensorHandle* inputs, AtenTensorHandle* outputs, const std::vector<ConstantHandle>& constants) const {
  Frame frame{std::vector<RAIIAtenTensorHandle>(tensors_), std::vector<int64_t>(sizes_), constants};
  /* It clears `inputs`: from torch 2.15 on the caller deletes what is left there. */
  std::vector<RAIIAtenTensorHandle> given =
      torch::aot_inductor::steal_from_raw_handles_to_raii_handles(inputs, inputs_);
  std::move(given.begin(), given.end(), frame.tensors.begin());
  for (const Instruction& instruction : instructions_) instruction(frame);
  std::vector<RAIIAtenTensorHandle> results;
  for (int64_t number : outputs_) {
    AtenTensorHandle result;
    /* The caller may write into what it gets, but not into the model's constants. */
    AOTI_TORCH_ERROR_CODE_CHECK(
        (number < 0 ? aoti_torch_clone : aoti_torch_new_tensor_handle)(frame.tensor(number), &result));
    results.emplace_back(result);
  }
  for (size_t output = 0; output < results.size(); output++) outputs[output] = results[output].release();
}

}  // namespace halide_backend
