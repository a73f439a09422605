// The generator of loop trees: a schedule says how the region's points are gone through, and the
// program does just that.
#include "kernel/families.h"
#include "kernel/knobs.h"
#include "kernel/templates/template.h"

#include "egret/error.h"

namespace egret::kernel {

namespace loops {
namespace {

class LoopsGenerator : public Generator {
public:
  std::string name() const override { return "loops"; }

  std::vector<Schedule> space(const Region&, const Target&) const override { return {}; }

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
