// A device that compiles and launches nothing: for tests of the compiler that need no machine code.
#pragma once

#include "backend/common/device.h"

#include <cstdlib>

namespace egret::testing {

class NullDevice : public backend::Device {
public:
  NullDevice() {
    target_.device = "cpu";
    target_.name = "null";
    target_.workers = 2;
    target_.vector_bytes = 32;
    target_.has_fma = true;
  }
  explicit NullDevice(kernel::Target target) : target_(std::move(target)) {}

  const kernel::Target& target() const override { return target_; }
  void* allocate(std::size_t bytes) override {
    return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  }
  void release(void* memory, std::size_t) noexcept override { std::free(memory); }
  std::shared_ptr<const backend::Artifact> compile(const kernel::KernelProgram&) override {
    return std::make_shared<Nothing>();
  }
  void launch(const backend::Artifact&, const kernel::KernelProgram&, const kernel::ArgBlock&,
              int) override {}
  void synchronize() override {}

private:
  struct Nothing : backend::Artifact {
    std::string code(const kernel::KernelProgram&) const override { return {}; }
    double compile_seconds() const override { return 0; }
  };
  kernel::Target target_;
};

} // namespace egret::testing
