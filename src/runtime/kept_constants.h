// What constant steps of a plan stored (constant_steps.h), from run to run.
#pragma once

#include "runtime/constant_steps.h"
#include "runtime/program.h"
#include "runtime/storage.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace egret::runtime {

/// Memory for constants comes with the second run in turn that has the same numbers. That run
/// computes them there; later ones with these numbers leave the steps out. Threads that run the
/// program meanwhile compute them for themselves.
class KeptConstants {
public:
  KeptConstants() = default;
  /// `plan` and `planned` outlive this.
  KeptConstants(const kernel::Plan& plan, std::span<const compiler::PlannedWork> planned)
      : plan_(&plan), steps_(constant_steps(plan, planned)) {}

  std::size_t bytes() const { return steps_.bytes; }

  enum class Use : std::uint8_t { None, Compute, Kept };
  struct Memory {
    std::vector<std::uint64_t> numbers; ///< by ConstantSteps::scalars
    std::vector<StoragePtr> blocks;     ///< by ConstantSteps::slots
  };
  /// What one run does about constants. It owns their memory for as long as it goes on.
  struct Part {
    Use use = Use::None;
    std::shared_ptr<const Memory> memory;
    std::unique_lock<std::mutex> computing; ///< Use::Compute
  };
  /// Of a run with these inputs: where constants have memory, it stands in `slots`, by slot.
  Part take_part(std::span<const RunInput> inputs, Pool& pool, std::span<void*> slots) const;
  /// The work of a run that finds them there.
  std::span<const compiler::PlannedWork> rest() const { return steps_.rest; }
  /// After a run that has computed them, and that the device has completed.
  void keep(Part& part) const { kept_.store(std::move(part.memory)); }

private:
  bool are_numbers(std::span<const RunInput> inputs, const std::vector<std::uint64_t>& all) const;
  std::shared_ptr<const Memory> allocate(std::vector<std::uint64_t> numbers, Pool& pool) const;

  const kernel::Plan* plan_ = nullptr;
  ConstantSteps steps_;
  mutable std::atomic<std::shared_ptr<const Memory>> kept_;
  mutable std::mutex mutex_;
  mutable std::optional<std::vector<std::uint64_t>> last_; ///< numbers of a run before
};

} // namespace egret::runtime
