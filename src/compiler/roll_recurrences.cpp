#include "compiler/roll_recurrences.h"

#include "compiler/additions.h"
#include "compiler/boxes.h"
#include "compiler/steps.h"
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

constexpr std::size_t kLeastSteps = 8;
/// Operations between a step's value and the one before it; segments of a concatenation at the
/// most.
constexpr std::size_t kDeepest = 6, kMostSegments = 4;
constexpr int kMostRounds = 8;
/// Of all steps of a scan: unrolled, a state's memory may be that of the next one.
constexpr double kMostElements = 1 << 26;

/// h = factors · previous + terms, as it is written.
struct Map {
  std::string path; ///< from h to `previous`
  NodeId previous = ir::kNoNode;
  std::vector<NodeId> factors, terms;
};

/// Maps of one form, one after the other.
struct Run {
  std::vector<NodeId> members;
  Map first, second;
  std::int64_t direction = 0; ///< of the steps' numbers; 0: none of the parts has a step
  /// Whether a part of the first map is that of all others, too.
  bool stays(NodeId part) const {
    const auto in = [&](const std::vector<NodeId>& parts, const std::vector<NodeId>& next) {
      for (std::size_t i = 0; i < parts.size(); ++i)
        if (parts[i] == part && next[i] == part)
          return true;
      return false;
    };
    return in(first.factors, second.factors) || in(first.terms, second.terms);
  }
};

/// Neighbouring parts of a concatenation: of one form, or one part alone.
struct Segment {
  NodeId first = ir::kNoNode; ///< in the graph that is made
  std::int64_t count = 1, direction = 0, width = 1;
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
          if (!out_) {
            out_ = &out;
            out_steps_.emplace(out);
            lifter_.emplace(out, *out_steps_);
            for (std::size_t slot = 0; slot < graph_.inputs().size(); ++slot)
              to_[graph_.inputs()[slot]] = out.inputs()[slot];
          }
          std::optional<NodeId> made;
          if (const auto it = rolled_.find(id); it != rolled_.end())
            made = member(it->second.first, it->second.second);
          else if (graph_[id].op == Op::Select)
            made = concatenation(id);
          else if (additions_.is_last(id))
            made = sum(id);
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
    if (depth == kDeepest || maps.size() > 16 ||
        (node.op != Op::Mul && !(node.op == Op::Add && map.factors.empty())))
      return;
    auto& parts = node.op == Op::Mul ? map.factors : map.terms;
    for (std::size_t side = 0; side < 2; ++side) {
      parts.push_back(node.inputs[1 - side]);
      map.path += static_cast<char>('0' + side + (node.op == Op::Mul ? 2 : 0));
      add_maps(node.inputs[side], map, depth + 1, maps);
      map.path.pop_back();
      parts.pop_back();
    }
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

  NodeId lift(const Run& run, NodeId part, std::int64_t count) {
    return run.stays(part) ? lifter_->repeated(to_[part], count)
                           : lifter_->lifted(to_[part], count, run.direction);
  }

  /// Whether the parts that move have steps in the graph that is made, and the scan is not too
  /// large.
  bool may_roll(const Run& run) {
    const auto has_step = [&](NodeId part) { return run.stays(part) || out_steps_->of(to_[part]); };
    const auto all = whole_box(graph_[run.members[0]].shape);
    double elements = static_cast<double>(run.members.size());
    for (const Range& range : all ? *all : Box{})
      elements *= static_cast<double>(range.extent());
    return all && elements <= kMostElements && std::ranges::all_of(run.first.factors, has_step) &&
           std::ranges::all_of(run.first.terms, has_step);
  }

  std::optional<NodeId> combined(const Run& run, Op op, const std::vector<NodeId>& parts,
                                 std::int64_t count) {
    std::optional<NodeId> all;
    for (const NodeId part : parts) {
      const NodeId one = lift(run, part, count);
      all = all ? out_->binary(op, *all, one) : one;
    }
    return all;
  }

  Value value_of(const Run& run) {
    const auto count = static_cast<std::int64_t>(run.members.size());
    const std::optional<NodeId> factor = combined(run, Op::Mul, run.first.factors, count);
    NodeId terms = *combined(run, Op::Add, run.first.terms, count);
    Value value;
    const NodeId first = to_[run.first.previous];
    const auto zero = ir::known_value(*out_, first);
    std::optional<NodeId> factors = factor;
    const bool starts_at_zero = zero && zero->as_double() == 0;
    if (!starts_at_zero && is_read_once(run.first.previous)) {
      terms = with_start(run, first, terms, count);
    } else if (!starts_at_zero) {
      value.before = 1;
      terms = with_first(first, terms, count);
      if (factor) {
        const Shape shape = (*out_)[*factor].shape;
        std::vector<Expr> before(shape.size(), Expr(0)), after = before;
        before[0] = Expr(1);
        factors = out_->pad(*factor, before, after, Scalar::of((*out_)[first].dtype, 0.0));
      }
    }
    value.last_alone = !factor && wants_last_alone(run);
    value.scan = value.last_alone ? out_->reduce(Op::ReduceSum, terms, {0})
                 : factors        ? out_->linear_scan(terms, *factors, 0)
                                  : out_->scan(Op::ScanSum, terms, 0);
    // What other values make of step t is of the same form for all t then.
    if (run.direction < 0 && !value.last_alone)
      value.scan = out_->flip(value.scan, {0});
    if (value.before == 1 && !value.last_alone)
      also_[first] = element(run, value, 0);
    return value;
  }

  /// The element that is scanned as number `place`.
  NodeId element(const Run& run, const Value& value, std::int64_t place) {
    const std::int64_t all = value.before + static_cast<std::int64_t>(run.members.size());
    return element_of(*out_, value.scan, run.direction < 0 ? all - 1 - place : place,
                      graph_[run.members[0]].shape);
  }

  bool is_read_once(NodeId id) const {
    return additions_.users(id).size() == 1 && !additions_.is_output(id);
  }

  /// The terms, the first of them with what the first map makes of the state before it.
  NodeId with_start(const Run& run, NodeId start, NodeId terms, std::int64_t count) {
    for (const NodeId factor : run.first.factors)
      start = out_->binary(Op::Mul, to_[factor], start);
    const Shape shape = (*out_)[start].shape;
    std::vector<Expr> none(shape.size() + 1, Expr(0)), after = none;
    after[0] = Expr(count - 1);
    const NodeId one = out_->reshape(start, with_front(Expr(1), shape));
    return out_->binary(Op::Add, terms,
                        out_->pad(one, none, after, Scalar::of((*out_)[terms].dtype, 0.0)));
  }

  /// `first` and behind it `rest`, along the axis in front.
  NodeId with_first(NodeId first, NodeId rest, std::int64_t count) {
    const Shape shape = (*out_)[rest].shape;
    const Scalar zero = Scalar::of((*out_)[rest].dtype, 0.0);
    std::vector<Expr> none(shape.size(), Expr(0)), before = none, after = none;
    before[0] = Expr(1);
    after[0] = Expr(count);
    const NodeId one = out_->reshape(first, with_front(Expr(1), (*out_)[first].shape));
    const NodeId padded = out_->pad(one, none, after, zero);
    return out_->binary(Op::Add, padded, out_->pad(rest, before, none, zero));
  }

  bool wants_last_alone(const Run& run) const {
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

  // --- Concatenations

  std::optional<NodeId> concatenation(NodeId id) {
    const auto all = whole_box(graph_[id].shape);
    const auto inner = [&](NodeId user) {
      return graph_[user].op == Op::Select && graph_[user].inputs[0] != id;
    };
    if (!all || std::ranges::any_of(additions_.users(id), inner))
      return std::nullopt;
    const std::optional<std::size_t> axis = joint_axis(id);
    if (!axis || (*all)[*axis].end < static_cast<std::int64_t>(kLeastSteps))
      return std::nullopt;
    std::vector<Segment> segments;
    std::int64_t parts = 0;
    for (std::int64_t at = 0; at < (*all)[*axis].end; ++parts) {
      const auto part = part_at(id, *all, *axis, at);
      if (!part)
        return std::nullopt;
      const std::int64_t width = graph_[*part].shape[*axis].value();
      add_part(segments, to_[*part], width);
      at += width;
      if (segments.size() > kMostSegments)
        return std::nullopt;
    }
    if (parts < static_cast<std::int64_t>(kLeastSteps))
      return std::nullopt;
    return joined(segments, *axis, graph_[id].shape);
  }

  /// The axis along which the first part that a choice may take is padded.
  std::optional<std::size_t> joint_axis(NodeId id) const {
    while (graph_[id].op == Op::Select)
      id = graph_[id].inputs[1];
    const Node& pad = graph_[id];
    std::optional<std::size_t> axis;
    if (pad.op == Op::Pad)
      for (std::size_t d = 0; d < pad.shape.size(); ++d)
        if (!(pad.attrs.before[d] == Expr(0)) || !(pad.attrs.after[d] == Expr(0))) {
          if (axis)
            return std::nullopt;
          axis = d;
        }
    return axis;
  }

  /// What is padded and begins at a place along the axis, if the choices take it there.
  std::optional<NodeId> part_at(NodeId id, const Box& all, std::size_t axis,
                                std::int64_t at) const {
    Box box = all;
    box[axis] = {at, at + 1};
    while (graph_[id].op == Op::Select) {
      const auto first = known_condition(graph_, graph_[id].inputs[0], box);
      if (!first)
        return std::nullopt;
      id = graph_[id].inputs[*first ? 1 : 2];
    }
    const Node& pad = graph_[id];
    if (pad.op != Op::Pad)
      return std::nullopt;
    const Shape& shape = graph_[pad.inputs[0]].shape;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const Expr begin = d == axis ? Expr(at) : Expr(0);
      if (!(pad.attrs.before[d] == begin) || !shape[d].is_constant() ||
          (d != axis && !(pad.attrs.after[d] == Expr(0))))
        return std::nullopt;
    }
    // The choices must take all of it.
    const std::int64_t width = shape[axis].value();
    return width == 1 ? std::optional(pad.inputs[0]) : std::nullopt;
  }

  void add_part(std::vector<Segment>& segments, NodeId part, std::int64_t width) {
    if (!segments.empty()) {
      Segment& last = segments.back();
      NodeId first = last.first;
      // What a scan begins with is its first element.
      if (last.count == 1)
        if (const auto again = as_element(first))
          if (follows(*again, part, last))
            first = last.first = *again;
      if (follows(first, part, last)) {
        last.direction = out_steps_->of(part).number > out_steps_->of(first).number ? 1 : -1;
        ++last.count;
        return;
      }
    }
    segments.push_back({part, 1, 0, width});
  }

  /// A value that a scan begins with, or a reshape of one, as an element of the scan.
  std::optional<NodeId> as_element(NodeId id) {
    const Node node = (*out_)[id];
    if (const auto it = also_.find(id); it != also_.end())
      return it->second;
    if (node.op != Op::Reshape)
      return std::nullopt;
    const auto below = as_element(node.inputs[0]);
    return below ? std::optional(out_->reshape(*below, node.shape)) : std::nullopt;
  }

  bool follows(NodeId first, NodeId part, const Segment& segment) {
    const Step a = out_steps_->of(first), b = out_steps_->of(part);
    if (!a || !b || a.form != b.form)
      return false;
    const std::int64_t moved = b.number - a.number;
    return segment.direction == 0 ? moved == segment.count || moved == -segment.count
                                  : moved == segment.direction * segment.count;
  }

  /// The values of all steps along an axis in which each of them has one element.
  NodeId along(NodeId first, std::int64_t count, std::int64_t direction, std::size_t axis) {
    const NodeId all = lifter_->lifted(first, count, direction);
    Shape shape = (*out_)[all].shape;
    shape.erase(shape.begin() + 1 + static_cast<std::ptrdiff_t>(axis));
    std::vector<std::int64_t> order;
    for (std::int64_t d = 1; d < static_cast<std::int64_t>(shape.size()); ++d)
      order.push_back(d);
    order.insert(order.begin() + static_cast<std::ptrdiff_t>(axis), 0);
    return out_->permute(out_->reshape(all, shape), order);
  }

  NodeId joined(const std::vector<Segment>& segments, std::size_t axis, const Shape& shape) {
    const Scalar zero = Scalar::of((*out_)[segments[0].first].dtype, 0.0);
    Shape line(shape.size(), Expr(1));
    line[axis] = shape[axis];
    std::int64_t end = shape[axis].value();
    std::optional<NodeId> all;
    for (std::size_t s = segments.size(); s-- > 0;) {
      const Segment& segment = segments[s];
      NodeId part = segment.count == 1
                        ? segment.first
                        : along(segment.first, segment.count, segment.direction, axis);
      const std::int64_t begin = end - segment.count * segment.width;
      std::vector<Expr> before(shape.size(), Expr(0)), after = before;
      before[axis] = Expr(begin);
      after[axis] = shape[axis] - Expr(end);
      part = out_->pad(part, before, after, zero);
      if (all) {
        const NodeId index = out_->reshape(out_->iota(shape[axis]), line);
        const NodeId bound = out_->broadcast(out_->constant(Scalar::of(DType::I64, end)), line);
        const NodeId first = out_->expand(out_->binary(Op::Lt, index, bound), shape);
        part = out_->select(first, part, *all);
      }
      all = part;
      end = begin;
    }
    return *all;
  }

  // --- Sums

  /// A term of a sum: of a step, or padded to its place along an axis.
  struct Term {
    NodeId value = ir::kNoNode; ///< with the step, in the graph that is made
    NodeId term = ir::kNoNode;  ///< in the graph as it was
    std::int64_t number = 0, place = 0;
  };

  std::optional<NodeId> sum(NodeId last) {
    const std::vector<NodeId> terms = additions_.terms(last);
    if (terms.size() < kLeastSteps)
      return std::nullopt;
    std::map<std::pair<std::uint64_t, int>, std::vector<Term>> alike; ///< by form and axis
    for (const NodeId term : terms) {
      const NodeId now = to_[term];
      if (const Step step = out_steps_->of(now))
        alike[{step.form, -1}].push_back({now, term, step.number, 0});
      // A pad by the place of the step has no form of its own.
      if (const auto placed = placed_term(term))
        alike[{out_steps_->of(placed->first.value).form, placed->second}].push_back(placed->first);
    }
    std::set<NodeId> taken;
    std::vector<NodeId> parts;
    for (auto& [form, list] : alike) {
      const int axis = form.second;
      std::ranges::sort(list, {}, [&](const Term& t) { return axis < 0 ? t.number : t.place; });
      for (std::size_t first = 0, end = 0; first < list.size(); first = end) {
        std::int64_t direction = 0;
        for (end = first + 1; end < list.size(); ++end) {
          const std::int64_t moved = list[end].number - list[end - 1].number;
          if ((axis >= 0 && list[end].place != list[end - 1].place + 1) ||
              (moved != 1 && moved != -1) || (direction != 0 && moved != direction))
            break;
          direction = moved;
        }
        const auto untaken = std::all_of(list.begin() + static_cast<std::ptrdiff_t>(first),
                                         list.begin() + static_cast<std::ptrdiff_t>(end),
                                         [&](const Term& t) { return !taken.contains(t.term); });
        if (end - first < kLeastSteps || !untaken)
          continue;
        parts.push_back(
            total(list[first], static_cast<std::int64_t>(end - first), direction, axis));
        for (std::size_t i = first; i < end; ++i)
          taken.insert(list[i].term);
      }
    }
    if (parts.empty())
      return std::nullopt;
    for (const NodeId term : terms)
      if (!taken.contains(term))
        parts.push_back(to_[term]);
    NodeId all = parts[0];
    for (std::size_t i = 1; i < parts.size(); ++i)
      all = out_->binary(Op::Add, all, parts[i]);
    return all;
  }

  std::optional<std::pair<Term, int>> placed_term(NodeId id) {
    const Node& pad = graph_[id];
    if (pad.op != Op::Pad || pad.attrs.value.as_double() != 0)
      return std::nullopt;
    int axis = -1;
    for (std::size_t d = 0; d < pad.shape.size(); ++d) {
      const Expr &before = pad.attrs.before[d], &after = pad.attrs.after[d];
      if (before == Expr(0) && after == Expr(0))
        continue;
      if (axis >= 0 || !before.is_constant() || !after.is_constant() ||
          !(graph_[pad.inputs[0]].shape[d] == Expr(1)))
        return std::nullopt;
      axis = static_cast<int>(d);
    }
    const NodeId value = to_[pad.inputs[0]];
    const Step step = out_steps_->of(value);
    if (axis < 0 || !step)
      return std::nullopt;
    return std::pair{Term{value, id, step.number, pad.attrs.before[std::size_t(axis)].value()},
                     axis};
  }

  NodeId total(const Term& first, std::int64_t count, std::int64_t direction, int axis) {
    if (axis < 0)
      return sum_of_steps(first.value, count, direction);
    const Node& pad = graph_[first.term];
    const NodeId all = along(first.value, count, direction, std::size_t(axis));
    std::vector<Expr> after = pad.attrs.after;
    after[std::size_t(axis)] = after[std::size_t(axis)] - Expr(count - 1);
    return out_->pad(all, pad.attrs.before, after, pad.attrs.value);
  }

  /// The sum over steps, of sums over all they add up.
  NodeId sum_of_steps(NodeId id, std::int64_t count, std::int64_t direction) {
    const Node node = (*out_)[id];
    if (node.op != Op::ReduceSum)
      return out_->reduce(Op::ReduceSum, lifter_->lifted(id, count, direction), {0});
    std::vector<std::int64_t> axes{0};
    for (const std::int64_t a : node.attrs.axes)
      axes.push_back(a + 1);
    return out_->reduce(Op::ReduceSum, lifter_->lifted(node.inputs[0], count, direction), axes);
  }

  const Graph& graph_;
  Steps steps_;
  Additions additions_;
  std::vector<NodeId> to_;
  std::vector<Run> runs_;
  std::map<NodeId, std::pair<std::size_t, std::size_t>> rolled_; ///< by member: run, place
  std::vector<std::optional<Value>> values_;
  Graph* out_ = nullptr; ///< while it is made
  std::optional<Steps> out_steps_;
  std::optional<StepLifter> lifter_;
  std::map<NodeId, NodeId> also_; ///< what scans begin with: the element of the scan
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
