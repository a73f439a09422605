// A template: a builder of schedule trees with named parameters.
#pragma once

#include "kernel/generator.h"
#include "kernel/knobs.h"
#include "kernel/loops/tree.h"

namespace egret::kernel {

/// A region by a schedule tree: checked by why_not, settled and written for the target. Of the
/// schedule the cache policies and blocks_per_core count. Not ok with the reason where the tree is
/// illegal or no code is written for it.
Lowered lower_tree(const Region& region, const loops::TreePtr& tree, const Schedule& schedule,
                   const Target& target);

/// A tree, or why the parameters have none.
struct Built {
  loops::TreePtr tree;
  std::string reason;
  /// What the tree is of, where that is another region with the same operands and outputs.
  std::optional<Region> region;
};

/// A family of regions whose kernels are trees. A template says structure and constraints; which
/// parameters come first, the estimate of their trees decides, and how a tree becomes code, the
/// lowering of all trees.
class Template : public Generator {
public:
  /// The proposals whose trees are legal, each tree once: those first that are estimated to take
  /// the least time, or in their order where they are not ranked.
  std::vector<Schedule> space(const Region& region, const Target& target) const final;
  Lowered lower(const Region& region, const Schedule& schedule, const Target& target) const final;

  /// The tree by these parameters, or why there is none.
  Built tree(const Region& region, const Schedule& schedule, const Target& target) const;

protected:
  /// Why the region is none of the family; empty when it is.
  virtual std::string refuses(const Region& region) const = 0;
  virtual std::span<const Knob> parameters() const = 0;
  /// Whether the estimate ranks proposals. It counts neither prefetches nor the steps that combine
  /// lanes, so it cannot order those that differ in little else.
  virtual bool ranks() const { return true; }
  /// Parameters that the target's capabilities allow; in any order if they are ranked.
  virtual std::vector<Schedule> proposals(const Region& region, const Target& target) const = 0;
  /// Of a region of the family and parameters within their bounds.
  virtual Built build(const Region& region, const Schedule& schedule,
                      const Target& target) const = 0;
};

/// A loop of an axis that is split.
struct LoopDigit {
  std::int64_t step;
  Bind bind;
};

/// Loops along an axis, outermost first; each step divides the one before, the first loop is over
/// all of the axis.
loops::TreePtr digits(const Region& region, int axis, std::vector<LoopDigit> steps,
                      loops::TreePtr rest);

/// One after the other; there is one at least.
loops::TreePtr in_turn(std::vector<loops::TreePtr> parts);

/// The axes but for `without`; of a region, or of a list.
std::vector<int> axes_but(const Region& region, std::span<const int> without);
std::vector<int> axes_but(std::vector<int> axes, std::span<const int> without);

/// Loops over whole axes of a CPU's tree, outermost first: parallel until there are enough
/// iterations to share out, then serial; and how a loop inside of them is bound.
loops::TreePtr parallel_loops(const Region& region, const std::vector<int>& axes,
                              loops::TreePtr rest);
Bind bind_after(const Region& region, const std::vector<int>& axes);

/// The tree of a schedule, of a template or one that holds its own; nothing where the schedule is
/// of a generator without trees or does not fit the region.
std::optional<loops::TreePtr> tree_of(const Region& region, const Schedule& schedule,
                                      const Target& target);

} // namespace egret::kernel
