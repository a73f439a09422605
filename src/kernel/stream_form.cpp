#include "kernel/stream_form.h"

#include "kernel/analysis.h"
#include "kernel/emit.h"
#include "kernel/gpu_contraction_tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace egret::kernel {

namespace {

class StreamReader {
public:
  StreamReader(const Region& region, StreamTakes takes)
      : r_(region), vectors_(takes != StreamTakes::MatrixUnits),
        rounded_(takes != StreamTakes::Vectors) {}

  FoundStream run() {
    FoundStream found;
    found.reason = fill();
    found.ok = found.reason.empty();
    if (found.ok)
      found.form = std::move(f_);
    return found;
  }

private:
  std::string fill() {
    for (const Output& out : r_.outputs)
      if (out.combine != Combine::Store)
        return "an output is a scatter";
    for (const Stage& s : r_.stages)
      if (s.kind == StageKind::Scan || s.kind == StageKind::Sort)
        return "it has a scan or a sort";
    std::vector<int> products, others;
    for (std::size_t s = 0; s < r_.stages.size(); ++s)
      if (r_.stages[s].kind == StageKind::Reduce)
        (is_product(int(s)) ? products : others).push_back(int(s));
    if (products.empty() || others.empty())
      return "it does not sum over products";
    f_.places.axes = r_.stages[std::size_t(others[0])].over;
    for (int s : others)
      if (r_.stages[std::size_t(s)].over != f_.places.axes)
        return "its sums run over different axes";
    if (auto reason = find_box(products); !reason.empty())
      return reason;
    for (int s : products)
      if (auto reason = add_product(s); !reason.empty())
        return reason;
    for (int s : others)
      if (auto reason = add_sum(s); !reason.empty())
        return reason;
    for (AxisGroup* group : {&f_.batch, &f_.rows, &f_.places})
      group->extent = points_of(r_, group->axes);
    finish_forms();
    find_levels(others);
    if (auto reason = check_outputs(); !reason.empty())
      return reason;
    find_bounds(r_, others, f_);
    return "";
  }

  /// A sum of two factors that reads no other stage and that a later stage reads.
  bool is_product(int s) const {
    const Stage& stage = r_.stages[std::size_t(s)];
    if (stage.monoid != Monoid::Sum || stage.yields.size() != 1 || is_output(r_, s))
      return false;
    for (const Load& l : stage.loads)
      if (l.source == Source::Stage)
        return false;
    const BodyValue& v = stage.body[std::size_t(through_casts(stage, stage.yields[0]))];
    return v.kind == BodyValue::Kind::Apply && v.op == Op::Mul;
  }

  /// Batch axes are those that a right side depends on; the rest are rows.
  std::string find_box(const std::vector<int>& products) {
    box_ = result_axes(r_.stages[std::size_t(products[0])]);
    std::set<int> batch;
    for (int s : products) {
      const Stage& stage = r_.stages[std::size_t(s)];
      if (result_axes(stage) != box_)
        return "its products have different boxes";
      const auto [left, right] = sides_of(s);
      if (left < 0)
        return "both factors of a product depend on what is gone along";
      const auto axes = axes_of_value(r_, stage, right);
      for (int a : box_)
        if (axes[std::size_t(a)])
          batch.insert(a);
    }
    for (int a : f_.places.axes) {
      if (!contains(box_, a))
        return "its sums run over an axis that the products do not have";
      batch.erase(a);
    }
    for (int a : box_)
      if (!contains(f_.places.axes, a))
        (batch.contains(a) ? f_.batch : f_.rows).axes.push_back(a);
    return f_.rows.axes.empty() ? "it has no rows" : "";
  }

  /// The factors of a product: that of the rows, and that of the places; -1 when there is no such
  /// pair.
  std::pair<int, int> sides_of(int s) const {
    const Stage& stage = r_.stages[std::size_t(s)];
    const BodyValue& mul = stage.body[std::size_t(through_casts(stage, stage.yields[0]))];
    const auto goes_along = [&](int v) {
      const auto axes = axes_of_value(r_, stage, v);
      return std::any_of(f_.places.axes.begin(), f_.places.axes.end(),
                         [&](int a) { return axes[std::size_t(a)]; });
    };
    const bool first = goes_along(mul.args[0]), second = goes_along(mul.args[1]);
    if (first == second)
      return {-1, -1};
    return first ? std::pair{mul.args[1], mul.args[0]} : std::pair{mul.args[0], mul.args[1]};
  }

  /// For matrix instructions, all factors are of one type that these take.
  std::string take_element(const ContractionForm& form, const Side& side) {
    const DType dtype = factor_of(r_, form, side).dtype;
    if (vectors_)
      return is_float(dtype) && size_of(dtype) <= 4 ? "" : "a factor is no float of up to 32 bits";
    if (dtype != DType::BF16 && dtype != DType::F16)
      return fmt::format("a factor is {}", name_of(dtype));
    if (has_element_ && dtype != f_.element)
      return "its factors are of different types";
    has_element_ = true;
    f_.element = dtype;
    return "";
  }

  std::string add_product(int s) {
    const Stage& stage = r_.stages[std::size_t(s)];
    ContractionForm p;
    p.stage = s;
    std::tie(p.left.value, p.right.value) = sides_of(s);
    p.depth.axes = stage.over;
    p.accumulator = compute_dtype(stage.acc_dtype);
    if (p.accumulator != DType::F32)
      return "a product is not summed in f32";
    for (const Side* side : {&p.left, &p.right})
      if (auto reason = take_element(p, *side); !reason.empty())
        return reason;
    const auto axes = axes_of_value(r_, stage, p.right.value);
    for (int a : f_.rows.axes)
      if (axes[std::size_t(a)])
        return "a right side depends on the row";
    f_.products.push_back(std::move(p));
    return "";
  }

  std::string add_sum(int s) {
    const Stage& stage = r_.stages[std::size_t(s)];
    std::vector<int> columns;
    for (int a : result_axes(stage))
      if (!contains(f_.batch.axes, a) && !contains(f_.rows.axes, a))
        columns.push_back(a);
    if (result_axes(stage).size() != f_.batch.axes.size() + f_.rows.axes.size() + columns.size())
      return "a sum does not have all rows";
    if (columns.empty()) {
      if (stage.monoid == Monoid::ArgMax || stage.yields.size() != 1 ||
          size_of(compute_dtype(stage.acc_dtype)) != 4)
        return "a row's value is neither a sum nor a maximum in 32 bits";
      f_.row_stages.push_back(s);
      return "";
    }
    ContractionForm sum;
    sum.stage = s;
    sum.accumulator = compute_dtype(stage.acc_dtype);
    const BodyValue& mul = stage.body[std::size_t(through_casts(stage, stage.yields.at(0)))];
    if (stage.monoid != Monoid::Sum || stage.yields.size() != 1 || mul.op != Op::Mul ||
        mul.kind != BodyValue::Kind::Apply || sum.accumulator != DType::F32)
      return "a sum over columns is no product";
    for (int i = 0; i < 2; ++i) {
      const auto axes = axes_of_value(r_, stage, mul.args[std::size_t(i)]);
      if (std::none_of(columns.begin(), columns.end(),
                       [&](int a) { return axes[std::size_t(a)]; })) {
        sum.left.value = mul.args[std::size_t(i)];
        sum.right.value = mul.args[std::size_t(1 - i)];
      }
    }
    if (sum.left.value < 0)
      return "both factors of a sum depend on its columns";
    const auto axes = axes_of_value(r_, stage, sum.right.value);
    for (int a : f_.rows.axes)
      if (axes[std::size_t(a)])
        return "a right side depends on the row";
    sum.depth.axes = columns;
    for (const Side* side : {&sum.left, &sum.right})
      if (auto reason = take_element(sum, *side); !reason.empty())
        return reason;
    if (reads_stage(stage, sum.right.value))
      return "a right side is made of products";
    f_.sums.push_back(std::move(sum));
    return "";
  }

  static bool reads_stage(const Stage& stage, int value) {
    const BodyValue& v = stage.body[std::size_t(value)];
    if (v.kind == BodyValue::Kind::Load && stage.loads[std::size_t(v.load)].source == Source::Stage)
      return true;
    return std::ranges::any_of(values_read(stage, value),
                               [&](int a) { return reads_stage(stage, a); });
  }

  /// Extents of the groups, and how the sides lie in memory.
  void finish_forms() {
    const auto finish = [&](ContractionForm& f) {
      f.batch = f_.batch;
      f.rows = f_.rows;
      f.columns = f_.places;
      f.depth.extent = points_of(r_, f.depth.axes);
      describe(f, f.right, f_.places);
    };
    for (ContractionForm& p : f_.products) {
      finish(p);
      describe(p, p.left, f_.rows);
    }
    for (ContractionForm& s : f_.sums)
      finish(s);
  }

  void describe(const ContractionForm& form, Side& side, const AxisGroup& panel) const {
    const Stage& stage = r_.stages[std::size_t(form.stage)];
    const int value = factor_of(r_, form, side).value;
    const BodyValue& v = stage.body[std::size_t(value)];
    side.order = Side::Order::Neither;
    if (v.kind != BodyValue::Kind::Load)
      return;
    const Load& load = stage.loads[std::size_t(v.load)];
    if (stride_of(r_, stage, load, form.depth.axes.back()) == 1)
      side.order = Side::Order::Depth;
    else if (stride_of(r_, stage, load, panel.axes.back()) == 1)
      side.order = Side::Order::Panel;
  }

  bool is_remade(int s) const {
    return std::any_of(f_.products.begin(), f_.products.end(),
                       [&](const ContractionForm& p) { return p.stage == s; });
  }

  void find_levels(const std::vector<int>& reductions) {
    f_.scaled_by.assign(r_.stages.size(), -1);
    set_levels();
    std::vector<int> sums = f_.row_stages;
    for (const ContractionForm& s : f_.sums)
      sums.push_back(s.stage);
    for (int sum : sums)
      for (int maximum : f_.row_stages)
        if (f_.level[std::size_t(sum)] == f_.level[std::size_t(maximum)] + 1 &&
            is_scaled_by(r_, sum, maximum, false, false, rounded_)) {
          f_.scaled_by[std::size_t(sum)] = maximum;
          set_levels();
          if (f_.level[std::size_t(sum)] == f_.level[std::size_t(maximum)])
            break;
          f_.scaled_by[std::size_t(sum)] = -1; // it waits for something else as well
          set_levels();
        }
    for (int s : reductions)
      f_.passes = std::max(f_.passes, f_.level[std::size_t(s)] + 1);
  }

  void set_levels() {
    f_.level.assign(r_.stages.size(), 0);
    for (std::size_t s = 0; s < r_.stages.size(); ++s)
      for (const Load& l : r_.stages[s].loads) {
        if (l.source != Source::Stage)
          continue;
        const bool waits = r_.stages[std::size_t(l.number)].kind == StageKind::Reduce &&
                           !is_remade(l.number) && f_.scaled_by[s] != l.number;
        f_.level[s] = std::max(f_.level[s], f_.level[std::size_t(l.number)] + waits);
      }
  }

  /// Every output is a value of the rows or of one sum.
  std::string check_outputs() const {
    std::vector<int> row = f_.batch.axes;
    row.insert(row.end(), f_.rows.axes.begin(), f_.rows.axes.end());
    std::sort(row.begin(), row.end());
    for (const Output& out : r_.outputs) {
      const std::vector<int> axes = result_axes(r_.stages[std::size_t(out.stage)]);
      const std::vector<bool> under = stages_under(r_, out.stage);
      int sums = 0;
      for (const ContractionForm& s : f_.sums) {
        if (!under[std::size_t(s.stage)])
          continue;
        ++sums;
        std::vector<int> wanted = row;
        wanted.insert(wanted.end(), s.depth.axes.begin(), s.depth.axes.end());
        std::sort(wanted.begin(), wanted.end());
        if (axes != wanted)
          return "an output does not have the axes of its sum";
      }
      if (sums > 1 || (sums == 0 && axes != row))
        return "an output is neither of the rows nor of one sum";
    }
    return "";
  }

  const Region& r_;
  bool vectors_, rounded_;
  StreamForm f_;
  std::vector<int> box_;
  bool has_element_ = false;
};

} // namespace

std::vector<bool> stages_under(const Region& region, int stage) {
  std::vector<bool> under(region.stages.size(), false);
  under[std::size_t(stage)] = true;
  for (int s = stage; s >= 0; --s) {
    const Stage& here = region.stages[std::size_t(s)];
    // What a reduction below is made of belongs to its own pass.
    if (!under[std::size_t(s)] || (s != stage && here.kind == StageKind::Reduce))
      continue;
    for (const Load& l : here.loads)
      if (l.source == Source::Stage)
        under[std::size_t(l.number)] = true;
  }
  return under;
}

StreamPass stream_pass(const Region& region, const StreamForm& form, int number) {
  StreamPass pass;
  std::vector<bool> under(region.stages.size(), false);
  const auto need = [&](int stage) {
    const auto more = stages_under(region, stage);
    for (std::size_t s = 0; s < under.size(); ++s)
      under[s] = under[s] || more[s];
  };
  for (int s : form.row_stages)
    if (form.level[std::size_t(s)] == number) {
      pass.rows.push_back(s);
      need(s);
    }
  for (std::size_t s = 0; s < form.sums.size(); ++s)
    if (form.level[std::size_t(form.sums[s].stage)] == number) {
      pass.sums.push_back(s);
      need(form.sums[s].stage);
    }
  for (std::size_t p = 0; p < form.products.size(); ++p)
    if (under[std::size_t(form.products[p].stage)])
      pass.products.push_back(p);
  return pass;
}

std::vector<int> sums_of_outputs(const Region& region, const StreamForm& form) {
  std::vector<int> sums;
  for (const Output& out : region.outputs) {
    const auto under = stages_under(region, out.stage);
    sums.push_back(-1);
    for (std::size_t s = 0; s < form.sums.size(); ++s)
      if (under[std::size_t(form.sums[s].stage)])
        sums.back() = int(s);
  }
  return sums;
}

bool depends_on_stage(const Region& region, int stage, int value, int other) {
  const Stage& s = region.stages[std::size_t(stage)];
  const BodyValue& v = s.body[std::size_t(value)];
  if (v.kind == BodyValue::Kind::Load && s.loads[std::size_t(v.load)].source == Source::Stage) {
    const int number = s.loads[std::size_t(v.load)].number;
    const Stage& read = region.stages[std::size_t(number)];
    return number == other || (read.kind == StageKind::Map &&
                               std::any_of(read.yields.begin(), read.yields.end(), [&](int y) {
                                 return depends_on_stage(region, number, y, other);
                               }));
  }
  return std::ranges::any_of(values_read(s, value),
                             [&](int a) { return depends_on_stage(region, stage, a, other); });
}

FoundStream find_stream(const Region& region, StreamTakes takes) {
  return StreamReader(region, takes).run();
}

} // namespace egret::kernel
