#include "egraph/match.h"

namespace egret::egraph {

Matcher::Matcher(Engine& engine, const Forest& forest, MatchOptions options)
    : engine_(engine), forest_(forest), options_(options), context_{engine.pools, &engine},
      nodes_(forest.nodes.size()), registers_(forest.registers + 1) {}

/// A node is worth entering if its table has rows in range and it emits or has an active child.
bool Matcher::activate(std::uint32_t index) {
  const PlanNode& plan = forest_.nodes[index];
  Node& node = nodes_[index];
  bool useful = !plan.emits.empty();
  for (std::uint32_t child : plan.children)
    useful |= nodes_[child].active;
  if (!useful)
    return false;
  if (plan.step.kind == StepKind::Start || plan.step.kind == StepKind::Prim)
    return true;
  node.table = &engine_.tables[plan.step.target];
  std::uint32_t border = node.table->since(options_.seen);
  node.low = plan.step.range == RowRange::New ? border : 0;
  node.high = plan.step.range == RowRange::Old ? border : node.table->rows();
  return node.low < node.high && node.table->live() > 0;
}

void Matcher::prepare() {
  // Children come after their parents in the node list.
  for (std::uint32_t i = static_cast<std::uint32_t>(nodes_.size()); i-- > 0;)
    nodes_[i].active = activate(i);
  // Only what can be reached is indexed.
  std::vector<std::uint32_t> stack, reached;
  for (std::uint32_t root : forest_.roots)
    stack.push_back(root);
  while (!stack.empty()) {
    std::uint32_t i = stack.back();
    stack.pop_back();
    if (!nodes_[i].active)
      continue;
    const PlanNode& plan = forest_.nodes[i];
    if (plan.step.kind == StepKind::Probe)
      nodes_[i].index = &nodes_[i].table->index(plan.step.index);
    reached.push_back(i);
    stack.insert(stack.end(), plan.children.begin(), plan.children.end());
  }
  for (std::uint32_t i : reached)
    look_ahead(i);
}

/// Notes which index lookups of the children follow from a scanned row alone, so that they can be
/// asked for some rows ahead.
void Matcher::look_ahead(std::uint32_t index) {
  Node& node = nodes_[index];
  const PlanNode& plan = forest_.nodes[index];
  if (plan.step.kind != StepKind::Scan)
    return;
  for (std::uint32_t child : plan.children) {
    const PlanStep& step = forest_.nodes[child].step;
    if (!nodes_[child].index || step.key.size() != 1 || step.key[0].is_const)
      continue;
    for (const ColumnOp& op : plan.step.columns) {
      if (op.bind && op.operand == step.key[0])
        node.ahead.push_back(
            {nodes_[child].index, node.table->column(op.column), nodes_[child].table});
    }
  }
}

/// Far ahead the hash slots of the children's keys, nearer the rows that are found there.
inline void Matcher::prefetch_children(const Node& node, std::uint32_t row) {
  constexpr std::uint32_t kSlotsAhead = 24, kRowsAhead = 12;
  if (row + kSlotsAhead < node.high) {
    for (const Ahead& ahead : node.ahead)
      ahead.index->prefetch(ahead.column[row + kSlotsAhead]);
  }
  if (row + kRowsAhead < node.high) {
    for (const Ahead& ahead : node.ahead) {
      std::uint32_t found = ahead.index->first(ahead.column[row + kRowsAhead]);
      if (found != ColumnIndex::kEnd) {
        ahead.index->prefetch_next(found);
        ahead.table->prefetch_columns(found);
      }
    }
  }
}

bool Matcher::primitive(const PlanStep& step) {
  key_.clear();
  for (Operand operand : step.key)
    key_.push_back(value(operand));
  Value out = 0;
  if (!engine_.signature.primitive(step.target).body(context_, key_.data(), key_.size(), out))
    return false;
  if (step.binds_out) {
    registers_[step.out.value] = out;
    return true;
  }
  return out == value(step.out);
}

inline bool Matcher::accept(const PlanStep& step, const Node& node, std::uint32_t row) {
  RowState state = node.table->state(row);
  if (state != RowState::Live && (state == RowState::Dead || !options_.include_subsumed))
    return false;
  for (const ColumnOp& op : step.columns) {
    Value v = node.table->at(row, op.column);
    if (op.bind)
      registers_[op.operand.value] = v;
    else if (v != value(op.operand))
      return false;
  }
  return true;
}

/// Enters a node: finds its first candidate. For steps with at most one result the work is done
/// here.
bool Matcher::first(std::uint32_t index, Frame& frame) {
  const PlanStep& step = forest_.nodes[index].step;
  Node& node = nodes_[index];
  ++node.visits;
  frame = {index, ColumnIndex::kEnd, 0};
  switch (step.kind) {
  case StepKind::Start:
    return true;
  case StepKind::Prim:
    return primitive(step);
  case StepKind::Lookup: {
    key_.clear();
    for (Operand operand : step.key)
      key_.push_back(value(operand));
    std::uint32_t row = node.table->find(key_.data());
    return row != Table::kNone && row >= node.low && row < node.high && accept(step, node, row);
  }
  case StepKind::Scan:
    frame.row = node.low;
    return advance(frame);
  case StepKind::Probe: {
    std::uint32_t key = 0;
    if (step.key.size() == 1) {
      key = value(step.key[0]);
    } else {
      key = kIndexSeed;
      for (Operand operand : step.key)
        key = mix32(key, value(operand));
    }
    frame.row = node.index->first(key);
    return advance(frame);
  }
  }
  return false;
}

/// Moves to the next row that fits and binds it.
bool Matcher::advance(Frame& frame) {
  const PlanStep& step = forest_.nodes[frame.node].step;
  Node& node = nodes_[frame.node];
  if (step.kind == StepKind::Scan) {
    while (frame.row < node.high) {
      std::uint32_t row = frame.row++;
      prefetch_children(node, row);
      if (accept(step, node, row)) {
        frame.child = 0;
        return true;
      }
    }
    node.visits += frame.row - node.low;
    return false;
  }
  if (step.kind != StepKind::Probe)
    return false;
  while (frame.row != ColumnIndex::kEnd && frame.row >= node.low) { // rows come newest first
    std::uint32_t row = frame.row;
    frame.row = node.index->next(row);
    ++node.visits;
    if (frame.row != ColumnIndex::kEnd) {
      node.index->prefetch_next(frame.row);
      node.table->prefetch_columns(frame.row);
    }
    if (row < node.high && accept(step, node, row)) {
      frame.child = 0;
      return true;
    }
  }
  return false;
}

void Matcher::emit(const PlanNode& node) {
  for (const PlanEmit& emit : node.emits) {
    Matches& matches = matches_[emit.rule];
    for (Operand operand : emit.inputs)
      matches.words.push_back(value(operand));
    ++matches.count;
    ++found_;
  }
  stopped_ = options_.stop_after != 0 && found_ >= options_.stop_after;
}

void Matcher::walk(std::uint32_t root) {
  if (!nodes_[root].active)
    return;
  std::vector<Frame> stack(1);
  if (!first(root, stack[0]))
    return;
  emit(forest_.nodes[root]);
  constexpr std::uint64_t kBetweenLooks = std::uint64_t{1} << 16;
  while (!stack.empty() && !stopped_) {
    if (++steps_ % kBetweenLooks == 0 && engine_.limits.late())
      stopped_ = cut_short_ = true;
    Frame& top = stack.back();
    const PlanNode& plan = forest_.nodes[top.node];
    if (top.child < plan.children.size()) {
      std::uint32_t child = plan.children[top.child++];
      if (!nodes_[child].active)
        continue;
      Frame next;
      if (first(child, next)) {
        emit(forest_.nodes[child]);
        if (!forest_.nodes[child].children.empty() || nodes_[child].index ||
            forest_.nodes[child].step.kind == StepKind::Scan)
          stack.push_back(next);
      }
      continue;
    }
    if (advance(top))
      emit(plan);
    else
      stack.pop_back();
  }
}

void Matcher::share_work() {
  work_.assign(forest_.rules.size(), 0);
  // Every node's visits are shared out evenly among the rules below it.
  struct Item {
    std::uint32_t node;
    double inherited;
  };
  std::vector<Item> stack;
  for (std::uint32_t root : forest_.roots)
    stack.push_back({root, 0});
  while (!stack.empty()) {
    auto [index, inherited] = stack.back();
    stack.pop_back();
    const PlanNode& plan = forest_.nodes[index];
    double each =
        inherited + static_cast<double>(nodes_[index].visits) / std::max(1u, plan.rules_below);
    for (const PlanEmit& emit : plan.emits) {
      if (emit.rule < work_.size())
        work_[emit.rule] += each;
    }
    for (std::uint32_t child : plan.children)
      stack.push_back({child, each});
  }
}

std::vector<Matches> Matcher::run() {
  matches_.assign(std::max<std::size_t>(1, forest_.rules.size()), {});
  for (std::size_t i = 0; i < forest_.rules.size(); ++i)
    matches_[i].width = static_cast<std::uint32_t>(engine_.rules[forest_.rules[i]].inputs.size());
  prepare();
  for (std::uint32_t root : forest_.roots) {
    if (!stopped_)
      walk(root);
  }
  share_work();
  return std::move(matches_);
}

} // namespace egret::egraph
