/* What a model's bytecode consists of, and how it is read: instructions.py writes it. */
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace halide_backend {

[[noreturn]] inline void fail(const std::string& what) { throw std::runtime_error("halide_backend: " + what); }

/* Reads integers (8 bytes, little-endian), texts (their length, then their bytes) and lists (their length, then what
 * they consist of), one after another. */
class Reader {
 public:
  explicit Reader(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) fail("this package has no " + path);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }

  int64_t integer() {
    int64_t value;
    take(&value, sizeof value);
    return value;
  }

  std::string text() {
    std::string value(length(), '\0');
    take(value.data(), value.size());
    return value;
  }

  template <typename Element>
  std::vector<Element> list(Element (Reader::*element)()) {
    std::vector<Element> values;
    for (size_t left = length(); left; left--) values.push_back((this->*element)());
    return values;
  }

  std::vector<int64_t> integers() { return list(&Reader::integer); }

 private:
  size_t length() {
    int64_t value = integer();
    if (value < 0 || static_cast<size_t>(value) > bytes_.size()) fail("the bytecode of this package is damaged");
    return static_cast<size_t>(value);
  }

  void take(void* to, size_t size) {
    if (size > bytes_.size() - at_) fail("the bytecode of this package is damaged");
    memcpy(to, bytes_.data() + at_, size);
    at_ += size;
  }

  std::string bytes_;
  size_t at_ = 0;
};

}  // namespace halide_backend
