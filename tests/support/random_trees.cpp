#include "support/random_trees.h"

#include "kernel/analysis.h"

#include <functional>

namespace egret::testing {

using namespace kernel::loops;
using kernel::Bind;
using kernel::Region;

namespace {

using Rewrite = std::function<TreePtr(const TreePtr&)>;

int count(const Tree& t) {
  return 1 + (t.first ? count(*t.first) : 0) + (t.rest ? count(*t.rest) : 0);
}

TreePtr with_parts(const Tree& t, TreePtr first, TreePtr rest) {
  Tree copy = t;
  copy.first = std::move(first);
  copy.rest = std::move(rest);
  return std::make_shared<const Tree>(std::move(copy));
}

/// `rewrite` of the node with that number; null when it gives null.
TreePtr at_node(const TreePtr& t, int& number, const Rewrite& rewrite) {
  if (number-- == 0)
    return rewrite(t);
  TreePtr first = t->first, rest = t->rest;
  if (first) {
    const int before = number;
    if (before < count(*first)) {
      first = at_node(first, number, rewrite);
      return first ? with_parts(*t, first, rest) : nullptr;
    }
    number -= count(*first);
  }
  if (!rest)
    return nullptr;
  rest = at_node(rest, number, rewrite);
  return rest ? with_parts(*t, first, rest) : nullptr;
}

/// Masks along the axis directly around all bodies of stages that have it.
TreePtr masked(const Region& region, const TreePtr& t, int axis) {
  if (t->kind == Kind::Body)
    return kernel::contains(region.stages[std::size_t(t->stage)].axes, axis) ? mask(axis, t) : t;
  if (t->kind == Kind::Mask && t->axis == axis)
    return t;
  return with_parts(*t, t->first ? masked(region, t->first, axis) : nullptr,
                    t->rest ? masked(region, t->rest, axis) : nullptr);
}

bool same_loop(const Tree& a, const Tree& b) {
  return a.kind == Kind::For && b.kind == Kind::For && a.axis == b.axis && a.extent == b.extent &&
         a.step == b.step;
}

TreePtr like(const Tree& l, TreePtr rest) {
  return loop(l.axis, l.extent, l.step, l.bind, std::move(rest));
}

TreePtr split(const Region& region, const TreePtr& t, Rng& rng) {
  if (t->kind != Kind::For)
    return nullptr;
  const std::int64_t by = rng.pick(std::vector<std::int64_t>{2, 3, 4, 4, 5, 8, 16});
  const Expr& extent = region.axes[std::size_t(t->axis)].extent;
  const Expr outer =
      t->extent.constant() ? ceildiv(t->extent, Expr(by)) : ceildiv(extent, Expr(t->step * by));
  return loop(t->axis, outer, t->step * by, t->bind,
              loop(t->axis, Expr(by), t->step, Bind::Serial, masked(region, t->rest, t->axis)));
}

TreePtr exchange(const TreePtr& t) {
  const TreePtr& in = t->rest;
  if (t->kind == Kind::For && in->kind == Kind::For)
    return like(*in, like(*t, in->rest));
  if (t->kind == Kind::For && in->kind == Kind::Accumulate)
    return accumulate(in->stage, like(*t, in->rest));
  if (t->kind == Kind::Accumulate && in->kind == Kind::For)
    return like(*in, accumulate(t->stage, in->rest));
  return nullptr;
}

TreePtr fuse(const TreePtr& t) {
  if (t->kind != Kind::Then)
    return nullptr;
  if (same_loop(*t->first, *t->rest))
    return like(*t->first, then(t->first->rest, t->rest->rest));
  if (t->rest->kind == Kind::Then && same_loop(*t->first, *t->rest->first))
    return then(like(*t->first, then(t->first->rest, t->rest->first->rest)), t->rest->rest);
  return nullptr;
}

TreePtr fission(const TreePtr& t) {
  if (t->kind != Kind::For || t->rest->kind != Kind::Then)
    return nullptr;
  return then(like(*t, t->rest->first), like(*t, t->rest->rest));
}

TreePtr merge(const TreePtr& t) {
  if (t->kind != Kind::For || t->rest->kind != Kind::For || t->axis != t->rest->axis)
    return nullptr;
  const Tree& in = *t->rest;
  const auto outer = t->extent.constant(), inner = in.extent.constant();
  if (!outer || !inner)
    return nullptr;
  return loop(t->axis, Expr(*outer * *inner), in.step, t->bind, in.rest);
}

/// A part of a sum, or of all of it.
TreePtr part(const Region& region, const TreePtr& t, Rng& rng) {
  const int s = int(rng.below(std::int64_t(region.stages.size())));
  return region.stages[std::size_t(s)].kind == kernel::StageKind::Reduce ? accumulate(s, t)
                                                                         : nullptr;
}

bool has_body(const Tree& t, int stage) {
  return (t.kind == Kind::Body && t.stage == stage) || (t.first && has_body(*t.first, stage)) ||
         (t.rest && has_body(*t.rest, stage));
}

/// A nest of its own for a map that has none.
TreePtr outlined(const Region& region, const TreePtr& t, Rng& rng) {
  const int s = int(rng.below(std::int64_t(region.stages.size())));
  const kernel::Stage& stage = region.stages[std::size_t(s)];
  if (stage.kind != kernel::StageKind::Map || has_body(*t, s))
    return nullptr;
  TreePtr nest = body(s);
  for (std::size_t k = stage.axes.size(); k-- > 0;)
    nest = loop(stage.axes[k], region.axes[std::size_t(stage.axes[k])].extent, 1, Bind::Serial,
                std::move(nest));
  if (rng.chance(0.5))
    return then(std::move(nest), t);
  // Behind what it may read.
  int number = int(rng.below(count(*t)));
  return at_node(t, number, [&](const TreePtr& node) { return then(nest, node); });
}

} // namespace

TreePtr rewritten(const Region& region, const TreePtr& tree, Rng& rng, const TreeBinds& binds) {
  const std::int64_t kind = rng.below(14);
  int number = int(rng.below(count(*tree)));
  TreePtr made;
  if (kind == 0) {
    made = outlined(region, tree, rng);
  } else {
    made = at_node(tree, number, [&](const TreePtr& t) -> TreePtr {
      switch (kind) {
      case 1:
      case 2:
        return split(region, t, rng);
      case 3:
      case 4:
        return exchange(t);
      case 5:
      case 6:
        return fuse(t);
      case 7:
        return fission(t);
      case 8:
        return merge(t);
      case 9:
        return part(region, t, rng);
      case 10:
        return region.operands.empty()
                   ? nullptr
                   : near(int(rng.below(std::int64_t(region.operands.size()))), t);
      default:
        return t->kind == Kind::For
                   ? loop(t->axis, t->extent, t->step, rng.pick(binds.binds), t->rest)
                   : nullptr;
      }
    });
  }
  return made && why_not(region, *made).empty() ? made : tree;
}

TreePtr random_tree(const Region& region, Rng& rng, int steps, const TreeBinds& binds) {
  TreePtr tree = plain_tree(region);
  for (int i = 0; i < steps; ++i)
    tree = rewritten(region, tree, rng, binds);
  return tree;
}

} // namespace egret::testing
