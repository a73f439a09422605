// A generator turns regions of its form into kernel programs.
#pragma once

#include "kernel/layouts.h"
#include "kernel/program.h"
#include "kernel/region.h"
#include "kernel/target.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace egret::kernel {

/// What every generator promises of its programs: pointer arguments are the region's tensor
/// operands in order, then its outputs in order, then workspaces; scalars are its by-value operands
/// in order; dims are the symbols that its expressions mention, in any order. Results do not depend
/// on the number of workers, and stay right when an output takes over the memory of its `alias`.

/// A program, or the reason why the generator cannot make one of this region with this schedule.
struct Lowered {
  bool ok = false;
  KernelProgram program;
  std::string reason;
};

class Generator {
public:
  virtual ~Generator() = default;
  virtual std::string name() const = 0;
  /// Schedules worth trying, the likely best first; empty when the region is not of the generator's
  /// form.
  virtual std::vector<Schedule> space(const Region& region, const Target& target) const = 0;
  virtual Lowered lower(const Region& region, const Schedule& schedule,
                        const Target& target) const = 0;
  /// A schedule that gives the same results bit by bit and needs less memory of the plan; nothing
  /// where there is none.
  virtual std::optional<Schedule> frugal(const Schedule&) const { return std::nullopt; }
  /// Orders of operands in memory from which its programs of this region may run faster, the
  /// likely best first for each operand. Nothing is promised: a search times them.
  virtual std::vector<LayoutWish> layouts(const Region& region, const Target& target) const {
    (void)region, (void)target;
    return {};
  }
};

/// The generators of a target's device, families before the generic one, which supports every
/// region except sorts; behind it `loops`, which proposes nothing by itself. Fixed lists.
std::span<const Generator* const> generators(const Target& target);
/// The one of a name; null where the target's device has none.
const Generator* find_generator(std::string_view name, const Target& target);

struct Chosen {
  Schedule schedule;
  KernelProgram program;
};
/// A schedule for which a generator threw InternalError, or a generator's name where its schedules
/// could not be listed.
struct FailedLowering {
  std::string schedule, reason;
};
/// The program of the first generator that takes the region, with its first schedule that lowers.
/// InternalError when none does. A generator that throws InternalError is passed over and noted in
/// `failed`; without that the error is the caller's.
Chosen lower_greedily(const Region& region, const Target& target,
                      std::vector<FailedLowering>* failed = nullptr);

/// The first program that `takes` accepts: of the generator called `family`, then of the others in
/// their order up to the generic one; those that only a search may choose are left out. What a
/// generator cannot make for a broken promise of its own is passed over. Nothing when none is
/// accepted. `tries`: which schedules are looked at.
std::optional<Chosen> lower_next(const Region& region, const Target& target,
                                 const std::string& family,
                                 const std::function<bool(const Schedule&)>& tries,
                                 const std::function<bool(Chosen&)>& takes);

/// The region by the frugal form of `schedule`, if its generator has one.
std::optional<Chosen> lower_frugally(const Region& region, const Schedule& schedule,
                                     const Target& target);

} // namespace egret::kernel
