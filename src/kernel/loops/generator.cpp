// The generator of loop trees: a schedule says how the region's points are gone through, and the
// program does just that.
#include "kernel/families.h"
#include "kernel/knobs.h"
#include "kernel/loops/gpu_writer.h"
#include "kernel/loops/settle.h"
#include "kernel/loops/writer.h"

#include "egret/error.h"
#include "kernel/gpu_nest.h"

namespace egret::kernel {

namespace {

using namespace loops;

/// The tree with the outermost loop of each nest shared out.
TreePtr dealt(const TreePtr& t, Bind bind) {
  if (t->kind == Kind::Then)
    return then(dealt(t->first, bind), dealt(t->rest, bind));
  if (t->kind != Kind::For)
    return t;
  return loop(t->axis, t->extent, t->step, bind, t->rest);
}

class LoopsGenerator : public Generator {
public:
  std::string name() const override { return "loops"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    std::vector<Schedule> out;
    const TreePtr plain = plain_tree(region);
    for (const TreePtr& tree :
         {dealt(plain, target.device == "cuda" ? Bind::Grid : Bind::Core), plain}) {
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
      const TreePtr tree = parse_tree(schedule.tree, region);
      if (auto why = why_not(region, *tree); !why.empty())
        return {false, {}, why};
      const TreePtr ready = settled(region, tree);
      if (target.device == "cuda")
        return within_block(GpuWriter(region, *ready, target).run(), target);
      return {true, Writer(region, *ready, target).run(), ""};
    } catch (const Error& e) {
      return {false, {}, e.what()};
    } catch (const Cannot& e) {
      return {false, {}, e.what()};
    }
  }
};

} // namespace

const Generator& loops_generator() {
  static const LoopsGenerator generator;
  return generator;
}

} // namespace egret::kernel
