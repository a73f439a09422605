#include "backend/c/c_device.h"

#include "backend/c/compiler.h"
#include "backend/c/render.h"
#include "backend/clike/renderer.h"
#include "backend/common/host_device.h"
#include "backend/common/host_machine.h"
#include "support/cache_folder.h"
#include "support/fail.h"
#include "support/hash.h"

#include <chrono>

namespace egret::backend::c {
namespace {

using kernel::ArgBlock;
using kernel::KernelProgram;

/// EgretArgs of the text (render.cpp).
struct Args {
  ArgBlock block;
  void (*wait)(void*);
};
using Entry = void (*)(const Args*, std::int64_t, std::int64_t);

void wait_at(void* barrier) {
  static_cast<Barrier*>(barrier)->wait();
}

// Of a loaded library, roughly: its pages and what the loader keeps.
constexpr std::size_t kLoadedBytes = std::size_t{32} << 10;

std::string flags() {
  std::string text;
  for (const char* flag : kFlags)
    text += fmt::format("{} ", flag);
  return text;
}

class CArtifact final : public Artifact {
public:
  CArtifact(const Compiler& compiler, const KernelProgram& program, ObjectCache* objects)
      : launch_(program) {
    const auto start = std::chrono::steady_clock::now();
    const std::string text = render_c(program), symbol = clike::kernel_symbol(program);
    const Hash128 key = hash128(
        fmt::format("{}\n{}\n{}\n{}", compiler.command(), compiler.version(), flags(), text));
    if (objects)
      if (const auto object = objects->find(key))
        try {
          take(*object, symbol);
          loaded_ = true;
        } catch (const Error& error) {
          objects->reject(key, error.what());
        }
    if (!loaded_) {
      const std::string object = compiler.compile(text, program.name);
      take(object, symbol);
      if (objects)
        objects->keep(key, object);
    }
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  std::string code(const KernelProgram& program) const override { return render_c(program); }
  std::size_t bytes() const override { return kLoadedBytes; }
  double compile_seconds() const override { return seconds_; }
  bool loaded() const override { return loaded_; }

  Entry entry() const { return entry_; }
  const HostLaunch& launch() const { return launch_; }

private:
  void take(std::string_view object, const std::string& symbol) {
    library_ = load(object, symbol);
    entry_ = reinterpret_cast<Entry>(library_->function(symbol));
  }

  HostLaunch launch_;
  std::unique_ptr<Library> library_;
  Entry entry_ = nullptr;
  double seconds_ = 0;
  bool loaded_ = false;
};

/// What every C compiler gives without being told of the machine: 16 bytes of vectors and no fused
/// multiply-add, so that the text is one for all machines.
/// `compiler`: what makes machine code of it.
kernel::Target target_of(const std::string& compiler, int workers) {
  kernel::Target target;
  target.device = "c";
  target.name = "C11";
  target.workers = count_workers(workers, "c device");
  read_caches(target);
  std::uint64_t print = hash_text(compiler + "\n" + flags());
  for (std::int64_t number :
       {std::int64_t{target.workers}, target.l1_bytes, target.l2_bytes, target.l3_bytes})
    print = combine(print, static_cast<std::uint64_t>(number));
  target.fingerprint = print;
  return target;
}

class CDevice final : public HostDevice {
public:
  CDevice(Compiler compiler, kernel::Target target, ObjectCache* objects)
      : HostDevice(target.workers), compiler_(std::move(compiler)), target_(std::move(target)),
        objects_(objects) {}

  const kernel::Target& target() const override { return target_; }

  std::shared_ptr<const Artifact> compile(const KernelProgram& program) override {
    return std::make_shared<CArtifact>(compiler_, program, objects_);
  }

  void launch(const Artifact& artifact, const KernelProgram&, const ArgBlock& block,
              int workers) override {
    const auto& own = static_cast<const CArtifact&>(artifact);
    workers_.launch(own.launch(), block, workers,
                    [entry = own.entry()](const ArgBlock& full, int worker, int all) {
                      const Args args{full, wait_at};
                      entry(&args, worker, all);
                    });
  }

private:
  Compiler compiler_;
  kernel::Target target_;
  ObjectCache* objects_;
};

class SourceArtifact final : public Artifact {
public:
  std::string code(const KernelProgram& program) const override { return render_c(program); }
  double compile_seconds() const override { return 0; }
};

/// Makes text of kernels and runs none.
class SourceDevice final : public HostDevice {
public:
  explicit SourceDevice(kernel::Target target) : HostDevice(1), target_(std::move(target)) {}

  const kernel::Target& target() const override { return target_; }
  std::shared_ptr<const Artifact> compile(const KernelProgram&) override {
    return std::make_shared<SourceArtifact>();
  }
  void launch(const Artifact&, const KernelProgram& program, const ArgBlock&, int) override {
    fail(ErrorKind::Unsupported, "c: kernel {} is text and has no machine code", program.name);
  }

private:
  kernel::Target target_;
};

} // namespace

ObjectCache& user_objects() {
  static auto* const cache =
      new ObjectCache(cache_folder(), "c", flags(), object_limit_of_environment());
  return *cache;
}

std::unique_ptr<Device> make_c_device(int workers, ObjectCache* objects) {
  Compiler compiler = Compiler::find();
  kernel::Target target = target_of(compiler.command() + "\n" + compiler.version(), workers);
  return std::make_unique<CDevice>(std::move(compiler), std::move(target), objects);
}

std::unique_ptr<Device> make_c_source_device() {
  return std::make_unique<SourceDevice>(target_of("", 0));
}

} // namespace egret::backend::c
