#include "kernel/label_terms.h"

#include "kernel/analysis.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

namespace egret::kernel {

namespace {

using ValueKind = BodyValue::Kind;

/// A value of a stage's body.
using At = std::pair<int, int>;

/// How the one term is found.
enum class LabelBy : std::uint8_t { Load, Sum };

class LabelTerm {
public:
  LabelTerm(const Region& region, int sum, LabelBy how)
      : r_(region), sum_(sum), how_(how), s_(region.stages[std::size_t(sum)]) {}

  /// The stages that take the sum's place, the last one being its result; nothing when the sum is
  /// no such one.
  std::optional<std::vector<Stage>> run() {
    if (s_.kind != StageKind::Reduce || s_.monoid != Monoid::Sum || s_.yields.size() != 1 ||
        s_.over.size() != 1 || s_.acc_dtype != DType::F32 || s_.yield_dtypes[0] != DType::F32)
      return std::nullopt;
    axis_ = s_.over[0];
    const At root = seen({sum_, s_.yields[0]});
    if (body(root).dtype != DType::F32)
      return std::nullopt;
    if (!find_hit(root))
      return how_ == LabelBy::Sum ? without_row_values(root) : std::nullopt;
    for (const At& factor : factors_)
      if (!find_leaves(factor, true))
        return std::nullopt;
    if (how_ == LabelBy::Sum && chosen_ && (!factors_.empty() || !find_leaves(*chosen_, false)))
      return std::nullopt;
    return how_ == LabelBy::Sum ? by_sums(root) : by_loads(root);
  }

private:
  /// A stage that is being written, over some of the region's axes.
  struct Writer {
    Stage stage;
    bool at_label = false; ///< the axis is the label's place
    std::map<At, int> made;
    int label = -1;
    int add(BodyValue v) {
      stage.body.push_back(std::move(v));
      return int(stage.body.size()) - 1;
    }
    int constant(DType dtype, double x) {
      BodyValue v;
      v.kind = ValueKind::Constant;
      v.dtype = dtype;
      v.constant = Scalar::of(dtype, x);
      return add(std::move(v));
    }
    int apply(Op op, DType dtype, std::vector<int> args) {
      BodyValue v;
      v.op = op;
      v.dtype = dtype;
      v.args = std::move(args);
      return add(std::move(v));
    }
  };

  const Stage& stage(const At& at) const { return r_.stages[std::size_t(at.first)]; }
  const BodyValue& body(const At& at) const { return stage(at).body[std::size_t(at.second)]; }
  At argument(const At& at, std::size_t k) const { return seen({at.first, body(at).args[k]}); }

  /// The value itself where a map of the same point makes it.
  At seen(At at) const {
    while (body(at).kind == ValueKind::Load) {
      const Load& l = stage(at).loads[std::size_t(body(at).load)];
      if (l.source != Source::Stage || r_.stages[std::size_t(l.number)].kind != StageKind::Map)
        break;
      at = {l.number, r_.stages[std::size_t(l.number)].yields[std::size_t(l.component)]};
    }
    return at;
  }

  bool along_axis(const At& at) const {
    return axes_of_value(r_, stage(at), at.second)[std::size_t(axis_)] ||
           std::any_of(body(at).args.begin(), body(at).args.end(), [&](int a) {
             return along_axis(seen({at.first, a}));
           });
  }

  /// Whether a value needs the result of a reduction over the axis.
  bool of_row(const At& at) const {
    if (body(at).kind == ValueKind::Load) {
      const Load& l = stage(at).loads[std::size_t(body(at).load)];
      if (l.source == Source::Stage && contains(r_.stages[std::size_t(l.number)].over, axis_))
        return true;
    }
    return std::ranges::any_of(values_read(stage(at), at.second), [&](int value) {
      return of_row(seen({at.first, value}));
    });
  }

  bool is_zero(const At& at) const {
    return body(at).kind == ValueKind::Constant && body(at).constant.as_double() == 0;
  }

  /// Whether the value is label == place.
  bool is_hit(const At& at) {
    if (body(at).kind != ValueKind::Apply || body(at).op != Op::Eq)
      return false;
    for (std::size_t k : {0u, 1u}) {
      At place = argument(at, k);
      while (body(place).kind == ValueKind::Apply && body(place).op == Op::Cast)
        place = argument(place, 0);
      const At label = argument(at, 1 - k);
      const DType dtype = body(label).dtype;
      if (body(place).kind != ValueKind::Index || !is_the_axis(place) || along_axis(label) ||
          of_row(label) || (dtype != DType::I64 && dtype != DType::I32 && dtype != DType::I16))
        continue;
      if (label_ && *label_ != label)
        return false;
      label_ = label;
      return true;
    }
    return false;
  }

  bool is_the_axis(const At& place) const {
    const Expr& e = body(place).index;
    return e.is_axis() && stage(place).axes[std::size_t(e.axis_number())] == axis_;
  }

  /// Looks for the condition that makes a term zero, and collects what it is multiplied with.
  bool find_hit(const At& at) {
    const BodyValue& v = body(at);
    if (v.kind != ValueKind::Apply)
      return false;
    if (v.op == Op::Select) {
      chosen_ = argument(at, 1);
      return is_zero(argument(at, 2)) && is_hit(argument(at, 0));
    }
    if (v.op == Op::Cast)
      return v.dtype == DType::F32 &&
             (is_hit(argument(at, 0)) ||
              (body(argument(at, 0)).dtype == DType::F32 && find_hit(argument(at, 0))));
    if (v.op != Op::Mul || v.dtype != DType::F32)
      return false;
    for (std::size_t k : {0u, 1u})
      if (find_hit(argument(at, k))) {
        factors_.push_back(argument(at, 1 - k));
        return true;
      }
    return false;
  }

  static bool is_number(const BodyValue& v) {
    return v.kind == ValueKind::Constant && std::isfinite(v.constant.as_double()) &&
           v.constant.as_double() != 0;
  }

  /// Collects what a value is made of: parts that depend on the axis and on no row, and values of
  /// the row. `linear`: by sums and by products with numbers only, so that it is finite where its
  /// parts are.
  bool find_leaves(const At& at, bool linear) {
    const BodyValue& v = body(at);
    const bool along = along_axis(at), row = of_row(at);
    if (!along || !row) {
      const bool finite = v.kind == ValueKind::Index ||
                          (v.kind == ValueKind::Constant && is_number(v)) || is_zero(at) ||
                          (v.kind == ValueKind::Apply && v.op == Op::Cast &&
                           !is_float(body(argument(at, 0)).dtype));
      if (linear && finite)
        return true;
      if (linear && v.dtype != DType::F32)
        return false;
      auto& list = along ? leaves_ : rows_;
      if (std::find(list.begin(), list.end(), at) == list.end())
        list.push_back(at);
      return true;
    }
    if (v.kind != ValueKind::Apply)
      return false;
    if (linear) {
      if (v.dtype != DType::F32)
        return false;
      if (v.op == Op::Mul && (is_number(body(argument(at, 0))) || is_number(body(argument(at, 1)))))
        return find_leaves(argument(at, is_number(body(argument(at, 0))) ? 1 : 0), true);
      if (v.op != Op::Add)
        return false;
    }
    for (std::size_t k = 0; k < v.args.size(); ++k)
      if (!find_leaves(argument(at, k), linear))
        return false;
    return true;
  }

  // --- Sums of what a row's values are added to

  /// The parts of a sum that depend on the axis and on no row; `parts` gets each once.
  bool find_parts(const At& at, std::vector<At>& parts) const {
    const BodyValue& v = body(at);
    if (v.dtype != DType::F32)
      return false;
    if (!along_axis(at))
      return true;
    if (!of_row(at)) {
      if (std::find(parts.begin(), parts.end(), at) == parts.end())
        parts.push_back(at);
      return true;
    }
    if (v.kind != ValueKind::Apply)
      return false;
    const At a = argument(at, 0);
    if (v.op == Op::Add)
      return find_parts(a, parts) && find_parts(argument(at, 1), parts);
    if (v.op == Op::Div && is_number(body(argument(at, 1))))
      return find_parts(a, parts);
    if (v.op != Op::Mul)
      return false;
    const At b = argument(at, 1);
    return is_number(body(a)) ? find_parts(b, parts) : is_number(body(b)) && find_parts(a, parts);
  }

  /// A value's sum over the axis, of those of its parts.
  int summed(Writer& w, const At& at, const std::vector<At>& parts) const {
    const BodyValue& v = body(at);
    if (!along_axis(at)) {
      const int value = copy(w, at);
      if (value < 0)
        return -1;
      BodyValue places;
      places.kind = ValueKind::Index;
      places.dtype = DType::F32;
      places.index = r_.axes[std::size_t(axis_)].extent;
      const int times = w.add(std::move(places));
      return w.apply(Op::Mul, DType::F32, {value, times});
    }
    if (const auto part = std::find(parts.begin(), parts.end(), at); part != parts.end())
      return load_of(w, int(part - parts.begin()));
    std::vector<int> args;
    for (std::size_t k = 0; k < v.args.size(); ++k) {
      const At arg = argument(at, k);
      args.push_back(v.op != Op::Add && is_number(body(arg)) ? copy(w, arg)
                                                             : summed(w, arg, parts));
      if (args.back() < 0)
        return -1;
    }
    return w.apply(v.op, DType::F32, args);
  }

  /// Of sum(x - m), with m a value of the row: sum(x) - n m, so that the sum need not wait for m.
  std::optional<std::vector<Stage>> without_row_values(const At& root) const {
    std::vector<At> parts;
    if (!along_axis(root) || !of_row(root) || !find_parts(root, parts) || parts.empty() ||
        parts.size() > 2)
      return std::nullopt;
    std::vector<Stage> stages;
    for (const At& part : parts) {
      Writer w = writer(StageKind::Reduce);
      const int x = copy(w, part);
      if (x < 0)
        return std::nullopt;
      stages.push_back(yielding(std::move(w), x));
    }
    Writer w;
    w.stage.axes = result_axes(s_);
    w.stage.acc_dtype = DType::F32;
    const int all = summed(w, root, parts);
    if (all < 0)
      return std::nullopt;
    stages.push_back(yielding(std::move(w), all));
    return stages;
  }

  // --- Writing

  Expr moved(const Writer& w, const Stage& from, const Expr& e, const Expr& label) const {
    return substitute(e, [&](const Expr& v) -> std::optional<Expr> {
      if (!v.is_axis())
        return std::nullopt;
      const int axis = from.axes[std::size_t(v.axis_number())];
      if (w.at_label && axis == axis_)
        return label;
      const auto at = std::find(w.stage.axes.begin(), w.stage.axes.end(), axis);
      return Expr::axis(int(at - w.stage.axes.begin()), r_.axes[std::size_t(axis)].extent);
    });
  }

  /// A copy of a value; -1 when it cannot be had at the label.
  int copy(Writer& w, At at) const {
    at = seen(at);
    if (const auto it = w.made.find(at); it != w.made.end())
      return it->second;
    const Stage& from = stage(at);
    BodyValue v = body(at);
    switch (v.kind) {
    case ValueKind::Constant:
      break;
    case ValueKind::Index: {
      if (!w.at_label || !along_axis(at)) {
        v.index = moved(w, from, v.index, Expr(0));
        break;
      }
      if (!is_the_axis(at))
        return -1;
      const DType label = w.stage.body[std::size_t(w.label)].dtype;
      return w.made[at] = label == v.dtype ? w.label : w.apply(Op::Cast, v.dtype, {w.label});
    }
    case ValueKind::Load: {
      Load l = from.loads[std::size_t(v.load)];
      if (!l.indirect.empty())
        return -1;
      const bool here = w.at_label && along_axis(at);
      if (here && l.source != Source::Operand)
        return -1;
      const Expr label = indirect_symbol(0);
      for (Expr& c : l.map.coords)
        c = moved(w, from, c, label);
      for (Hole& hole : l.map.holes)
        for (Guard& g : hole.valid)
          g = {moved(w, from, g.value, label), moved(w, from, g.lo, label),
               moved(w, from, g.hi, label)};
      l.map.dims.clear();
      for (int a : w.stage.axes)
        l.map.dims.push_back(r_.axes[std::size_t(a)].extent);
      if (here) {
        l.indirect = {w.label};
        Hole outside;
        outside.valid = {{label, Expr(0), r_.axes[std::size_t(axis_)].extent}};
        outside.fill = Scalar::of(r_.operands[std::size_t(l.number)].dtype, 0.0);
        l.map.holes.insert(l.map.holes.begin(), std::move(outside));
      }
      w.stage.loads.push_back(std::move(l));
      v.load = int(w.stage.loads.size()) - 1;
      break;
    }
    case ValueKind::Apply:
      for (std::size_t k = 0; k < v.args.size(); ++k) {
        const int arg = copy(w, argument(at, k));
        if (arg < 0)
          return -1;
        v.args[k] = arg;
      }
      break;
    }
    return w.made[at] = w.add(std::move(v));
  }

  Writer writer(StageKind kind) const {
    Writer w;
    w.stage.kind = kind;
    w.stage.axes = kind == StageKind::Reduce ? s_.axes : result_axes(s_);
    if (kind == StageKind::Reduce)
      w.stage.over = s_.over;
    w.stage.acc_dtype = DType::F32;
    w.at_label = kind == StageKind::Map;
    if (w.at_label)
      w.label = copy(w, *label_);
    return w;
  }

  static Stage yielding(Writer w, int value) {
    w.stage.yields = {value};
    w.stage.yield_dtypes = {DType::F32};
    return std::move(w.stage);
  }

  /// A load of a stage that is `behind` places behind the sum's.
  int load_of(Writer& w, int behind) const {
    Load l;
    l.source = Source::Stage;
    l.number = sum_ + behind;
    for (std::size_t i = 0; i < w.stage.axes.size(); ++i) {
      const Expr& extent = r_.axes[std::size_t(w.stage.axes[i])].extent;
      l.map.dims.push_back(extent);
      l.map.coords.push_back(Expr::axis(int(i), extent));
    }
    w.stage.loads.push_back(std::move(l));
    BodyValue v;
    v.kind = ValueKind::Load;
    v.load = int(w.stage.loads.size()) - 1;
    return w.add(std::move(v));
  }

  /// label == place, in a stage over the axis.
  int hit(Writer& w) const {
    const int label = copy(w, *label_);
    if (label < 0)
      return -1;
    BodyValue place;
    place.kind = ValueKind::Index;
    place.dtype = w.stage.body[std::size_t(label)].dtype;
    const auto at = std::find(s_.axes.begin(), s_.axes.end(), axis_) - s_.axes.begin();
    place.index = Expr::axis(int(at), r_.axes[std::size_t(axis_)].extent);
    return w.apply(Op::Eq, DType::Bool, {label, w.add(std::move(place))});
  }

  /// The term where the label is a place, else `otherwise`, or 0; and what else is added.
  std::optional<Stage> finish(Writer w, int term, int otherwise, int more) const {
    if (term < 0)
      return std::nullopt;
    const DType label = w.stage.body[std::size_t(w.label)].dtype;
    BodyValue extent;
    extent.kind = ValueKind::Index;
    extent.dtype = label;
    extent.index = r_.axes[std::size_t(axis_)].extent;
    const int end = w.add(std::move(extent));
    const int above = w.apply(Op::Lt, DType::Bool, {w.constant(label, -1), w.label});
    const int below = w.apply(Op::Lt, DType::Bool, {w.label, end});
    const int inside = w.apply(Op::And, DType::Bool, {above, below});
    const int zero = w.constant(DType::F32, 0);
    int value = w.apply(Op::Select, DType::F32, {inside, term, otherwise < 0 ? zero : otherwise});
    if (more >= 0)
      value = w.apply(Op::Add, DType::F32, {value, more});
    if (!factors_.empty())
      for (const At& row : rows_) { // 0 times them, unless the only place is the label's
        const int copied = copy(w, row);
        if (copied < 0 || w.stage.body[std::size_t(copied)].dtype != DType::F32)
          return std::nullopt;
        const int nothing = w.apply(Op::Mul, DType::F32, {copied, zero});
        const int alone = w.apply(Op::Lt, DType::Bool, {end, w.constant(label, 2)});
        value = w.apply(
            Op::Add, DType::F32,
            {value, w.apply(Op::Select, DType::F32,
                            {w.apply(Op::And, DType::Bool, {inside, alone}), zero, nothing})});
      }
    return yielding(std::move(w), value);
  }

  std::optional<std::vector<Stage>> by_loads(const At& root) const {
    std::vector<Stage> stages;
    if (!leaves_.empty()) {
      Writer w = writer(StageKind::Reduce);
      const int zero = w.constant(DType::F32, 0), here = hit(w);
      int all = here < 0 ? -1 : zero;
      for (const At& leaf : leaves_) {
        const int copied = copy(w, leaf);
        if (copied < 0 || all < 0)
          return std::nullopt;
        const int nothing = w.apply(Op::Mul, DType::F32, {copied, zero});
        all = all == zero ? nothing : w.apply(Op::Add, DType::F32, {all, nothing});
      }
      stages.push_back(yielding(w, w.apply(Op::Select, DType::F32, {here, zero, all})));
    }
    Writer w = writer(StageKind::Map);
    if (w.label < 0)
      return std::nullopt;
    const int more = stages.empty() ? -1 : load_of(w, 0);
    const int term = copy(w, root);
    auto last = finish(std::move(w), term, -1, more);
    if (!last)
      return std::nullopt;
    stages.push_back(std::move(*last));
    return stages;
  }

  std::optional<std::vector<Stage>> by_sums(const At& root) const {
    if (leaves_.size() > (factors_.empty() ? 2 : 1))
      return std::nullopt;
    std::vector<Stage> stages;
    for (const At& leaf : leaves_) {
      if (body(leaf).dtype != DType::F32)
        return std::nullopt;
      Writer w = writer(StageKind::Reduce);
      const int x = copy(w, leaf), here = hit(w);
      if (x < 0 || here < 0)
        return std::nullopt;
      const int term =
          factors_.empty()
              ? w.apply(Op::Select, DType::F32, {here, x, w.constant(DType::F32, 0)})
              : w.apply(Op::Mul, DType::F32, {x, w.apply(Op::Cast, DType::F32, {here})});
      stages.push_back(yielding(std::move(w), term));
    }
    Writer w = writer(StageKind::Map);
    if (w.label < 0)
      return std::nullopt;
    int all = -1; // 0 where nothing was picked, or no number
    for (std::size_t i = 0; i < leaves_.size(); ++i)
      w.made[leaves_[i]] = all = load_of(w, int(i));
    const int term = copy(w, root);
    auto last = finish(std::move(w), term, factors_.empty() ? -1 : all, -1);
    if (!last)
      return std::nullopt;
    stages.push_back(std::move(*last));
    return stages;
  }

  const Region& r_;
  int sum_;
  LabelBy how_;
  const Stage& s_;
  int axis_ = -1;
  std::optional<At> label_, chosen_; ///< chosen_: what a condition lets through
  std::vector<At> factors_;          ///< beside the condition as a number
  std::vector<At> leaves_, rows_;
};

/// Puts `stages` in the place of stage `at`; the last one is what others read then.
void replace_stage(Region& region, int at, std::vector<Stage> stages) {
  const int more = int(stages.size()) - 1;
  region.stages.erase(region.stages.begin() + at);
  region.stages.insert(region.stages.begin() + at, std::make_move_iterator(stages.begin()),
                       std::make_move_iterator(stages.end()));
  for (std::size_t s = std::size_t(at + more) + 1; s < region.stages.size(); ++s)
    for (Load& l : region.stages[s].loads)
      if (l.source == Source::Stage && l.number >= at)
        l.number += more;
  for (Output& out : region.outputs)
    if (out.stage >= at)
      out.stage += more;
}

bool reads(const Region& region, const Stage& stage) {
  return std::any_of(stage.loads.begin(), stage.loads.end(), [&](const Load& l) {
    return l.source == Source::Operand && !l.indirect.empty() &&
           std::any_of(region.outputs.begin(), region.outputs.end(),
                       [&](const Output& out) { return out.alias == l.number; });
  });
}

Region with_label_terms(const Region& region, LabelBy how) {
  Region out = region;
  const auto reductions = [&] {
    return std::count_if(out.stages.begin(), out.stages.end(),
                         [](const Stage& s) { return s.kind == StageKind::Reduce; });
  };
  for (int s = 0; s < int(out.stages.size()); ++s) {
    auto stages = LabelTerm(out, s, how).run();
    // An output in an operand's memory may be written before the operand is read at the label.
    if (!stages || (stages->size() == 1 && reductions() == 1) || reads(out, stages->back()))
      continue;
    const int more = int(stages->size()) - 1;
    replace_stage(out, s, std::move(*stages));
    s += more;
  }
  return out;
}

} // namespace

Region with_label_gathers(const Region& region) {
  return with_label_terms(region, LabelBy::Load);
}

Region with_label_sums(const Region& region) {
  return with_label_terms(region, LabelBy::Sum);
}

Online fewest_passes(const Region& region, int passes) {
  Online best = Online::No;
  for (Online online : {Online::Scaled, Online::Spreads}) {
    if (passes < 2)
      break;
    const Passes together = plan_passes(with_label_gathers(region), false, online);
    if (together.reason.empty() && together.count < passes) {
      passes = together.count;
      best = online;
    }
  }
  return best;
}

bool is_one_pass(const Region& region) {
  const FoundStream found = find_stream(with_label_sums(region), StreamTakes::Vectors);
  return found.ok && found.form.passes == 1 && found.form.sums.empty() &&
         found.form.products.size() == 1;
}

} // namespace egret::kernel
