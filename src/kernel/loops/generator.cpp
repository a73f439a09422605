// The generator of loop trees: a schedule says how the region's points are gone through, and the
// program does just that.
#include "kernel/families.h"
#include "kernel/knobs.h"
#include "kernel/templates/template.h"

#include "egret/error.h"

namespace egret::kernel {

namespace loops {
namespace {

/// Parts of a sum that are made at the most where none of its results has another to go with.
constexpr std::int64_t kMostParts = 1 << 14;

/// The innermost loop around a body, by the threads of a block.
TreePtr among_threads(const Region& region, const TreePtr& t) {
  constexpr std::int64_t kThreads = 256;
  const auto n = t->extent.constant();
  if (t->rest->kind == Kind::For)
    return loop(t->axis, t->extent, t->step, t->bind, among_threads(region, t->rest));
  if (t->rest->kind != Kind::Body || !n || *n < 32)
    return t;
  const std::int64_t threads = *n < kThreads ? 32 : kThreads;
  return loop(t->axis, Expr((*n + threads - 1) / threads), threads, Bind::Serial,
              loop(t->axis, Expr(threads), 1, Bind::Lane, mask(t->axis, t->rest)));
}

/// The tree with the outermost loop of each nest shared out. Of sums without loops over results,
/// each iteration of the first loop makes a part.
TreePtr dealt(const Region& region, const TreePtr& t, Bind bind) {
  if (t->kind == Kind::Then)
    return then(dealt(region, t->first, bind), dealt(region, t->rest, bind));
  if (t->kind == Kind::For)
    return loop(t->axis, t->extent, t->step, bind, t->rest);
  if (t->kind != Kind::Accumulate || t->rest->kind != Kind::For)
    return t;
  const Stage& stage = region.stages[std::size_t(t->stage)];
  const Tree& terms = *t->rest;
  const auto n = terms.extent.constant();
  if (stage.kind != StageKind::Reduce || stage.monoid == Monoid::ArgMax || !n || *n > kMostParts ||
      terms.rest->kind != Kind::For)
    return t;
  return accumulate(t->stage,
                    loop(terms.axis, terms.extent, terms.step, bind,
                         accumulate(t->stage, bind == Bind::Grid ? among_threads(region, terms.rest)
                                                                 : terms.rest)));
}

class LoopsGenerator : public Generator {
public:
  std::string name() const override { return "loops"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    std::vector<Schedule> out;
    const TreePtr plain = plain_tree(region);
    for (const TreePtr& tree :
         {dealt(region, plain, target.is_gpu() ? Bind::Grid : Bind::Core), plain}) {
      if (!why_not(region, *tree).empty())
        continue;
      Schedule s;
      s.generator = name();
      s.tree = to_text(*tree, region);
      out.push_back(std::move(s));
      break;
    }
    return out;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    if (auto why = refused_settings(schedule, target, {}, Takes::Tree); !why.empty())
      return {false, {}, why};
    if (schedule.tree.empty())
      return {false, {}, "loops wants a @tree"};
    try {
      return lower_tree(region, parse_tree(schedule.tree, region), schedule, target);
    } catch (const Error& e) {
      return {false, {}, e.what()};
    }
  }
};

} // namespace
} // namespace loops

const Generator& loops_generator() {
  static const loops::LoopsGenerator generator;
  return generator;
}

} // namespace egret::kernel
