/* torch's C functions by name, each callable with an array of words. */
#pragma once

#include <torch/csrc/inductor/aoti_torch/generated/c_shim_aten.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace halide_backend {

/* An integer, the bits of a double, or a pointer. */
using Word = uint64_t;
using Shim = AOTITorchError (*)(const Word* arguments);

template <typename Type>
Type from_word(Word word) {
  if constexpr (std::is_pointer_v<Type>) {
    return reinterpret_cast<Type>(word);
  } else if constexpr (std::is_floating_point_v<Type>) {
    static_assert(sizeof(Type) == sizeof(Word));
    Type value;
    memcpy(&value, &word, sizeof value);
    return value;
  } else {
    return static_cast<Type>(word);
  }
}

template <auto function>
struct Called;

template <typename... Types, AOTITorchError (*function)(Types...)>
struct Called<function> {
  static AOTITorchError with(const Word* arguments) { return call(arguments, std::index_sequence_for<Types...>()); }

 private:
  template <size_t... positions>
  static AOTITorchError call(const Word* arguments, std::index_sequence<positions...>) {
    return function(from_word<Types>(arguments[positions])...);
  }
};

#define HALIDE_BACKEND_SHIM(name) {#name, Called<name>::with},
static const std::unordered_map<std::string, Shim> shims = {HALIDE_BACKEND_SHIMS};

}  // namespace halide_backend
