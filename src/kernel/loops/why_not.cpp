// Whether a loop tree goes through its region's points, each once and in an order that gives the
// region's values.
#include "kernel/loops/online.h"
#include "kernel/loops/tree.h"

#include "kernel/analysis.h"
#include "kernel/scatter_axes.h"
#include "support/fail.h"

#include <algorithm>
#include <bit>

namespace egret::kernel::loops {

namespace {

bool holds(std::int64_t v, std::int64_t least, std::int64_t most) {
  return v >= least && v <= most;
}

class Check {
public:
  Check(const Region& region, const Tree& tree) : r_(region), tree_(tree) {}

  std::string run() {
    bodies_.assign(r_.stages.size(), 0);
    if (!nodes(tree_, 1, {}))
      return why_;
    paths_ = body_paths(r_, tree_);
    online_ = online_sums(r_, paths_);
    if (!present())
      return why_;
    for (std::size_t s = 0; s < paths_.size(); ++s)
      if (!paths_[s].empty() &&
          !(points(int(s)) && sums(int(s)) && reads(int(s)) && orders(int(s))))
        return why_;
    return "";
  }

private:
  template <class... Args>
  bool no(fmt::format_string<Args...> format, Args&&... args) {
    why_ = fmt::format(format, std::forward<Args>(args)...);
    return false;
  }

  /// What encloses a node.
  struct Around {
    std::int64_t copies = 1;
    bool vector = false;
    int matrices = 0;              ///< matrix loops directly around
    std::vector<int> axes, stages; ///< of loops; of accumulations
  };

  bool nodes(const Tree& t, int depth, Around around) {
    if (depth > kMostDepth)
      return no("the tree is more than {} deep", kMostDepth);
    if (++nodes_ > kMostNodes)
      return no("the tree has more than {} nodes", kMostNodes);
    if ((t.kind == Kind::Body) != (t.rest == nullptr) ||
        (t.kind == Kind::Then) != (t.first != nullptr))
      return no("a node lacks a part or has one too many");
    const bool is_matrix = t.kind == Kind::For && t.bind == Bind::Matrix;
    if (around.matrices > 0 &&
        !(around.matrices < 3 ? is_matrix : t.kind == Kind::Body || t.kind == Kind::Mask))
      return no("matrix loops come in threes, with a body inside");
    switch (t.kind) {
    case Kind::Body:
      if (!known_stage(t.stage))
        return false;
      if (++bodies_[std::size_t(t.stage)] > 1)
        return no("stage {} has two bodies", t.stage);
      return true;
    case Kind::For:
      if (!loop_node(t, around))
        return false;
      break;
    case Kind::Mask:
      if (!contains(around.axes, t.axis))
        return no("a mask along axis {} is inside of no loop along it", t.axis);
      break;
    case Kind::Accumulate:
      if (!known_stage(t.stage))
        return false;
      if (r_.stages[std::size_t(t.stage)].kind == StageKind::Map)
        return no("stage {} sums nothing", t.stage);
      if (!holds(t.step, 1, kMostUnroll) ||
          (t.step > 1 && r_.stages[std::size_t(t.stage)].kind == StageKind::Scan))
        return no("{} accumulators of stage {}", t.step, t.stage);
      around.stages.push_back(t.stage);
      break;
    case Kind::Prefetch:
      if (!contains(around.axes, t.axis) || t.step < 1)
        return no("a prefetch {} further along axis {} is inside of no loop along it", t.step,
                  t.axis);
      break;
    case Kind::Near:
      if (t.operand < 0 || std::size_t(t.operand) >= r_.operands.size())
        return no("there is no operand {}", t.operand);
      if (r_.operands[std::size_t(t.operand)].role == Role::Scalar)
        return no("operand {} is a single value, near as it is", t.operand);
      break;
    case Kind::Collapse:
      if (!collapse_node(t, around))
        return false;
      break;
    case Kind::Then:
      return nodes(*t.first, depth + 1, around) && nodes(*t.rest, depth + 1, around);
    }
    return nodes(*t.rest, depth + 1, std::move(around));
  }

  bool collapse_node(const Tree& t, const Around& around) {
    const auto copies = t.extent.constant();
    if (!holds(t.step, 1, kMostThreads) || !copies || !holds(*copies, 1, kMostUnroll))
      return no("a collapse into {} points of {} threads", t.extent.str(), t.step);
    if (!around.axes.empty() || !around.stages.empty())
      return no("a collapse is inside of other loops or of an accumulation");
    for (const Tree* l = t.rest.get(); l->kind == Kind::For && l->bind == Bind::Grid;
         l = l->rest.get())
      if (is_reduced_inside(*l->rest, l->axis))
        return no("a collapse takes no loop along axis {}, which a stage reduces or scans",
                  l->axis);
    return true;
  }

  /// Whether a stage whose body stands in the tree reduces or scans the axis.
  bool is_reduced_inside(const Tree& t, int axis) const {
    if (t.kind == Kind::Body) {
      const auto s = std::size_t(t.stage);
      return t.stage >= 0 && s < r_.stages.size() && r_.stages[s].kind != StageKind::Map &&
             contains(r_.stages[s].over, axis);
    }
    return (t.first && is_reduced_inside(*t.first, axis)) ||
           (t.rest && is_reduced_inside(*t.rest, axis));
  }

  bool known_stage(int s) {
    if (s < 0 || std::size_t(s) >= r_.stages.size())
      return no("there is no stage {}", s);
    return true;
  }

  bool loop_node(const Tree& t, Around& around) {
    if (t.axis < 0 || std::size_t(t.axis) >= r_.axes.size())
      return no("there is no axis {}", t.axis);
    const auto n = t.extent.constant();
    if (t.step < 1 || (n && *n < 0))
      return no("a loop along axis {} of {} iterations with step {}", t.axis, t.extent.str(),
                t.step);
    if (!n && !(t.extent == ceildiv(r_.axes[std::size_t(t.axis)].extent, Expr(t.step))))
      return no("a loop along axis {} has {} iterations, which is no number and does not follow "
                "from its step",
                t.axis, t.extent.str());
    if (around.vector && t.bind != Bind::Serial && t.bind != Bind::Unroll)
      return no("a {} loop is inside of a vector loop", name_of(t.bind));
    switch (t.bind) {
    case Bind::Vector:
      if (!n || !holds(*n, 1, kMostLanes) || !std::has_single_bit(std::uint64_t(*n)))
        return no("a vector of {} lanes", t.extent.str());
      around.vector = true;
      break;
    case Bind::Unroll:
      if (!n || !holds(*n, 0, kMostUnroll))
        return no("{} iterations are not unrolled", t.extent.str());
      around.copies *= std::max<std::int64_t>(*n, 1);
      if (around.copies > kMostCopies)
        return no("unrolling makes {} copies of a body", around.copies);
      break;
    case Bind::Matrix:
      if (!n || !holds(*n, 1, kMostCopies))
        return no("a matrix of {}", t.extent.str());
      ++around.matrices;
      break;
    default:
      break;
    }
    around.axes.push_back(t.axis);
    return true;
  }

  /// Every stage whose values are wanted elsewhere has a body, but for maps.
  bool present() {
    for (std::size_t i = 0; i < r_.stages.size(); ++i) {
      const int s = int(i);
      if (bodies_[i] > 0)
        continue;
      if (is_output(r_, s))
        return no("stage {} is an output and has no body", s);
      if (r_.stages[i].kind != StageKind::Map && !readers_of(r_, s).empty())
        return no("stage {} is no map and has no body", s);
    }
    return true;
  }

  /// The loops around a body make each of its points once.
  bool points(int s) {
    const Stage& stage = r_.stages[std::size_t(s)];
    const Path& path = paths_[std::size_t(s)];
    std::vector<std::vector<const Tree*>> digits(r_.axes.size());
    for (const Step& step : path)
      if (step.node->kind == Kind::For) {
        const int a = step.node->axis;
        if (!contains(stage.axes, a))
          return no("a loop along axis {} repeats the points of stage {}", a, s);
        if (!is_single(*step.node))
          digits[std::size_t(a)].push_back(step.node);
      }
    for (int a : stage.axes)
      if (!digits_of(s, a, digits[std::size_t(a)]))
        return false;
    for (int a : stage.axes)
      if (overreaches(r_, path, a) && !masked(path, a))
        return no("loops along axis {} go beyond its end, and no mask is inside of them all around "
                  "stage {}",
                  a, s);
    return true;
  }

  bool digits_of(int s, int axis, std::vector<const Tree*> loops) {
    const Expr& extent = r_.axes[std::size_t(axis)].extent;
    const auto wrong = [&] {
      return no("the loops along axis {} of {} do not make each point of stage {} once", axis,
                extent.str(), s);
    };
    if (loops.empty())
      return extent == Expr(1) || wrong();
    std::stable_sort(loops.begin(), loops.end(),
                     [](const Tree* a, const Tree* b) { return a->step < b->step; });
    std::int64_t place = 1; // the step that the next digit must have
    for (std::size_t i = 0; i < loops.size(); ++i) {
      if (loops[i]->step != place)
        return wrong();
      if (i + 1 == loops.size())
        break;
      const auto n = loops[i]->extent.constant();
      if (!n || *n < 1 || __builtin_mul_overflow(place, *n, &place))
        return wrong();
    }
    const Expr& last = loops.back()->extent;
    if (last == ceildiv(extent, Expr(place)))
      return true;
    std::int64_t reach = 0;
    const auto n = last.constant();
    return (n && !__builtin_mul_overflow(place, *n, &reach) && proves_less(Expr(0), extent) &&
            proves_less_equal(extent, Expr(reach))) ||
           wrong();
  }

  /// Whether a mask is inside of all loops along the axis.
  static bool masked(const Path& path, int axis) {
    bool found = false;
    for (const Step& s : path) {
      if (s.node->kind == Kind::For && s.node->axis == axis && !is_single(*s.node))
        found = false;
      if (s.node->kind == Kind::Mask && s.node->axis == axis)
        found = true;
    }
    return found;
  }

  static bool is_sum_of(const Step& s, int stage) {
    return s.node->kind == Kind::Accumulate && s.node->stage == stage;
  }

  /// Accumulations and the loops along reduced axes.
  bool sums(int s) {
    const Stage& stage = r_.stages[std::size_t(s)];
    if (stage.kind == StageKind::Sort)
      return no("stage {} sorts", s);
    const Path& path = paths_[std::size_t(s)];
    int found = 0, last = -1;
    for (std::size_t i = 0; i < path.size(); ++i) {
      const Tree& t = *path[i].node;
      if (is_sum_of(path[i], s)) {
        ++found;
        last = int(i);
      }
      if (t.kind == Kind::For && contains(stage.over, t.axis) && !is_single(t) && found == 0)
        return no("stage {} is not accumulated outside of its loop along axis {}", s, t.axis);
    }
    if (stage.kind != StageKind::Map && found == 0)
      return no("stage {} is not accumulated", s);
    if (stage.kind == StageKind::Scan && found > 1)
      return no("stage {} is a scan and accumulated in parts", s);
    for (std::size_t i = 0; i < path.size(); ++i) {
      const Tree& t = *path[i].node;
      if (t.kind != Kind::For)
        continue;
      if ((t.bind == Bind::Core || t.bind == Bind::Grid || t.bind == Bind::Cluster) &&
          contains(stage.over, t.axis) && stage.kind == StageKind::Reduce && int(i) > last)
        return no("stage {} has no sum inside of its {} loop along axis {}, which it reduces", s,
                  name_of(t.bind), t.axis);
      if (t.bind == Bind::Matrix && !matrix(s, path, i))
        return false;
    }
    return accumulations();
  }

  /// Each accumulation holds its stage's body.
  bool accumulations() {
    for (std::size_t s = 0; s < paths_.size(); ++s)
      for (const Step& step : paths_[s])
        if (step.node->kind == Kind::Accumulate) {
          const Path& own = paths_[std::size_t(step.node->stage)];
          if (std::none_of(own.begin(), own.end(),
                           [&](const Step& o) { return o.node == step.node; }))
            return no("an accumulation of stage {} does not hold its body", step.node->stage);
        }
    return true;
  }

  bool matrix(int s, const Path& path, std::size_t i) {
    const Stage& stage = r_.stages[std::size_t(s)];
    std::size_t nth = 0;
    while (nth < i && path[i - nth - 1].node->kind == Kind::For &&
           path[i - nth - 1].node->bind == Bind::Matrix)
      ++nth;
    const Tree& t = *path[i].node;
    if (stage.kind != StageKind::Reduce || stage.monoid != Monoid::Sum)
      return no("stage {} is no sum, as matrix loops want", s);
    if (contains(stage.over, t.axis) != (nth == 2))
      return no("matrix loops of stage {} are of two result axes and a reduced one, in this order",
                s);
    if (t.step != 1 && !is_single(t))
      return no("a matrix loop along axis {} has step {}", t.axis, t.step);
    return true;
  }

  /// What a body reads is complete, and of the same point.
  bool reads(int s) {
    for (int reader : computed_with(r_, paths_, s))
      for (const Load& l : r_.stages[std::size_t(reader)].loads)
        if (l.source == Source::Stage && !paths_[std::size_t(l.number)].empty() &&
            !online_.goes_between(s, l.number) && !complete(l.number, reader, s))
          return false;
    return true;
  }

  /// Of what `reader` reads, which is made in the body of `made_in`.
  bool complete(int source, int reader, int made_in) {
    const Path &made = paths_[std::size_t(source)], &read = paths_[std::size_t(made_in)];
    const std::size_t at = parting(made, read);
    if (made[at].node->kind != Kind::Then || !made[at].first || read[at].first)
      return no("stage {} reads stage {}, which does not come before it", reader, source);
    const Stage& stage = r_.stages[std::size_t(source)];
    if (const auto maximum = online_.maxima.find(made_in);
        maximum != online_.maxima.end() && maximum->second == source) {
      why_ = why_not_rescaled(r_, paths_, made_in, source);
      return why_.empty();
    }
    if (online_.contains(made_in, source))
      return true;
    // Loops along axes that it reduces are inside of its sum.
    for (std::size_t i = 0; i < at; ++i)
      if (is_sum_of(made[i], source) && stage.kind == StageKind::Reduce)
        return no("stage {} reads stage {} before its sum is complete", reader, source);
    return true;
  }

  /// What must run in ascending order does.
  bool orders(int s) {
    const Stage& stage = r_.stages[std::size_t(s)];
    const Path& path = paths_[std::size_t(s)];
    if (stage.kind == StageKind::Scan &&
        !(in_turn(path, stage.over, s, "scan") && ascending(path, 0, stage.over, s, "scan")))
      return false;
    if (stage.kind == StageKind::Reduce && stage.monoid == Monoid::ArgMax) {
      std::size_t from = 0; // parts are told apart by their places, however they are combined
      for (std::size_t i = 0; i < path.size(); ++i)
        if (is_sum_of(path[i], s))
          from = i;
      if (!ascending(path, from, stage.over, s, "first of equal values"))
        return false;
    }
    for (const Output& out : r_.outputs) {
      if (out.stage != s || out.combine == Combine::Store)
        continue;
      const std::vector<int> free = independent_axes(r_, out);
      std::vector<int> meeting = result_axes(stage);
      std::erase_if(meeting, [&](int a) { return contains(free, a); });
      if (!in_turn(path, meeting, s, "scatter") ||
          (out.combine == Combine::Set && !ascending(path, 0, meeting, s, "scatter")))
        return false;
    }
    return true;
  }

  /// No loop along the axes is shared out or a vector.
  bool in_turn(const Path& path, const std::vector<int>& axes, int s, const char* what) {
    for (const Step& step : path)
      if (step.node->kind == Kind::For && contains(axes, step.node->axis) &&
          !is_single(*step.node) && step.node->bind != Bind::Serial &&
          step.node->bind != Bind::Unroll)
        return no("the {} of stage {} goes along axis {} one after the other, not by {}", what, s,
                  step.node->axis, name_of(step.node->bind));
    return true;
  }

  /// Serial loops along the axes, from place `from` of the path on, run in row-major order.
  bool ascending(const Path& path, std::size_t from, const std::vector<int>& axes, int s,
                 const char* what) {
    const Tree* before = nullptr;
    for (std::size_t i = from; i < path.size(); ++i) {
      const Tree& t = *path[i].node;
      if (t.kind != Kind::For || !contains(axes, t.axis) || is_single(t) ||
          (t.bind != Bind::Serial && t.bind != Bind::Unroll))
        continue;
      if (before && (before->axis > t.axis || (before->axis == t.axis && before->step < t.step)))
        return no("the {} of stage {} wants its loops along axes {} and {} in ascending order",
                  what, s, before->axis, t.axis);
      before = &t;
    }
    return true;
  }

  const Region& r_;
  const Tree& tree_;
  std::string why_;
  std::vector<int> bodies_;
  std::vector<Path> paths_;
  OnlineSums online_;
  int nodes_ = 0;
};

} // namespace

std::string why_not(const Region& region, const Tree& tree) {
  try {
    return Check(region, tree).run();
  } catch (const Error& e) {
    return e.what(); // sizes beyond 64 bits
  }
}

} // namespace egret::kernel::loops
