#include "backend/cpu/cpu_device.h"

#include "backend/common/launch_number.h"
#include "backend/cpu/code_version.h"
#include "backend/cpu/compiled.h"
#include "backend/cpu/host.h"
#include "backend/cpu/render.h"
#include "support/cache_folder.h"
#include "support/checked.h"
#include "support/fail.h"
#include "support/memory.h"
#include "support/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <vector>

namespace egret::backend::cpu {
namespace {

using kernel::ArgBlock;
using kernel::KernelProgram;
using Entry = void (*)(const ArgBlock*, std::int64_t, std::int64_t);

// Released blocks that a device keeps for its next requests.
constexpr std::size_t kCacheLimit = std::size_t{4} << 30;
// What the linker keeps of each object, and the rest of its pages.
constexpr std::size_t kLinkedBytes = std::size_t{24} << 10;

Expr worker_bytes(const KernelProgram& program) {
  Expr bytes = 0;
  for (const kernel::Buffer& buffer : program.buffers)
    if (buffer.space == kernel::Space::Worker)
      bytes =
          bytes +
          ceildiv(buffer.elements * Expr(static_cast<std::int64_t>(size_of(buffer.dtype))), 64) *
              64;
  return bytes;
}

// Pointers that must be aligned because the kernel stores around the caches: number in the block
// and bytes.
std::vector<std::pair<int, std::int64_t>> aligned_pointers(const KernelProgram& program) {
  std::vector<std::pair<int, std::int64_t>> all;
  if (has_streaming_store(program.body))
    for (const kernel::Buffer& buffer : program.buffers)
      if (buffer.space == kernel::Space::Argument && buffer.written)
        all.emplace_back(buffer.argument, std::max<std::int64_t>(1, buffer.alignment));
  return all;
}

class CpuArtifact final : public Artifact {
public:
  CpuArtifact(std::shared_ptr<Jit> jit, const KernelProgram& program, ObjectCache* objects)
      : jit_(std::move(jit)), name_(program.name), workers_(program.launch.workers, program.dims),
        worker_bytes_(backend::cpu::worker_bytes(program), program.dims),
        aligned_(aligned_pointers(program)), compiled_(compile_program(*jit_, program, objects)),
        entry_(reinterpret_cast<Entry>(compiled_.code->entry)) {}

  std::string code(const KernelProgram& program) const override {
    auto fill = [&](llvm::Module& module) { return render(program, jit_->isa(), module); };
    return "; LLVM IR\n" + jit_->text(fill, false) + "\n; assembly\n" + jit_->text(fill, true);
  }
  std::size_t bytes() const override { return compiled_.code->object_bytes + kLinkedBytes; }
  double compile_seconds() const override { return compiled_.times.total(); }
  bool loaded() const override { return compiled_.loaded; }

  Entry entry() const { return entry_; }
  std::int64_t useful_workers(const std::int64_t* dims) const { return workers_.at(dims); }
  std::int64_t worker_bytes(const std::int64_t* dims) const { return worker_bytes_.at(dims); }
  /// A promise of the program that would otherwise be a fault of the CPU.
  void check_alignment(void* const* pointers) const {
    for (auto [number, bytes] : aligned_)
      ensure(reinterpret_cast<std::uintptr_t>(pointers[number]) %
                     static_cast<std::uintptr_t>(bytes) ==
                 0,
             "kernel {}: argument {} is not aligned to {} bytes", name_, number, bytes);
  }

private:
  std::shared_ptr<Jit> jit_; ///< outlives the code
  std::string name_;
  LaunchNumber workers_, worker_bytes_;
  std::vector<std::pair<int, std::int64_t>> aligned_;
  CompiledProgram compiled_;
  Entry entry_;
};

// What one launch at a time needs, kept from launch to launch.
struct Scratch {
  std::vector<void*> memory;      ///< by worker
  std::vector<std::size_t> sizes; ///< bytes of each
  Barrier barrier;

  ~Scratch() {
    for (std::size_t i = 0; i < memory.size(); ++i)
      release_aligned(memory[i], sizes[i]);
  }
  void reserve(std::size_t workers, std::size_t bytes) {
    memory.resize(std::max(memory.size(), workers), nullptr);
    sizes.resize(memory.size(), 0);
    for (std::size_t i = 0; i < workers; ++i)
      if (sizes[i] < bytes) {
        std::size_t size = round_up(bytes, std::size_t{4096});
        void* fresh = allocate_aligned(size);
        release_aligned(memory[i], sizes[i]);
        memory[i] = fresh;
        sizes[i] = size;
      }
  }
};

class CpuDevice final : public Device {
public:
  CpuDevice(int workers, ObjectCache* objects)
      : host_(detect_host(workers)), jit_(std::make_shared<Jit>(host_.isa)), objects_(objects),
        pool_(host_.target.workers), memory_(kCacheLimit) {}

  const kernel::Target& target() const override { return host_.target; }

  void* allocate(std::size_t bytes) override { return memory_.allocate(bytes); }
  void release(void* memory, std::size_t bytes) noexcept override {
    memory_.release(memory, bytes);
  }

  std::shared_ptr<const Artifact> compile(const KernelProgram& program) override {
    return std::make_shared<CpuArtifact>(jit_, program, objects_);
  }

  void launch(const Artifact& artifact, const KernelProgram& program, const ArgBlock& block,
              int workers) override {
    const auto& own = static_cast<const CpuArtifact&>(artifact);
    own.check_alignment(block.pointers);
    std::int64_t useful = std::max<std::int64_t>(1, own.useful_workers(block.dims));
    std::int64_t allowed = workers > 0 ? std::min(workers, pool_.size()) : pool_.size();
    auto count = static_cast<int>(std::min(useful, allowed));
    std::int64_t bytes = own.worker_bytes(block.dims);
    if (pool_.inside())
      count = 1;
    if (count == 1 && bytes == 0) {
      // No other thread takes part and nothing is shared: other launches need not be waited for.
      own.entry()(&block, 0, 1);
      return;
    }
    std::lock_guard lock(launch_);
    ArgBlock full = block;
    if (bytes > 0) {
      scratch_.reserve(static_cast<std::size_t>(count), static_cast<std::size_t>(bytes));
      full.worker_memory = scratch_.memory.data();
    }
    if (count == 1) {
      own.entry()(&full, 0, 1);
      return;
    }
    if (program.uses_barrier) {
      scratch_.barrier.reset(count);
      full.barrier = &scratch_.barrier;
    }
    Entry entry = own.entry();
    pool_.run(count, [&](int worker, int all) { entry(&full, worker, all); });
  }

  void synchronize() override {} // launches have ended when launch() returns

private:
  Host host_;
  std::shared_ptr<Jit> jit_;
  ObjectCache* objects_;
  ThreadPool pool_;
  MemoryPool memory_;
  std::mutex launch_; ///< held while scratch_ is in use
  Scratch scratch_;
};

} // namespace

ObjectCache& user_objects() {
  static auto* const cache =
      new ObjectCache(cache_folder(), "cpu", code_version(), object_limit_of_environment());
  return *cache;
}

std::unique_ptr<Device> make_cpu_device(int workers, ObjectCache* objects) {
  return std::make_unique<CpuDevice>(workers, objects);
}

} // namespace egret::backend::cpu
