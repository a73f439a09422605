// The table of functions that a backend offers: memory, compilation of kernel programs, launches.
#pragma once

#include "kernel/plan.h"
#include "kernel/target.h"

#include <memory>
#include <string>

namespace egret::backend {

/// A compiled kernel program, ready to launch; owned and shared by plans and caches.
class Artifact {
public:
  virtual ~Artifact() = default;
  virtual std::string code() const = 0;      ///< generated code as text, for EGRET_DEBUG=4 and the viewer
  virtual double compile_seconds() const = 0;
};

/// A device. Safe to use from many threads; launches from one thread are run in order.
class Device {
public:
  virtual ~Device() = default;
  virtual const kernel::Target& target() const = 0;

  virtual void* allocate(std::size_t bytes) = 0; ///< 64-byte aligned at least; throws Error(Memory) naming the bytes asked for
  virtual void release(void* memory, std::size_t bytes) noexcept = 0;

  virtual std::shared_ptr<const Artifact> compile(const kernel::KernelProgram& program) = 0;
  /// Runs on at most `workers` workers (0: as many as the program can use) and returns when done (CPU) or queued (GPU). `block` holds pointers
  /// and numbers; worker memory and the barrier are filled in by the device.
  virtual void launch(const Artifact& artifact, const kernel::KernelProgram& program, const kernel::ArgBlock& block,
                      int workers = 0) = 0;
  virtual void synchronize() = 0;
};

} // namespace egret::backend
