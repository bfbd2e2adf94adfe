/* A model's bytecode, decoded: functions that are called one after another. */
#pragma once

#include <torch/csrc/inductor/aoti_runtime/utils.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bytecode.hpp"
#include "kernel_image.hpp"

namespace halide_backend {

using torch::aot_inductor::ConstantHandle;
using torch::aot_inductor::RAIIAtenTensorHandle;

/* The values of one run. Tensors that live as long as the model, its constants, have negative numbers. */
struct Frame {
  std::vector<RAIIAtenTensorHandle> tensors;
  std::vector<int64_t> sizes;
  const std::vector<ConstantHandle>& constants;

  AtenTensorHandle tensor(int64_t number) const {
    return number < 0 ? constants.at(static_cast<size_t>(-1 - number)) : tensors.at(static_cast<size_t>(number)).get();
  }
};

using Instruction = std::function<void(Frame&)>;

/* `dtype` is a name of torch's. */
int32_t dtype_number(const std::string& dtype);

class Program {
 public:
  Program(Reader& reader, std::shared_ptr<const KernelImage> kernels);

  /* `inputs` are taken; `outputs` belong to the caller. */
  void run(AtenTensorHandle* inputs, AtenTensorHandle* outputs, const std::vector<ConstantHandle>& constants) const;

 private:
  size_t inputs_, tensors_, sizes_;
  std::shared_ptr<const KernelImage> kernels_;
  std::vector<Instruction> instructions_;
  std::vector<int64_t> outputs_;
};

}  // namespace halide_backend
