#include "compiler/roll_recurrences.h"

#include "compiler/boxes.h"
#include "compiler/step_ends.h"
#include "compiler/unrolled_factors.h"
#include "ir/structure.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

/// Operations between a step's value and the one before it; maps that are read off one value.
constexpr std::size_t kDeepest = 6, kMostMaps = 16;
constexpr int kMostRounds = 8;
/// Of all steps of a scan: unrolled, a state's memory may be that of the next one.
constexpr double kMostElements = 1 << 26;

/// h = factors · previous + terms, as it is written.
struct Map {
  std::string path; ///< from h to `previous`
  NodeId previous = ir::kNoNode;
  std::vector<NodeId> factors, terms;
  bool alone = true; ///< nothing but the next one reads the values on the path
};

/// Maps of one form, one after the other.
struct Run {
  std::vector<NodeId> members;
  Map first, second;
  std::int64_t direction = 0; ///< of the steps' numbers; 0: none of the parts has a step
  bool alone = true;          ///< Map::alone of all
};

class Roller {
public:
  explicit Roller(const Graph& graph)
      : graph_(graph), steps_(graph), additions_(graph), to_(graph.size(), ir::kNoNode) {}

  /// Nothing where the graph stays as it is.
  std::optional<Graph> run() {
    find_runs();
    bool any = false;
    Graph rolled =
        ir::rebuild(graph_, [&](Graph& out, NodeId id, std::span<const NodeId> operands) {
          if (!made_) {
            out_steps_.emplace(out);
            lifter_.emplace(out, *out_steps_);
            made_.emplace(Remaking{graph_, additions_, to_, out, *out_steps_, *lifter_, {}});
            for (std::size_t slot = 0; slot < graph_.inputs().size(); ++slot)
              to_[graph_.inputs()[slot]] = out.inputs()[slot];
          }
          std::optional<NodeId> made;
          if (const auto it = rolled_.find(id); it != rolled_.end())
            made = member(it->second.first, it->second.second);
          else if (graph_[id].op == Op::Select)
            made = StepEnds(*made_).concatenation(id);
          else if (additions_.is_last(id))
            made = StepEnds(*made_).sum(id);
          any = any || made;
          return to_[id] = made ? *made : out.add(graph_[id].op, operands, graph_[id].attrs);
        });
    if (!any)
      return std::nullopt;
    return ir::without_dead_code(rolled);
  }

private:
  // --- Runs

  void find_runs() {
    std::vector<Run> runs;
    std::map<std::pair<NodeId, std::string>, std::size_t> ending; ///< of a member: its run
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (graph_[id].op != Op::Add || !is_float(graph_[id].dtype))
        continue;
      std::vector<Map> maps;
      Map map;
      add_maps(id, map, 0, maps);
      for (Map& m : maps) {
        const auto known = ending.find({m.previous, m.path});
        const bool extends = known != ending.end() &&
                             runs[known->second].members.back() == m.previous &&
                             follows(runs[known->second], m);
        const std::size_t number = extends ? known->second : runs.size();
        if (!extends)
          runs.push_back({.first = m});
        runs[number].members.push_back(id);
        runs[number].alone = runs[number].alone && m.alone;
        ending[{id, m.path}] = number;
      }
    }
    std::ranges::stable_sort(runs, std::ranges::greater(),
                             [](const Run& r) { return r.members.size(); });
    std::set<NodeId> taken;
    for (Run& run : runs) {
      if (run.members.size() < kLeastSteps)
        break;
      if (run.direction == 0 ||
          std::ranges::any_of(run.members, [&](NodeId m) { return taken.contains(m); }))
        continue;
      taken.insert(run.members.begin(), run.members.end());
      for (std::size_t i = 0; i < run.members.size(); ++i)
        rolled_[run.members[i]] = {runs_.size(), i};
      runs_.push_back(std::move(run));
    }
    values_.resize(runs_.size());
  }

  /// The maps that lead from `at`, on the way from a step's value, to values of its shape.
  void add_maps(NodeId at, Map& map, std::size_t depth, std::vector<Map>& maps) {
    if (depth > 0) {
      map.previous = at;
      maps.push_back(map);
    }
    const Node& node = graph_[at];
    if (depth == kDeepest || maps.size() > kMostMaps ||
        (node.op != Op::Mul && !(node.op == Op::Add && map.factors.empty())))
      return;
    const bool alone = map.alone;
    map.alone = alone && (depth == 0 || is_read_once(at));
    auto& parts = node.op == Op::Mul ? map.factors : map.terms;
    for (std::size_t side = 0; side < 2; ++side) {
      parts.push_back(node.inputs[1 - side]);
      map.path += static_cast<char>('0' + side + (node.op == Op::Mul ? 2 : 0));
      add_maps(node.inputs[side], map, depth + 1, maps);
      map.path.pop_back();
      parts.pop_back();
    }
    map.alone = alone;
  }

  /// Whether a map is the next one of a run; sets the run's direction.
  bool follows(Run& run, const Map& next) {
    const auto steps = static_cast<std::int64_t>(run.members.size());
    std::int64_t direction = run.direction;
    const auto same = [&](const std::vector<NodeId>& first, const std::vector<NodeId>& now) {
      for (std::size_t i = 0; i < first.size(); ++i) {
        if (first[i] == now[i])
          continue;
        const Step a = steps_.of(first[i]), b = steps_.of(now[i]);
        if (!a || !b || a.form != b.form)
          return false;
        const std::int64_t moved = b.number - a.number;
        if (direction == 0 && (moved == steps || moved == -steps))
          direction = moved / steps;
        if (direction == 0 || moved != direction * steps)
          return false;
      }
      return true;
    };
    // What stays must stay in all steps, and what moves must move in the second one already.
    const auto alike = [&](const std::vector<NodeId>& first, const std::vector<NodeId>& now,
                           const std::vector<NodeId>& second) {
      for (std::size_t i = 0; i < first.size(); ++i)
        if ((first[i] == now[i]) != (first[i] == second[i]))
          return false;
      return true;
    };
    if (run.first.factors.size() != next.factors.size() ||
        run.first.terms.size() != next.terms.size() || !same(run.first.factors, next.factors) ||
        !same(run.first.terms, next.terms))
      return false;
    if (steps == 1)
      run.second = next;
    else if (!alike(run.first.factors, next.factors, run.second.factors) ||
             !alike(run.first.terms, next.terms, run.second.terms))
      return false;
    run.direction = direction;
    return true;
  }

  // --- Values of runs

  struct Value {
    NodeId scan = ir::kNoNode; ///< of all steps, in the order of their numbers; or the last alone
    std::int64_t before = 0;   ///< elements that are scanned before the first member's
    bool last_alone = false;
  };

  /// Whether the parts that move have steps in the graph that is made, and the scan is not too
  /// large.
  bool may_roll(const Run& run) {
    const auto all = whole_box(graph_[run.members[0]].shape);
    double elements = static_cast<double>(run.members.size());
    for (const Range& range : all ? *all : Box{})
      elements *= static_cast<double>(range.extent());
    const auto have_steps = [&](const std::vector<NodeId>& parts, const std::vector<NodeId>& next) {
      for (std::size_t i = 0; i < parts.size(); ++i)
        if (parts[i] != next[i] && !out_steps_->of(to_[parts[i]]))
          return false;
      return true;
    };
    return all && elements <= kMostElements && have_steps(run.first.factors, run.second.factors) &&
           have_steps(run.first.terms, run.second.terms);
  }

  /// Parts of the first map in all steps, as a product or a sum: those of the second map are the
  /// same, or of the next step.
  std::optional<NodeId> combined(const Run& run, Op op, const std::vector<NodeId>& parts,
                                 const std::vector<NodeId>& next) {
    const auto count = static_cast<std::int64_t>(run.members.size());
    std::optional<NodeId> all;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const NodeId part = to_[parts[i]];
      const NodeId one = parts[i] == next[i] ? lifter_->repeated(part, count)
                                             : lifter_->lifted(part, count, run.direction);
      all = all ? made_->out.binary(op, *all, one) : one;
    }
    return all;
  }

  Value value_of(const Run& run) {
    const auto count = static_cast<std::int64_t>(run.members.size());
    ir::Graph& out = made_->out;
    std::optional<NodeId> factor = combined(run, Op::Mul, run.first.factors, run.second.factors);
    NodeId terms = *combined(run, Op::Add, run.first.terms, run.second.terms);
    Value value;
    const NodeId first = to_[run.first.previous];
    const auto zero = ir::known_value(made_->out, first);
    const bool starts_at_zero = zero && zero->as_double() == 0;
    if (!starts_at_zero && is_read_once(run.first.previous)) {
      terms = with_start(run, first, terms, count);
    } else if (!starts_at_zero) {
      value.before = 1;
      terms = with_first(first, terms, count);
      if (factor) {
        const Shape shape = made_->out[*factor].shape;
        std::vector<Expr> before(shape.size(), Expr(0)), after = before;
        before[0] = Expr(1);
        factor = out.pad(*factor, before, after, Scalar::of(made_->out[first].dtype, 0.0));
      }
    }
    value.last_alone = !factor && wants_last_alone(run);
    value.scan = value.last_alone ? made_->out.reduce(Op::ReduceSum, terms, {0})
                 : factor         ? made_->out.linear_scan(terms, *factor, 0)
                                  : made_->out.scan(Op::ScanSum, terms, 0);
    // What other values make of step t is of the same form for all t then.
    if (run.direction < 0 && !value.last_alone)
      value.scan = made_->out.flip(value.scan, {0});
    if (value.before == 1 && !value.last_alone)
      made_->elements[first] = element(run, value, 0);
    return value;
  }

  /// The element that is scanned as number `place`.
  NodeId element(const Run& run, const Value& value, std::int64_t place) {
    const std::int64_t all = value.before + static_cast<std::int64_t>(run.members.size());
    return element_of(made_->out, value.scan, run.direction < 0 ? all - 1 - place : place,
                      graph_[run.members[0]].shape);
  }

  bool is_read_once(NodeId id) const {
    return additions_.users(id).size() == 1 && !additions_.is_output(id);
  }

  /// The terms, the first of them with what the first map makes of the state before it.
  NodeId with_start(const Run& run, NodeId start, NodeId terms, std::int64_t count) {
    for (const NodeId factor : run.first.factors)
      start = made_->out.binary(Op::Mul, to_[factor], start);
    const Shape shape = made_->out[start].shape;
    std::vector<Expr> none(shape.size() + 1, Expr(0)), after = none;
    after[0] = Expr(count - 1);
    const NodeId one = made_->out.reshape(start, with_front(Expr(1), shape));
    return made_->out.binary(
        Op::Add, terms, made_->out.pad(one, none, after, Scalar::of(made_->out[terms].dtype, 0.0)));
  }

  /// `first` and behind it `rest`, along the axis in front.
  NodeId with_first(NodeId first, NodeId rest, std::int64_t count) {
    const Shape shape = made_->out[rest].shape;
    const Scalar zero = Scalar::of(made_->out[rest].dtype, 0.0);
    std::vector<Expr> none(shape.size(), Expr(0)), before = none, after = none;
    before[0] = Expr(1);
    after[0] = Expr(count);
    const NodeId one = made_->out.reshape(first, with_front(Expr(1), made_->out[first].shape));
    const NodeId padded = made_->out.pad(one, none, after, zero);
    return made_->out.binary(Op::Add, padded, made_->out.pad(rest, before, none, zero));
  }

  bool wants_last_alone(const Run& run) const {
    if (!run.alone)
      return false;
    for (std::size_t i = 0; i + 1 < run.members.size(); ++i)
      if (!is_read_once(run.members[i]))
        return false;
    return true;
  }

  std::optional<NodeId> member(std::size_t number, std::size_t place) {
    const Run& run = runs_[number];
    if (place == 0 && may_roll(run))
      values_[number] = value_of(run);
    if (!values_[number])
      return std::nullopt;
    const Value& value = *values_[number];
    if (value.last_alone) // of the others nothing is wanted
      return place + 1 == run.members.size() ? value.scan : to_[run.first.previous];
    return element(run, value, value.before + static_cast<std::int64_t>(place));
  }

  const Graph& graph_;
  Steps steps_;
  Additions additions_;
  std::vector<NodeId> to_;
  std::vector<Run> runs_;
  std::map<NodeId, std::pair<std::size_t, std::size_t>> rolled_; ///< by member: run, place
  std::vector<std::optional<Value>> values_;
  std::optional<Steps> out_steps_;
  std::optional<StepLifter> lifter_;
  std::optional<Remaking> made_; ///< once the first node is made
};

} // namespace

Graph roll_recurrences(const Graph& graph) {
  Graph rolled = graph;
  for (int round = 0; round < kMostRounds; ++round) {
    std::optional<Graph> next = Roller(rolled).run();
    if (!next)
      break;
    rolled = std::move(*next);
  }
  return rolled;
}

} // namespace egret::compiler
