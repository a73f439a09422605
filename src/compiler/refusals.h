// Kernels that cannot be used: their device's compiler refuses them, or verification finds them
// wrong. The next schedule of the family takes their place, then another generator's, at last the
// generic one's.
#pragma once

#include "compiler/report.h"
#include "kernel/generator.h"

#include <cstdint>
#include <exception>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace egret::compiler {

/// What an error says of the kernel that it was thrown for; nothing when it is not about the kernel
/// (a lost device, no memory, a missing compiler).
std::optional<std::string> refusal_of(const std::exception_ptr& error);

class Refusals {
public:
  Refusals() = default;
  /// `strict`: replace() and drop() rethrow what refused the kernel.
  Refusals(const kernel::Target& target, bool strict);

  /// The greedy schedule. Generators that throw InternalError are passed over and listed.
  kernel::Chosen lower_greedily(const kernel::Region& region);

  /// A verified program of the region that was not refused before, in place of the one with the
  /// hash `program`. Rethrows `why` where that is not about the kernel, or where nothing is left.
  kernel::Chosen replace(const kernel::Region& region, const kernel::Schedule& schedule,
                         std::uint64_t program, const std::exception_ptr& why);
  /// The same for a program that is dropped, as there is another one already.
  void drop(const std::string& kernel, const kernel::Schedule& schedule, std::uint64_t program,
            const kernel::Schedule& instead, const std::exception_ptr& why);
  bool refused(std::uint64_t program) const { return programs_.contains(program); }
  /// Lists what a search found to be wrong or not to compile of the schedules that it would have
  /// taken first; InternalError in strict mode.
  void note(const SearchReport& search);

  std::vector<RefusedKernel> list;

private:
  void note_failed(const std::string& kernel, const std::vector<kernel::FailedLowering>& failed,
                   const std::string& instead);
  std::string check(const std::exception_ptr& why) const;

  kernel::Target target_;
  bool strict_ = false;
  std::set<std::uint64_t> programs_;
  std::set<std::pair<std::uint64_t, std::string>> tried_; ///< schedules, by the region's hash
};

/// What Options::strict is where it is not set: EGRET_STRICT=1.
bool strict_by_environment();

} // namespace egret::compiler
