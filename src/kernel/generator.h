// A generator turns regions of its form into kernel programs.
#pragma once

#include "kernel/layouts.h"
#include "kernel/program.h"
#include "kernel/region.h"
#include "kernel/target.h"

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

/// The generators of a target's device, families before the generic one, which accepts every
/// region. Fixed lists.
std::span<const Generator* const> generators(const Target& target);

/// The program of the first generator that takes the region, with its first schedule that lowers.
/// InternalError when none does.
struct Chosen {
  Schedule schedule;
  KernelProgram program;
};
Chosen lower_greedily(const Region& region, const Target& target);

/// The region by the frugal form of `schedule`, if its generator has one.
std::optional<Chosen> lower_frugally(const Region& region, const Schedule& schedule,
                                     const Target& target);

} // namespace egret::kernel
