#include "egraph/walk.h"

#include <algorithm>

namespace egret::egraph {

/// Far ahead the hash slots of the children's keys, nearer the rows that are found there.
inline void Walker::prefetch_children(const Matcher::Node& node, std::uint32_t row) {
  constexpr std::uint32_t kSlotsAhead = 24, kRowsAhead = 12;
  if (row + kSlotsAhead < node.high) {
    for (const Matcher::Ahead& ahead : node.ahead)
      ahead.index->prefetch((*ahead.column)[row + kSlotsAhead]);
  }
  if (row + kRowsAhead < node.high) {
    for (const Matcher::Ahead& ahead : node.ahead) {
      std::uint32_t found = ahead.index->first((*ahead.column)[row + kRowsAhead]);
      if (found != ColumnIndex::kEnd) {
        ahead.index->prefetch_next(found);
        ahead.table->prefetch_columns(found);
      }
    }
  }
}

bool Walker::primitive(const PlanStep& step) {
  key_.clear();
  for (Operand operand : step.key)
    key_.push_back(value(operand));
  Value out = 0;
  if (!matcher_.engine_.signature.primitive(step.target)
           .body(context_, key_.data(), key_.size(), out))
    return false;
  if (step.binds_out) {
    at(step.out) = out;
    return true;
  }
  return out == value(step.out);
}

inline bool Walker::accept(const PlanStep& step, const Matcher::Node& node, std::uint32_t row) {
  RowState state = node.table->state(row);
  if (state == RowState::Dead ||
      (state == RowState::Subsumed && !matcher_.options_.include_subsumed))
    return false;
  for (const ColumnOp& op : step.columns) {
    Value v = node.table->at(row, op.column);
    if (op.bind)
      at(op.operand) = v;
    else if (v != value(op.operand))
      return false;
  }
  return true;
}

inline std::uint32_t Walker::index_key(const std::vector<Operand>& key) const {
  if (key.size() == 1)
    return value(key[0]);
  std::uint32_t hash = kIndexSeed;
  for (Operand operand : key)
    hash = mix32(hash, value(operand));
  return hash;
}

/// Whether fewer rows follow `crossed` than `row`: goes along both until one ends.
bool Walker::fewer_crossed(const Matcher::Node& node, std::uint32_t row, std::uint32_t crossed) {
  while (row != ColumnIndex::kEnd && row >= node.low) {
    if (crossed == ColumnIndex::kEnd)
      return true;
    row = node.index->next(row);
    crossed = node.crossing_index->next(crossed);
    if (stop_now())
      break;
  }
  return false;
}

/// Binds what a row of the crossing's atom gives; false if the probed atom has no row for it.
bool Walker::cross(const PlanStep& step, const Matcher::Node& node, std::uint32_t row,
                   Frame& frame) {
  const Crossing& crossing = *step.crossing;
  if (row >= node.crossed_high)
    return false;
  for (const ColumnOp& op : crossing.binds)
    at(op.operand) = node.crossed->at(row, op.column);
  const auto find = [&](const Table& table, const std::vector<Operand>& operands,
                        std::uint32_t high) {
    key_.clear();
    for (Operand operand : operands)
      key_.push_back(value(operand));
    return table.find_before(key_.data(), high);
  };
  // Of rows with one key, the one that is looked up: no match is found twice.
  if (find(*node.crossed, crossing.whole, node.crossed_high) != row)
    return false;
  frame.found = find(*node.table, crossing.own, node.high);
  if (frame.found == Table::kNone || frame.found < node.low)
    return false;
  for (std::size_t i = 0; i < step.index.size(); ++i) {
    if (node.table->at(frame.found, step.index[i]) != value(step.key[i]))
      return false;
  }
  return accept(step, node, frame.found);
}

/// Enters a node: finds its first candidate. For steps with at most one result the work is done
/// here.
bool Walker::first(std::uint32_t index, Frame& frame) {
  const PlanStep& step = matcher_.forest_.nodes[index].step;
  const Matcher::Node& node = matcher_.nodes_[index];
  ++visits_[index];
  frame = {index, ColumnIndex::kEnd, node.high, 0, 0, false};
  switch (step.kind) {
  case StepKind::Start:
    return true;
  case StepKind::Prim:
    return primitive(step);
  case StepKind::Lookup: {
    key_.clear();
    for (Operand operand : step.key)
      key_.push_back(value(operand));
    std::uint32_t row = node.table->find_before(key_.data(), node.high);
    frame.found = row;
    return row != Table::kNone && row >= node.low && accept(step, node, row);
  }
  case StepKind::Scan:
    frame.row = node.low;
    return advance(frame);
  case StepKind::Probe: {
    frame.row = node.index->first(index_key(step.key));
    if (step.crossing) {
      const std::uint32_t crossed = node.crossing_index->first(index_key(step.crossing->key));
      frame.crossed = fewer_crossed(node, frame.row, crossed);
      if (frame.crossed)
        frame.row = crossed;
    }
    return advance(frame);
  }
  }
  return false;
}

/// Counts a step, and now and then looks whether time is up.
inline bool Walker::stop_now() {
  constexpr std::uint64_t kBetweenLooks = std::uint64_t{1} << 14;
  if (++steps_ % kBetweenLooks == 0 && !stopped_) {
    cut_ = matcher_.engine_.limits.late();
    stopped_ = cut_.has_value();
    if (shared_words_ != nullptr)
      publish();
  }
  return stopped_;
}

/// Moves to the next row that fits and binds it.
bool Walker::advance(Frame& frame) {
  const PlanStep& step = matcher_.forest_.nodes[frame.node].step;
  const Matcher::Node& node = matcher_.nodes_[frame.node];
  if (step.kind == StepKind::Scan) {
    while (frame.row < frame.end) {
      std::uint32_t row = frame.row++;
      ++visits_[frame.node];
      if (stop_now())
        return false;
      prefetch_children(node, row);
      if (accept(step, node, row)) {
        frame.child = 0;
        frame.found = row;
        return true;
      }
    }
    return false;
  }
  if (step.kind != StepKind::Probe)
    return false;
  while (frame.crossed && frame.row != ColumnIndex::kEnd) {
    const std::uint32_t row = frame.row;
    frame.row = node.crossing_index->next(row);
    ++visits_[frame.node];
    if (stop_now())
      return false;
    if (cross(step, node, row, frame)) {
      frame.child = 0;
      return true;
    }
  }
  if (frame.crossed)
    return false;
  while (frame.row != ColumnIndex::kEnd && frame.row >= node.low) { // rows come newest first
    std::uint32_t row = frame.row;
    frame.row = node.index->next(row);
    ++visits_[frame.node];
    if (stop_now())
      return false;
    if (frame.row != ColumnIndex::kEnd) {
      node.index->prefetch_next(frame.row);
      node.table->prefetch_columns(frame.row);
    }
    if (row < node.high && accept(step, node, row)) {
      frame.child = 0;
      frame.found = row;
      return true;
    }
  }
  return false;
}

bool Walker::is_new(const Frame& frame) const {
  const Matcher::Node& node = matcher_.nodes_[frame.node];
  return node.table && frame.found >= node.border;
}

void Walker::emit(const std::vector<Frame>& stack, const Frame& last) {
  for (const Matcher::Emit& item : matcher_.nodes_[last.node].emits) {
    if (item.asks_news && !is_new(last) &&
        std::none_of(stack.begin(), stack.end(), [&](const Frame& f) { return is_new(f); }))
      continue;
    if (shared_words_ == nullptr && found_ == matcher_.engine_.limits.matches) {
      cut_ = StopReason::Matches;
      stopped_ = true;
      return;
    }
    store(*item.plan);
  }
  if (matcher_.options_.stop_after != 0 && found_ >= matcher_.options_.stop_after)
    stopped_ = true;
  else if (stored_ >= matcher_.engine_.batch())
    full();
}

inline void Walker::store(const PlanEmit& emit) {
  Matches& matches = (*matches_)[emit.rule];
  const auto& most = matcher_.options_.most;
  if (!most.empty() && matches.count > most[emit.rule])
    return;
  if (matches.count++ == 0)
    touched_.push_back(emit.rule);
  ++found_;
  if (!most.empty() && matches.count > most[emit.rule]) {
    matches.words = {};
    return;
  }
  for (Operand operand : emit.inputs)
    matches.words.push_back(value(operand));
  stored_ += std::max<std::size_t>(1, emit.inputs.size());
}

void Walker::full() {
  if (shared_words_ != nullptr) {
    publish();
    return;
  }
  stored_ = 0;
  if (!drain_(*matches_)) {
    cut_ = matcher_.engine_.limits.reached;
    stopped_ = true;
  }
}

void Walker::publish() {
  *shared_words_ += std::exchange(stored_, 0);
  *shared_found_ += found_ - std::exchange(published_, found_);
  stopped_ |=
      *shared_words_ > matcher_.engine_.batch() || *shared_found_ > matcher_.engine_.limits.matches;
}

void Walker::walk(const Matcher::Piece& piece) {
  if (piece.turned)
    return walk_turned(piece.root, *piece.turned);
  stack_.assign(1, {});
  if (matcher_.forest_.nodes[piece.root].step.kind == StepKind::Scan) {
    // Once, however the rows are split.
    visits_[piece.root] += piece.low == matcher_.nodes_[piece.root].low;
    stack_[0] = {piece.root, piece.low, piece.high, 0, 0};
    if (!advance(stack_[0]))
      return;
  } else if (!first(piece.root, stack_[0])) {
    return;
  }
  emit(stack_, stack_[0]);
  descend(stack_);
}

/// The matches of a scan and an index lookup below it, from the rows of the latter.
void Walker::walk_turned(std::uint32_t root, std::uint32_t child) {
  const PlanStep& scan = matcher_.forest_.nodes[root].step;
  const PlanStep& probe = matcher_.forest_.nodes[child].step;
  const Matcher::Node& above = matcher_.nodes_[root];
  const Matcher::Node& below = matcher_.nodes_[child];
  const std::uint32_t column = *only_column(probe);
  constexpr std::uint32_t kNoMore = ColumnIndex::kEnd;
  for (std::uint32_t row = below.low; row < below.high && !stopped_; ++row) {
    ++visits_[child];
    if (stop_now())
      return;
    if (below.table->state(row) == RowState::Dead)
      continue;
    std::uint32_t outer = below.turned->first(below.table->at(row, column));
    for (; outer != kNoMore && outer >= above.low && !stopped_; outer = below.turned->next(outer)) {
      ++visits_[child];
      if (stop_now())
        return;
      if (outer >= above.high || !accept(scan, above, outer) || !accept(probe, below, row))
        continue;
      stack_.assign({{root, above.high, above.high, kNoMore, outer}});
      Frame found{child, kNoMore, below.high, 0, row};
      emit(stack_, found);
      stack_.push_back(found);
      descend(stack_);
    }
  }
}

/// Takes all matches below the frames of the stack, and empties it.
void Walker::descend(std::vector<Frame>& stack) {
  while (!stack.empty() && !stop_now()) {
    Frame& top = stack.back();
    const PlanNode& plan = matcher_.forest_.nodes[top.node];
    if (top.child < plan.children.size()) {
      std::uint32_t child = plan.children[top.child++];
      if (!matcher_.nodes_[child].active || matcher_.nodes_[child].turned)
        continue;
      Frame next;
      if (first(child, next)) {
        emit(stack, next);
        if (!matcher_.forest_.nodes[child].children.empty() || matcher_.nodes_[child].index ||
            matcher_.forest_.nodes[child].step.kind == StepKind::Scan)
          stack.push_back(next);
      }
      continue;
    }
    if (advance(top))
      emit(stack, top);
    else
      stack.pop_back();
  }
}

} // namespace egret::egraph
