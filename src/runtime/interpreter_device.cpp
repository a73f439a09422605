#include "runtime/interpreter_device.h"

#include "backend/reference/program_interpreter.h"
#include "support/fail.h"

#include <new>

namespace egret::runtime {
namespace {

constexpr std::align_val_t kAlignment{64};

class Interpreted final : public backend::Artifact {
public:
  std::string code(const kernel::KernelProgram& program) const override {
    return kernel::print(program);
  }
  std::size_t bytes() const override { return 0; }
  double compile_seconds() const override { return 0; }
};

class InterpreterDevice final : public backend::Device {
public:
  InterpreterDevice() {
    target_.device = "cpu";
    target_.name = "interpreter";
    target_.fingerprint = 0x696e746572707265u;
  }
  const kernel::Target& target() const override { return target_; }

  void* allocate(std::size_t bytes) override {
    void* memory = ::operator new(bytes, kAlignment, std::nothrow);
    if (!memory)
      fail(ErrorKind::Memory, "memory: {} bytes cannot be had", bytes);
    return memory;
  }
  void release(void* memory, std::size_t) noexcept override {
    ::operator delete(memory, kAlignment);
  }
  std::shared_ptr<const backend::Artifact> compile(const kernel::KernelProgram&) override {
    return std::make_shared<Interpreted>();
  }
  bool interprets() const override { return true; }
  void launch(const backend::Artifact&, const kernel::KernelProgram& program,
              const kernel::ArgBlock& block, int) override {
    backend::reference::interpret(program, block);
  }
  void synchronize() override {}

private:
  kernel::Target target_;
};

} // namespace

std::unique_ptr<backend::Device> make_interpreter_device() {
  return std::make_unique<InterpreterDevice>();
}

} // namespace egret::runtime
