/* The machine code of a model's kernels: a file that build/kernel_image.py wrote, in memory. */
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bytecode.hpp"

namespace halide_backend {

/* A file in memory, which may be changed there alone; unmapped with the object. */
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    off_t size = file < 0 ? -1 : lseek(file, 0, SEEK_END);
    if (size < 0) fail("this package has no " + path);
    size_ = static_cast<size_t>(size);
    void* memory = size_ ? mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0) : nullptr;
    close(file);
    if (memory == MAP_FAILED) fail("cannot map " + path);
    memory_ = static_cast<char*>(memory);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (size_) munmap(memory_, size_);
  }

  char* at(int64_t offset, size_t size) const {
    if (offset < 0 || size > size_ || static_cast<size_t>(offset) > size_ - size) fail("a file of this package is damaged");
    return memory_ + offset;
  }

 private:
  char* memory_;
  size_t size_;
};

/* What kernels may call by `name` in a model's library; nullptr: nothing of that name. */
void* runtime_function(const std::string& name);

class KernelImage {
 public:
  /* Fills in the addresses that were not known when the file was written. */
  KernelImage(const std::string& path, Reader& reader) : file_(path) {
    auto executed = static_cast<size_t>(reader.integer());
    for (int64_t left = reader.integer(); left > 0; left--) {
      std::string name = reader.text();
      void* function = runtime_function(name);
      if (!function) function = dlsym(RTLD_DEFAULT, name.c_str());
      if (!function) fail("a kernel of this package calls " + name + ", which this process does not have");
      set(reader.integer(), function);
    }
    for (int64_t left = reader.integer(); left > 0; left--) {
      int64_t place = reader.integer();
      set(place, file_.at(reader.integer(), 0));
    }
    if (executed && mprotect(file_.at(0, executed), executed, PROT_READ | PROT_EXEC)) {
      fail("the operating system does not let kernels run from " + path);
    }
  }

  void* function(int64_t offset) const { return file_.at(offset, 1); }

 private:
  void set(int64_t place, void* address) { memcpy(file_.at(place, sizeof address), &address, sizeof address); }

  MappedFile file_;
};

}  // namespace halide_backend
