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
};

/// A family of regions whose kernels are trees. A template says structure and constraints; which
/// parameters come first, the estimate of their trees decides, and how a tree becomes code, the
/// lowering of all trees.
class Template : public Generator {
public:
  /// The proposals whose trees are legal, those first that are estimated to take the least time;
  /// each tree once.
  std::vector<Schedule> space(const Region& region, const Target& target) const final;
  Lowered lower(const Region& region, const Schedule& schedule, const Target& target) const final;

  /// The tree by these parameters, or why there is none.
  Built tree(const Region& region, const Schedule& schedule, const Target& target) const;

protected:
  /// Why the region is none of the family; empty when it is.
  virtual std::string refuses(const Region& region) const = 0;
  virtual std::span<const Knob> parameters() const = 0;
  /// Parameters that the target's capabilities allow, in any order.
  virtual std::vector<Schedule> proposals(const Region& region, const Target& target) const = 0;
  /// Of a region of the family and parameters within their bounds.
  virtual Built build(const Region& region, const Schedule& schedule,
                      const Target& target) const = 0;
};

/// The tree of a schedule, of a template or one that holds its own; nothing where the schedule is
/// of a generator without trees or does not fit the region.
std::optional<loops::TreePtr> tree_of(const Region& region, const Schedule& schedule,
                                      const Target& target);

} // namespace egret::kernel
