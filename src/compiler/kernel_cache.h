// Machine code of kernels in memory, shared by all plans of a device.
#pragma once

#include "backend/common/device.h"
#include "kernel/program.h"

#include <cstddef>
#include <memory>

namespace egret::compiler {

/// Compiled kernels by the hash of their program; bounded, the least recently used leave first. Two
/// threads that ask for one program at a time compile it once. Thread-safe.
class KernelCache {
public:
  explicit KernelCache(std::size_t limit = 4096);
  ~KernelCache();
  std::shared_ptr<const backend::Artifact> get(const kernel::KernelProgram& program,
                                               backend::Device& device, bool* was_cached = nullptr);
  std::size_t size() const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace egret::compiler
