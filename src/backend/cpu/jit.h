// LLVM as a library: from a module of IR to machine code in this process.
#pragma once

#include "backend/cpu/host.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace llvm {
class Module;
}

namespace egret::backend::cpu {

/// Machine code in this process; freed with the object. The Jit must live as long.
class Code {
public:
  virtual ~Code() = default;
  void* entry = nullptr;        ///< address of the function
  std::size_t object_bytes = 0; ///< of the object file that it was linked from
};

/// Where the time of one compilation went, in seconds.
struct JitTimes {
  double render = 0, optimize = 0, emit = 0, link = 0;
  double total() const { return render + optimize + emit + link; }
};

/// Compiles modules for one instruction set. Safe to use from several threads at once: each
/// compilation has its own context and target machine.
class Jit {
public:
  explicit Jit(const Isa& isa);
  ~Jit();
  Jit(const Jit&) = delete;
  Jit& operator=(const Jit&) = delete;

  const Isa& isa() const noexcept;
  /// Puts a function into a module and gives its name.
  using Fill = std::function<std::string(llvm::Module&)>;
  /// The object file of a fresh module that `fill` fills, in which the function is called `symbol`.
  /// InternalError with LLVM's words when the module is not well formed.
  std::string emit(const std::string& symbol, const Fill& fill, JitTimes* times = nullptr);
  /// Links what emit() made, here or in another process, by itself: several objects may have one
  /// symbol. Error(Unsupported) when it cannot be linked.
  std::unique_ptr<Code> link(const std::string& symbol, std::string_view object,
                             JitTimes* times = nullptr);
  /// The optimized IR and the assembly of the same, for people.
  std::string text(const Fill& fill, bool assembly);

  struct Impl;

private:
  std::unique_ptr<Impl> impl_;
};

} // namespace egret::backend::cpu
