#include "loops/facts.h"

#include "kernel/analysis.h"
#include "kernel/loops/tree.h"
#include "kernel/program.h"
#include "kernel/scatter_axes.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <set>

namespace egret::loops {

using kernel::contains;
using kernel::Region;
using kernel::Source;
using kernel::Stage;
using kernel::StageKind;
using kernel::Target;

namespace {

std::uint64_t bit(int stage) {
  return std::uint64_t(1) << stage;
}

/// Iterations that may be written out.
constexpr std::int64_t kFew = 16;
/// A factor is at most so large.
constexpr std::int64_t kLargest = 1024;

/// Outputs that a stage's points update in order.
bool updates(const Region& region, int stage) {
  return std::ranges::any_of(region.outputs, [&](const kernel::Output& out) {
    return out.stage == stage && out.combine != kernel::Combine::Store;
  });
}

/// Whether updates along the axis never meet.
bool apart(const Region& region, int stage, int axis) {
  return std::ranges::all_of(region.outputs, [&](const kernel::Output& out) {
    return out.stage != stage || out.combine == kernel::Combine::Store ||
           contains(kernel::independent_axes(region, out), axis);
  });
}

/// Whether a stage's result does not hang on the order of its terms to the last bit.
bool any_order(const Stage& stage) {
  if (stage.kind != StageKind::Reduce || stage.monoid == Monoid::ArgMax)
    return false;
  return stage.monoid == Monoid::Max || !is_float(stage.acc_dtype);
}

/// Whether exchanging a loop over `a` with one over `b` changes the stage's values; `exact`: in the
/// last bits, too.
bool order_matters(const Region& region, int s, int a, int b, bool exact) {
  const Stage& stage = region.stages[std::size_t(s)];
  if (contains(stage.over, a) && contains(stage.over, b))
    if (stage.kind == StageKind::Scan || (exact ? !any_order(stage) : !regroups(stage)))
      return true;
  return updates(region, s) && !apart(region, s, a) && !apart(region, s, b);
}

/// Whether `reader` uses a result of `maker` at its own index along the axis only.
bool aligned(const Region& region, int reader, const kernel::Load& load, int axis) {
  const Stage& stage = region.stages[std::size_t(reader)];
  const Stage& made = region.stages[std::size_t(load.number)];
  if (contains(made.over, axis))
    return false;
  const std::vector<int> results = kernel::result_axes(made);
  const auto place = std::ranges::find(results, axis);
  const auto own = std::ranges::find(stage.axes, axis);
  if (place == results.end() || own == stage.axes.end())
    return false;
  const auto j = std::size_t(place - results.begin());
  const int variable = int(own - stage.axes.begin());
  return load.indirect.empty() && load.map.holes.empty() && j < load.map.coords.size() &&
         load.map.coords[j] == Expr::axis(variable, region.axes[std::size_t(axis)].extent);
}

class Writer {
public:
  Writer(const Region& region, const Target& target) : r_(region), target_(target) {}

  std::string run() {
    stages_ = int(r_.stages.size());
    for (int a = 0; a < int(r_.axes.size()); ++a)
      axis(a);
    for (int s = 0; s < stages_; ++s)
      stage(s);
    for (int a = 0; a < int(r_.axes.size()); ++a)
      sets(a);
    operands();
    for (const UnitProduct& u : unit_products(r_, target_))
      line("(product {} {} {} {} {} {} {})", u.stage, u.m, u.n, u.k, u.rows, u.columns, u.depth);
    line("(deals \"{}\")", target_.threads > 0 ? "grid" : "core");
    if (std::ranges::all_of(r_.outputs, [](const kernel::Output& o) { return o.alias < 0; }))
      line("(sorted)");
    return std::move(text_);
  }

private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }

  void axis(int a) {
    const Expr& extent = r_.axes[std::size_t(a)].extent;
    if (const auto n = extent.constant())
      line("(size {} {})", a, *n);
    else
      line("(multiple {} {})", a, std::max<std::int64_t>(1, extent.divisor()));
    for (const std::int64_t f : factors_of(r_, a, target_)) {
      line("(factor {} {})", a, f);
      if (f <= kFew)
        line("(few {} {})", a, f);
    }
    for (int lanes = lanes_of_region(r_, target_), i = 0; lanes > 1 && i < 2; lanes /= 2, ++i)
      line("(lanes {} {})", a, lanes);
  }

  void stage(int s) {
    const Stage& stage = r_.stages[std::size_t(s)];
    line("(nest {} {})", bit(s), s);
    std::vector<int> order;
    for (const int a : stage.axes)
      if (!contains(stage.over, a)) {
        line("(result {} {})", s, a);
        order.push_back(a);
      }
    for (const int a : stage.over) {
      if (stage.kind == StageKind::Reduce)
        line("(reduced {} {})", s, a);
      order.push_back(a);
    }
    if (regroups(stage))
      line("(regroups {})", s);
    if (may_be_inline(r_, s))
      line("(inlined {})", s);
    for (std::size_t i = 0; i < order.size(); ++i)
      for (std::size_t j = i + 1; j < order.size(); ++j)
        line("(before {} {} {})", s, order[i], order[j]);
    line("(set (takes {}) {})", s, taken_by(r_, s));
    whole_.emplace_back(r_.axes.size());
    for (int a = 0; a < int(r_.axes.size()); ++a) {
      whole_.back()[std::size_t(a)] = whole(s, a);
      line("(set (whole {} {}) {})", s, a, whole_.back()[std::size_t(a)]);
    }
  }

  /// Stages that a stage needs at other indices along the axis.
  std::uint64_t whole(int reader, int axis) const {
    std::uint64_t bits = 0;
    for (const kernel::Load& load : r_.stages[std::size_t(reader)].loads) {
      if (load.source != Source::Stage)
        continue;
      const bool apart = !aligned(r_, reader, load, axis);
      if (apart)
        bits |= bit(load.number);
      if (may_be_inline(r_, load.number))
        bits |=
            apart ? taken_by(r_, load.number) : whole_[std::size_t(load.number)][std::size_t(axis)];
    }
    return bits;
  }

  std::uint64_t all(const std::function<bool(int)>& holds) const {
    std::uint64_t bits = 0;
    for (int s = 0; s < stages_; ++s)
      if (holds(s))
        bits |= bit(s);
    return bits;
  }

  void sets(int a) {
    for (int b = 0; b < int(r_.axes.size()); ++b) {
      line("(set (fixed {} {}) {})", a, b,
           all([&](int s) { return order_matters(r_, s, a, b, true); }));
      line("(set (stuck {} {}) {})", a, b,
           all([&](int s) { return order_matters(r_, s, a, b, false); }));
    }
    const std::uint64_t serial = all([&](int s) { return !is_parallel(r_, s, a); });
    const std::uint64_t lonely = all([&](int s) {
      const Stage& stage = r_.stages[std::size_t(s)];
      return !is_parallel(r_, s, a) && !(contains(stage.over, a) && regroups(stage));
    });
    line("(set (barred {} \"vector\") {})", a, serial);
    line("(set (barred {} \"vector-sums\") {})", a, lonely);
    line("(set (barred {} \"parts\") {})", a, lonely);
    if (target_.threads > 0) {
      for (const char* bind : {"grid", "warp", "lane"})
        line("(set (barred {} \"{}\") {})", a, bind, serial);
    } else {
      line("(set (barred {} \"core\") {})", a, serial);
    }
  }

  /// Axes along which a load stays where it is, of a stage that has others.
  void operands() {
    std::set<std::pair<int, int>> known;
    for (const Stage& stage : r_.stages)
      for (const kernel::Load& load : stage.loads) {
        if (load.source != Source::Operand || !load.indirect.empty())
          continue;
        const std::vector<bool> depends = kernel::axes_of_load(r_, stage, load);
        for (const int a : stage.axes)
          if (!depends[std::size_t(a)] && std::ranges::find(depends, true) != depends.end() &&
              known.emplace(load.number, a).second)
            line("(reused {} {})", load.number, a);
      }
  }

  const Region& r_;
  const Target& target_;
  int stages_ = 0;
  std::vector<std::vector<std::uint64_t>> whole_; ///< by stage and axis
  std::string text_;
};

/// The value that was converted to f32 without being rounded.
int widened(const Stage& stage, int value) {
  const auto at = [&](int v) -> const kernel::BodyValue& { return stage.body[std::size_t(v)]; };
  while (at(value).kind == kernel::BodyValue::Kind::Apply && at(value).op == Op::Cast &&
         at(value).dtype == DType::F32)
    value = at(value).args[0];
  return value;
}

/// What a CPU's code is written for (docs/loops.md): tiles of AMX; pairs of bf16, rows by a vector
/// of columns, an even depth.
std::vector<UnitProduct> cpu_products(int s, int m, int n, int k, const Target& target) {
  std::vector<UnitProduct> found;
  if (target.unit(kernel::FragmentLayout::Tiles) != nullptr)
    found.push_back(
        {s, m, n, k, kernel::kTileRows, kernel::kTileBytes / 4, kernel::kTileBytes / 2});
  if (target.unit(kernel::FragmentLayout::Pairs, DType::BF16) == nullptr)
    return found;
  const std::int64_t columns = target.vector_bytes / 4;
  if (columns < 2 || columns > kernel::loops::kMostLanes)
    return found;
  for (const std::int64_t depth : {2, 32})
    for (const std::int64_t rows : {2, 4, 8})
      found.push_back({s, m, n, k, rows, columns, depth});
  return found;
}

} // namespace

bool may_be_inline(const Region& region, int stage) {
  return region.stages[std::size_t(stage)].kind == StageKind::Map &&
         !kernel::is_output(region, stage);
}

std::uint64_t taken_by(const Region& region, int reader) {
  std::uint64_t bits = 0;
  for (const kernel::Load& load : region.stages[std::size_t(reader)].loads)
    if (load.source == Source::Stage && (bits & bit(load.number)) == 0) {
      bits |= bit(load.number);
      if (may_be_inline(region, load.number))
        bits |= taken_by(region, load.number);
    }
  return bits;
}

bool regroups(const Stage& stage) {
  return stage.kind == StageKind::Reduce && stage.monoid != Monoid::ArgMax;
}

bool is_parallel(const Region& region, int s, int axis) {
  const Stage& stage = region.stages[std::size_t(s)];
  if (contains(stage.over, axis))
    return false;
  return !updates(region, s) || apart(region, s, axis);
}

int lanes_of_region(const Region& region, const Target& target) {
  std::vector<int> stages;
  for (int s = 0; s < int(region.stages.size()); ++s)
    stages.push_back(s);
  return std::max(1, kernel::lanes_for(region, stages, target.vector_bytes));
}

std::vector<std::int64_t> factors_of(const Region& region, int axis, const Target& target) {
  const Expr& extent = region.axes[std::size_t(axis)].extent;
  const std::int64_t n = extent.constant().value_or(std::max<std::int64_t>(2, extent.upper()));
  std::set<std::int64_t> found;
  const std::int64_t lanes = lanes_of_region(region, target);
  for (const std::int64_t f : {lanes, 2 * lanes, 4 * lanes})
    found.insert(f);
  for (const std::int64_t f : {2, 4, 8, 16, 32, 64, 128, 256})
    found.insert(f);
  if (extent.is_constant()) // small ones that are no powers of two, but divide
    for (std::int64_t f = 3; f <= 12; ++f)
      if (n % f == 0)
        found.insert(f);
  std::erase_if(found, [&](std::int64_t f) { return f < 2 || f >= n || f > kLargest; });
  while (found.size() > 12)
    found.erase(std::prev(found.end()));
  return {found.begin(), found.end()};
}

std::vector<UnitProduct> unit_products(const Region& region, const Target& target) {
  std::vector<UnitProduct> found;
  const bool gpu = target.threads > 0;
  if (target.units.empty() || (gpu && target.subgroup != 32))
    return found;
  for (int s = 0; s < int(region.stages.size()); ++s) {
    const Stage& stage = region.stages[std::size_t(s)];
    if (stage.kind != StageKind::Reduce || stage.monoid != Monoid::Sum ||
        stage.acc_dtype != DType::F32 || stage.over.size() != 1 || stage.yields.size() != 1)
      continue;
    const kernel::BodyValue& product =
        stage.body[std::size_t(kernel::through_casts(stage, stage.yields[0]))];
    if (product.kind != kernel::BodyValue::Kind::Apply || product.op != Op::Mul ||
        product.dtype != DType::F32 || &product != &stage.body[std::size_t(stage.yields[0])])
      continue;
    const int k = stage.over[0];
    std::vector<bool> sides[2];
    DType dtypes[2];
    bool narrow = true;
    for (int i = 0; i < 2; ++i) {
      const int v = gpu ? widened(stage, product.args[std::size_t(i)])
                        : kernel::through_casts(stage, product.args[std::size_t(i)]);
      const kernel::BodyValue& factor = stage.body[std::size_t(v)];
      narrow = narrow && (gpu || factor.kind == kernel::BodyValue::Kind::Load) &&
               (factor.dtype == DType::BF16 || (gpu && factor.dtype == DType::F16));
      dtypes[i] = factor.dtype;
      sides[i] = kernel::axes_of_value(region, stage, v);
    }
    if (!narrow || dtypes[0] != dtypes[1] || !sides[0][std::size_t(k)] || !sides[1][std::size_t(k)])
      continue;
    for (const int m : stage.axes)
      for (const int n : stage.axes)
        if (m != n && m != k && n != k && sides[0][std::size_t(m)] && !sides[1][std::size_t(m)] &&
            sides[1][std::size_t(n)] && !sides[0][std::size_t(n)])
          for (const UnitProduct& u : gpu ? std::vector<UnitProduct>{{s, m, n, k, 16, 8, 16}}
                                          : cpu_products(s, m, n, k, target))
            found.push_back(u);
  }
  return found;
}

std::string why_no_terms(const Region& region) {
  if (region.stages.size() > kMostStages)
    return fmt::format("{} stages are more than {}", region.stages.size(), kMostStages);
  if (region.axes.size() > kMostAxes)
    return fmt::format("{} axes are more than {}", region.axes.size(), kMostAxes);
  for (const kernel::Axis& axis : region.axes)
    if (axis.extent.upper() <= 0)
      return "there are no points";
  return "";
}

std::string facts_of(const Region& region, const Target& target) {
  return Writer(region, target).run();
}

} // namespace egret::loops
