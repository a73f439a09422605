#include "backend/cpu/cpu_device.h"

#include "backend/common/host_device.h"
#include "backend/cpu/code_version.h"
#include "backend/cpu/compiled.h"
#include "backend/cpu/host.h"
#include "backend/cpu/streaming_stores.h"
#include "kernel/serialize.h"
#include "support/cache_folder.h"
#include "support/fail.h"

#include <algorithm>
#include <vector>

namespace egret::backend::cpu {
namespace {

using kernel::ArgBlock;
using kernel::KernelProgram;
using Entry = void (*)(const ArgBlock*, std::int64_t, std::int64_t);

// Under its sanitizer Clang reads a signature in front of what is called; code that is made at run
// time has none, and a page of nothing there.
#if defined(__clang__)
[[clang::no_sanitize("function")]]
#endif
void call(Entry entry, const ArgBlock& block, int worker, int workers) {
  entry(&block, worker, workers);
}

// What the linker keeps of each object, and the rest of its pages.
constexpr std::size_t kLinkedBytes = std::size_t{24} << 10;

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
  CpuArtifact(std::shared_ptr<CodeGenerator> generator, const Isa& isa,
              const KernelProgram& program, ObjectCache* objects)
      : generator_(std::move(generator)), name_(program.name), launch_(program),
        aligned_(aligned_pointers(program)),
        compiled_(compile_program(*generator_, isa, program, objects)),
        entry_(reinterpret_cast<Entry>(compiled_.code->entry)) {}

  std::string code(const KernelProgram& program) const override {
    const std::string bytes = kernel::to_bytes(program);
    return "; LLVM IR\n" + generator_->text(bytes, false) + "\n; assembly\n" +
           generator_->text(bytes, true);
  }
  std::size_t bytes() const override { return compiled_.code->object_bytes + kLinkedBytes; }
  double compile_seconds() const override { return compiled_.times.total(); }
  bool loaded() const override { return compiled_.loaded; }

  Entry entry() const { return entry_; }
  const HostLaunch& launch() const { return launch_; }
  /// A promise of the program that would otherwise be a fault of the CPU.
  void check_alignment(void* const* pointers) const {
    for (auto [number, bytes] : aligned_)
      ensure(reinterpret_cast<std::uintptr_t>(pointers[number]) %
                     static_cast<std::uintptr_t>(bytes) ==
                 0,
             "kernel {}: argument {} is not aligned to {} bytes", name_, number, bytes);
  }

private:
  std::shared_ptr<CodeGenerator> generator_; ///< outlives the code
  std::string name_;
  HostLaunch launch_;
  std::vector<std::pair<int, std::int64_t>> aligned_;
  CompiledProgram compiled_;
  Entry entry_;
};

class CpuDevice final : public HostDevice {
public:
  CpuDevice(Host host, ObjectCache* objects)
      : HostDevice(host.target.workers), host_(std::move(host)),
        generator_(code_generator_library().open(host_.isa, math_library())), objects_(objects) {}

  const kernel::Target& target() const override { return host_.target; }

  std::shared_ptr<const Artifact> compile(const KernelProgram& program) override {
    return std::make_shared<CpuArtifact>(generator_, host_.isa, program, objects_);
  }

  void launch(const Artifact& artifact, const KernelProgram&, const ArgBlock& block,
              int workers) override {
    const auto& own = static_cast<const CpuArtifact&>(artifact);
    own.check_alignment(block.pointers);
    workers_.launch(own.launch(), block, workers,
                    [entry = own.entry()](const ArgBlock& full, int worker, int all) {
                      call(entry, full, worker, all);
                    });
  }

private:
  Host host_;
  std::shared_ptr<CodeGenerator> generator_;
  ObjectCache* objects_;
};

} // namespace

ObjectCache& user_objects() {
  static auto* const cache =
      new ObjectCache(cache_folder(), "cpu", code_version(), object_limit_of_environment());
  return *cache;
}

std::unique_ptr<Device> make_cpu_device(int workers, ObjectCache* objects) {
  return std::make_unique<CpuDevice>(detect_host(workers), objects);
}

} // namespace egret::backend::cpu
