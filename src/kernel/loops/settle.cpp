#include "kernel/loops/settle.h"

#include "kernel/analysis.h"
#include "kernel/loops/paths.h"

namespace egret::kernel::loops {

namespace {

bool holds_body(const Tree& t, int stage) {
  if (t.kind == Kind::Body)
    return t.stage == stage;
  return (t.first && holds_body(*t.first, stage)) || (t.rest && holds_body(*t.rest, stage));
}

bool is_dealt(const Tree& t) {
  return t.kind == Kind::For && (t.bind == Bind::Core || t.bind == Bind::Grid);
}

class Settle {
public:
  explicit Settle(const Region& region) : r_(region) {}

  TreePtr run(const Tree& t) {
    switch (t.kind) {
    case Kind::Body:
      return body(t.stage);
    case Kind::For:
      return loop(t.axis, t.extent, t.step, t.bind, run(*t.rest));
    case Kind::Mask:
      return run(*t.rest);
    case Kind::Prefetch:
      return prefetch(t.axis, t.step, run(*t.rest));
    case Kind::Near:
      return near(t.operand, run(*t.rest));
    case Kind::Then:
      return then(run(*t.first), run(*t.rest));
    case Kind::Collapse:
      return collapse(int(t.step), int(t.extent.value()), run(*t.rest));
    case Kind::Accumulate:
      break;
    }
    return inwards(t, run(*t.rest));
  }

private:
  /// The accumulation `sum` around `t`.
  TreePtr inwards(const Tree& sum, const TreePtr& t) {
    const int stage = sum.stage;
    switch (t->kind) {
    case Kind::Body:
    case Kind::Mask:
    case Kind::Collapse:
      break;
    case Kind::For: {
      const bool stays =
          (contains(r_.stages[std::size_t(stage)].over, t->axis) && !is_single(*t)) ||
          (is_dealt(*t) && shares_sums(*t, stage)) || t->bind == Bind::Matrix;
      if (!stays)
        return loop(t->axis, t->extent, t->step, t->bind, inwards(sum, t->rest));
      break;
    }
    case Kind::Accumulate: {
      if (t->stage == stage)
        return t;
      // Where it would not get further, it stays outside, as the tree says.
      const TreePtr inside = inwards(sum, t->rest);
      if (inside->kind == Kind::Accumulate && inside->rest == t->rest)
        break;
      return accumulate(t->stage, inside, t->step);
    }
    case Kind::Prefetch:
      return prefetch(t->axis, t->step, inwards(sum, t->rest));
    case Kind::Near:
      return near(t->operand, inwards(sum, t->rest));
    case Kind::Then:
      return holds_body(*t->first, stage) ? then(inwards(sum, t->first), t->rest)
                                          : then(t->first, inwards(sum, t->rest));
    }
    return accumulate(stage, t, sum.step);
  }

  /// Whether one of the loops that are dealt out together is along a reduced axis.
  bool shares_sums(const Tree& t, int stage) const {
    for (const Tree* at = &t; is_dealt(*at); at = at->rest.get())
      if (contains(r_.stages[std::size_t(stage)].over, at->axis))
        return true;
    return false;
  }

  const Region& r_;
};

} // namespace

TreePtr settled(const Region& region, const TreePtr& tree) {
  return Settle(region).run(*tree);
}

} // namespace egret::kernel::loops
