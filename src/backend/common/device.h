// The table of functions that a backend offers: memory, compilation of kernel programs, launches.
#pragma once

#include "kernel/plan.h"
#include "kernel/target.h"

#include <memory>
#include <span>
#include <string>

namespace egret::backend {

namespace c {
struct LibraryInterface;
struct LibraryText;
} // namespace c

/// A compiled kernel program, ready to launch; owned and shared by plans and caches.
class Artifact {
public:
  virtual ~Artifact() = default;
  /// Generated code as text, for EGRET_DEBUG=4 and the viewer. `program`: what it was made from,
  /// which no artifact keeps.
  virtual std::string code(const kernel::KernelProgram& program) const = 0;
  /// Of the host's memory, roughly.
  virtual std::size_t bytes() const { return std::size_t{64} << 10; }
  virtual double compile_seconds() const = 0;
  virtual bool loaded() const { return false; } ///< its machine code was found on disk
};

/// One part of a step: a launch, or a copy between two places of the device's memory, which do not
/// overlap.
struct Work {
  const Artifact* artifact = nullptr; ///< null: a copy
  const kernel::KernelProgram* program = nullptr;
  kernel::ArgBlock block{};
  /// A launch's buffers that are Buffer::settled have their values before the launch before it
  /// ends, which leaves them as they are.
  bool settled = false;
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
};

/// What a device remembers of a list of work to submit it as one the next time.
class Recording {
public:
  virtual ~Recording() = default;
};

struct MemoryState {
  std::size_t free = 0, total = 0; ///< bytes of the device; 0: unknown
  std::size_t held = 0;            ///< by this process's device object, in use or cached
};

/// The library of a device whose products may stand in for kernels (kernel/library_product.h).
struct ProductLibrary {
  std::int64_t version = 0; ///< 0: there is none
  std::string why_not;      ///< then: what is missing; empty for a device that never has one
};

/// What a C library does in order.
struct LibraryStep {
  const kernel::Step* step = nullptr;             ///< slots and numbers
  const kernel::KernelProgram* program = nullptr; ///< null: a copy
  bool settled = false;                           ///< Work::settled
};

/// Writes plans as C libraries whose kernels are the device's own.
class LibraryWriter {
public:
  virtual ~LibraryWriter() = default;
  /// `steps`: of the plan, over its slots.
  virtual c::LibraryText text(const kernel::Plan& plan, std::span<const LibraryStep> steps,
                              const ir::Graph& graph,
                              const c::LibraryInterface& interface) const = 0;
};

/// A device. Safe to use from many threads; launches and copies from one thread are run in order,
/// and what threads hand to it is run in the order of their calls.
class Device {
public:
  virtual ~Device() = default;
  virtual const kernel::Target& target() const = 0;
  /// "cpu", "cuda:0": as users name it.
  virtual std::string name() const { return target().device; }

  /// 64-byte aligned at least; throws Error(Memory) naming the bytes asked for.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory, std::size_t bytes) noexcept = 0;
  virtual MemoryState memory() const { return {}; }
  /// Whether the host may read and write what allocate() gives. If not, only the copies below do.
  virtual bool host_memory() const { return true; }
  /// Returns when `from` may change; what is launched later sees the new contents of `to`.
  virtual void copy_in(void* to, const void* from, std::size_t bytes);
  /// Waits for the contents.
  virtual void copy_out(void* to, const void* from, std::size_t bytes);
  /// Within the device, by at most `workers` workers (0: as many as are of use).
  virtual void copy(void* to, const void* from, std::size_t bytes, int workers = 0);

  virtual std::shared_ptr<const Artifact> compile(const kernel::KernelProgram& program) = 0;
  /// Looked for at the first call.
  virtual ProductLibrary product_library() { return {}; }
  /// Null: libraries for the device are compiled from C. The device must outlive it.
  virtual std::unique_ptr<LibraryWriter> library_writer() { return nullptr; }
  /// Whether launch() reads the program's statements, which else nobody needs once it is compiled.
  virtual bool interprets() const { return false; }
  /// Threads that may compile at the same time with profit.
  virtual int compile_threads() const { return target().workers; }
  /// Runs on at most `workers` workers (0: as many as the program can use) and returns when done
  /// (CPU) or queued (GPU). `block` holds pointers and numbers; worker memory, counters and the
  /// barrier are filled in by the device.
  virtual void launch(const Artifact& artifact, const kernel::KernelProgram& program,
                      const kernel::ArgBlock& block, int workers = 0) = 0;
  /// Runs all of `work` in order. With `recording` (null at the first time), a device that can will
  /// record the work there and submit it as one; later calls must give work of the same kernels in
  /// the same order, with any pointers, numbers and sizes. A recording belongs to one caller at a
  /// time. Gives the number of submissions that were made.
  virtual int submit(std::span<const Work> work, std::unique_ptr<Recording>* recording = nullptr,
                     int workers = 0);
  virtual void synchronize() = 0;
};

} // namespace egret::backend
