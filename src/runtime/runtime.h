// The process's one runtime: a device, its memory pool, and the store of compiled programs.
#pragma once

#include "runtime/program.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace egret::runtime {

/// How graphs are run.
enum class Engine : std::uint8_t {
  Cpu,         ///< compiled to machine code
  Interpreter, ///< compiled to kernel programs, which are interpreted and checked: slow
  Reference,   ///< by the reference executor, node by node: slow, the oracle of tests
};

/// Everything here is thread-safe.
class Runtime {
public:
  /// Made at first use, never destroyed, so that tensors of static duration may outlive main().
  static Runtime& instance();

  StoragePtr allocate(std::size_t bytes);
  Pool& pool();
  void copy_in(const StoragePtr& to, const void* from, std::size_t bytes);
  void copy_out(void* to, const StoragePtr& from, std::size_t bytes);
  void copy(const StoragePtr& to, const StoragePtr& from, std::size_t bytes);

  /// The program for a graph; compiled when the store has none.
  std::shared_ptr<const Program> program(const ir::Graph& graph,
                                         const compiler::Options& options = {});
  /// Programs kept; the least recently used one leaves.
  void set_plan_limit(std::size_t limit);
  void clear_plans();

  /// Cpu at the start, or what EGRET_ENGINE names (cpu, interpreter, reference).
  Engine engine() const;
  void use(Engine engine);
  const kernel::Target& target();
  /// Another number after use() and clear_plans(): what keeps programs beside the store asks it.
  std::uint64_t generation() const noexcept;

private:
  Runtime();
  ~Runtime() = delete;
  struct Impl;
  Impl* impl_;
};

} // namespace egret::runtime
