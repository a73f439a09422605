#include "compiler/step_ends.h"

#include "compiler/boxes.h"
#include "compiler/unrolled_factors.h"

#include <algorithm>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

constexpr std::size_t kMostSegments = 4;

/// The only axis along which a value is padded.
std::optional<std::size_t> padded_axis(const Node& node) {
  std::optional<std::size_t> axis;
  if (node.op == Op::Pad)
    for (std::size_t d = 0; d < node.shape.size(); ++d)
      if (!(node.attrs.before[d] == Expr(0)) || !(node.attrs.after[d] == Expr(0))) {
        if (axis)
          return std::nullopt;
        axis = d;
      }
  return axis;
}

/// What is padded to one element of a whole, if choices by position take it there.
std::optional<NodeId> part_at(const Graph& graph, NodeId id, const Box& all, std::size_t axis,
                              std::int64_t at) {
  Box box = all;
  box[axis] = {at, at + 1};
  while (graph[id].op == Op::Select) {
    const auto first = known_condition(graph, graph[id].inputs[0], box);
    if (!first)
      return std::nullopt;
    id = graph[id].inputs[*first ? 1 : 2];
  }
  const Node& pad = graph[id];
  if (padded_axis(pad) != axis || !(pad.attrs.before[axis] == Expr(at)) ||
      !(graph[pad.inputs[0]].shape[axis] == Expr(1)))
    return std::nullopt;
  return pad.inputs[0];
}

} // namespace

// --- Concatenations

std::optional<NodeId> StepEnds::concatenation(NodeId select) {
  const auto all = whole_box(before_[select].shape);
  const auto inner = [&](NodeId user) {
    return before_[user].op == Op::Select && before_[user].inputs[0] != select;
  };
  if (!all || std::ranges::any_of(r_.additions.users(select), inner))
    return std::nullopt;
  NodeId first = select;
  while (before_[first].op == Op::Select)
    first = before_[first].inputs[1];
  const std::optional<std::size_t> axis = padded_axis(before_[first]);
  if (!axis || (*all)[*axis].end < static_cast<std::int64_t>(kLeastSteps))
    return std::nullopt;
  std::vector<Segment> segments;
  for (std::int64_t at = 0; at < (*all)[*axis].end; ++at) {
    const auto part = part_at(before_, select, *all, *axis, at);
    if (!part)
      return std::nullopt;
    add_part(segments, r_.to[*part]);
    if (segments.size() > kMostSegments)
      return std::nullopt;
  }
  return joined(segments, *axis, before_[select].shape);
}

void StepEnds::add_part(std::vector<Segment>& segments, NodeId part) {
  if (!segments.empty()) {
    Segment& last = segments.back();
    if (last.count == 1)
      if (const auto again = as_element(last.first); again && follows(*again, part, last))
        last.first = *again;
    if (follows(last.first, part, last)) {
      last.direction = r_.steps.of(part).number > r_.steps.of(last.first).number ? 1 : -1;
      ++last.count;
      return;
    }
  }
  segments.push_back({part});
}

/// A value that a scan begins with, or a reshape of one, as an element of the scan.
std::optional<NodeId> StepEnds::as_element(NodeId id) {
  const Node node = out_[id];
  if (const auto it = r_.elements.find(id); it != r_.elements.end())
    return it->second;
  if (node.op != Op::Reshape)
    return std::nullopt;
  const auto below = as_element(node.inputs[0]);
  return below ? std::optional(out_.reshape(*below, node.shape)) : std::nullopt;
}

bool StepEnds::follows(NodeId first, NodeId part, const Segment& segment) {
  const Step a = r_.steps.of(first), b = r_.steps.of(part);
  if (!a || !b || a.form != b.form)
    return false;
  const std::int64_t moved = b.number - a.number;
  return segment.direction == 0 ? moved == segment.count || moved == -segment.count
                                : moved == segment.direction * segment.count;
}

/// The values of all steps along an axis in which each of them has one element.
NodeId StepEnds::along(NodeId first, std::int64_t count, std::int64_t direction, std::size_t axis) {
  return front_as_axis(out_, r_.lifter.lifted(first, count, direction), axis);
}

NodeId StepEnds::joined(const std::vector<Segment>& segments, std::size_t axis,
                        const Shape& shape) {
  const Scalar zero = Scalar::of(out_[segments[0].first].dtype, 0.0);
  Shape line(shape.size(), Expr(1));
  line[axis] = shape[axis];
  std::int64_t end = shape[axis].value();
  std::optional<NodeId> all;
  for (std::size_t s = segments.size(); s-- > 0;) {
    const Segment& segment = segments[s];
    NodeId part = segment.count == 1 ? segment.first
                                     : along(segment.first, segment.count, segment.direction, axis);
    const std::int64_t begin = end - segment.count;
    std::vector<Expr> before(shape.size(), Expr(0)), after = before;
    before[axis] = Expr(begin);
    after[axis] = shape[axis] - Expr(end);
    part = out_.pad(part, before, after, zero);
    if (all) {
      const NodeId index = out_.reshape(out_.iota(shape[axis]), line);
      const NodeId bound = out_.broadcast(out_.constant(Scalar::of(DType::I64, end)), line);
      const NodeId first = out_.expand(out_.binary(Op::Lt, index, bound), shape);
      part = out_.select(first, part, *all);
    }
    all = part;
    end = begin;
  }
  return *all;
}

// --- Sums

std::optional<NodeId> StepEnds::sum(NodeId last) {
  const std::vector<NodeId> terms = r_.additions.terms(last);
  if (terms.size() < kLeastSteps)
    return std::nullopt;
  std::map<std::pair<std::uint64_t, int>, std::vector<Term>> alike; ///< by form and axis, or -1
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const NodeId now = r_.to[terms[i]];
    if (const Step step = r_.steps.of(now))
      alike[{step.form, -1}].push_back({now, i, step.number, step.number});
    // A pad by the place of the step has no form of its own.
    if (const auto placed = placed_term(terms[i], i))
      alike[{r_.steps.of(placed->first.value).form, placed->second}].push_back(placed->first);
  }
  std::vector<bool> taken(terms.size(), false);
  std::vector<NodeId> parts;
  for (auto& [form, list] : alike) {
    const int axis = form.second;
    std::ranges::sort(list, {}, &Term::place);
    for (std::size_t first = 0, end = 0; first < list.size(); first = end) {
      std::int64_t direction = 0;
      bool free = !taken[list[first].number];
      for (end = first + 1; end < list.size(); ++end) {
        const std::int64_t moved = list[end].step - list[end - 1].step;
        if (list[end].place != list[end - 1].place + 1 || (moved != 1 && moved != -1) ||
            (direction != 0 && moved != direction))
          break;
        direction = moved;
        free = free && !taken[list[end].number];
      }
      if (end - first < kLeastSteps || !free)
        continue;
      const auto count = static_cast<std::int64_t>(end - first);
      const NodeId value = list[first].value;
      if (axis < 0) {
        parts.push_back(sum_of_steps(value, count, direction));
      } else {
        const ir::Attrs& pad = before_[terms[list[first].number]].attrs;
        std::vector<Expr> after = pad.after;
        after[std::size_t(axis)] = after[std::size_t(axis)] - Expr(count - 1);
        parts.push_back(out_.pad(along(value, count, direction, std::size_t(axis)), pad.before,
                                 after, pad.value));
      }
      for (std::size_t i = first; i < end; ++i)
        taken[list[i].number] = true;
    }
  }
  if (parts.empty())
    return std::nullopt;
  for (std::size_t i = 0; i < terms.size(); ++i)
    if (!taken[i])
      parts.push_back(r_.to[terms[i]]);
  NodeId all = parts[0];
  for (std::size_t i = 1; i < parts.size(); ++i)
    all = out_.binary(Op::Add, all, parts[i]);
  return all;
}

std::optional<std::pair<StepEnds::Term, int>> StepEnds::placed_term(NodeId id, std::size_t number) {
  const Node& pad = before_[id];
  const std::optional<std::size_t> axis = padded_axis(pad);
  if (!axis || pad.attrs.value.as_double() != 0 || !pad.attrs.before[*axis].is_constant() ||
      !(before_[pad.inputs[0]].shape[*axis] == Expr(1)))
    return std::nullopt;
  const NodeId value = r_.to[pad.inputs[0]];
  const Step step = r_.steps.of(value);
  if (!step)
    return std::nullopt;
  return std::pair{Term{value, number, step.number, pad.attrs.before[*axis].value()},
                   static_cast<int>(*axis)};
}

/// The sum over steps, of sums over all they add up.
NodeId StepEnds::sum_of_steps(NodeId id, std::int64_t count, std::int64_t direction) {
  const Node node = out_[id];
  if (node.op != Op::ReduceSum)
    return out_.reduce(Op::ReduceSum, r_.lifter.lifted(id, count, direction), {0});
  std::vector<std::int64_t> axes{0};
  for (const std::int64_t a : node.attrs.axes)
    axes.push_back(a + 1);
  return out_.reduce(Op::ReduceSum, r_.lifter.lifted(node.inputs[0], count, direction), axes);
}

} // namespace egret::compiler
