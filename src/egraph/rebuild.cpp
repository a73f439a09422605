// Congruence: after classes were joined, rows and containers that mention an id which is no longer
// canonical are rewritten, and rows whose keys became equal are merged, until nothing changes.
// Containers come before tables.
#include "egraph/containers.h"
#include "egraph/engine.h"

#include "support/fail.h"

#include <algorithm>
#include <utility>

namespace egret::egraph {
namespace {

/// Columns of a function whose values may change.
std::vector<std::uint32_t> changing_columns(const Engine& engine, const Function& function) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t c = 0; c < function.inputs.size(); ++c) {
    if (engine.signature.sort(function.inputs[c]).holds_ids)
      out.push_back(c);
  }
  if (engine.signature.sort(function.output).holds_ids)
    out.push_back(static_cast<std::uint32_t>(function.inputs.size()));
  return out;
}

class Rebuilder {
public:
  explicit Rebuilder(Engine& engine) : engine_(engine) {}

  void run() {
    bool moved = false;
    while (!engine_.classes.displaced().empty()) {
      std::vector<Value> displaced = std::exchange(engine_.classes.displaced(), {});
      rebuild_containers(engine_);
      for (std::uint32_t f : engine_.ordinary)
        rebuild_table(FunctionId{f}, displaced);
      rebuild_globals();
      moved = true;
    }
    if (!moved)
      return;
    for (std::uint32_t f : engine_.ordinary)
      engine_.tables[f].compact();
  }

private:
  SortId column_sort(const Function& function, std::uint32_t c) const {
    return c < function.inputs.size() ? function.inputs[c] : function.output;
  }

  void rebuild_table(FunctionId id, const std::vector<Value>& displaced) {
    Table& table = engine_.table(id);
    const Function& function = engine_.signature.function(id);
    std::vector<std::uint32_t> columns = changing_columns(engine_, function);
    if (columns.empty() || table.live() == 0)
      return;
    stale_.clear();
    bool only_classes = true;
    for (std::uint32_t c : columns)
      only_classes &= engine_.signature.sort(column_sort(function, c)).is_eq();
    // Few displaced ids: ask the indexes. Many: look at every row.
    if (only_classes && displaced.size() * columns.size() * 4 < table.live())
      find_by_index(table, columns, displaced);
    else
      find_by_scan(table, function, columns);
    // As in Actor::run_all: what the rewrites will look up is asked for some rows ahead.
    constexpr std::size_t kAhead = 12;
    for (std::size_t i = 0; i < stale_.size(); ++i) {
      if (i + kAhead < stale_.size())
        prefetch(id, stale_[i + kAhead]);
      rewrite(id, stale_[i]);
    }
  }

  void rebuild_globals() {
    for (auto& [id, value] : engine_.globals) {
      Value current = engine_.canonical(engine_.signature.function(id).output, value);
      if (current == value)
        continue;
      Table& table = engine_.table(id);
      table.stamp(engine_.now);
      table.kill(table.find(nullptr));
      table.append(nullptr, current);
      value = current;
    }
  }

  void find_by_index(Table& table, const std::vector<std::uint32_t>& columns,
                     const std::vector<Value>& displaced) {
    for (std::uint32_t c : columns) {
      const ColumnIndex& index = table.index({c});
      for (Value id : displaced) {
        for (std::uint32_t row = index.first(id); row != ColumnIndex::kEnd; row = index.next(row)) {
          if (table.state(row) != RowState::Dead)
            stale_.push_back(row);
        }
      }
    }
    std::sort(stale_.begin(), stale_.end());
    stale_.erase(std::unique(stale_.begin(), stale_.end()), stale_.end());
  }

  void find_by_scan(const Table& table, const Function& function,
                    const std::vector<std::uint32_t>& columns) {
    for (std::uint32_t row = 0; row < table.rows(); ++row) {
      if (table.state(row) == RowState::Dead)
        continue;
      for (std::uint32_t c : columns) {
        SortId sort = column_sort(function, c);
        Value v = table.at(row, c);
        bool stale = engine_.signature.sort(sort).is_eq() ? !engine_.classes.is_canonical(v)
                                                          : engine_.canonical(sort, v) != v;
        if (stale) {
          stale_.push_back(row);
          break;
        }
      }
    }
  }

  void prefetch(FunctionId id, std::uint32_t row) {
    const Table& table = engine_.table(id);
    const Function& function = engine_.signature.function(id);
    if (row >= table.rows())
      return;
    table.prefetch_slot_of(row);
    key_.resize(function.inputs.size());
    for (std::size_t c = 0; c < key_.size(); ++c)
      key_[c] = engine_.canonical(function.inputs[c], table.at(row, c));
    table.prefetch_slot(table.hash_key(key_.data()));
  }

  /// Replaces a row by its canonical form, merging it with the row that has that form already.
  void rewrite(FunctionId id, std::uint32_t row) {
    const Function& function = engine_.signature.function(id);
    Table* table = &engine_.table(id);
    if (table->state(row) == RowState::Dead)
      return; // merged away meanwhile
    std::size_t keys = function.inputs.size();
    std::vector<Value> key(keys);
    for (std::size_t c = 0; c < keys; ++c)
      key[c] = engine_.canonical(function.inputs[c], table->at(row, c));
    Value output = engine_.canonical(function.output, table->output(row));
    RowState state = table->state(row);
    table->kill(row);
    std::uint32_t other = table->find(key.data());
    if (other == Table::kNone) {
      table->append(key.data(), output, state);
      return;
    }
    if (table->state(other) == RowState::Subsumed)
      state = RowState::Subsumed;
    Value other_output = engine_.canonical(function.output, table->output(other));
    Value result = other_output;
    if (output != other_output) {
      if (function.kind == FunctionKind::Constructor) {
        result = engine_.classes.join(output, other_output);
      } else if (function.kind == FunctionKind::Function) {
        // The older row counts as the old value.
        bool older = row < other;
        result = merged(engine_, id, key.data(), older ? output : other_output,
                        older ? other_output : output, {});
        table = &engine_.table(id);
        other = table->find(key.data());
      }
    }
    if (other != Table::kNone && table->output(other) == result) {
      if (state == RowState::Subsumed)
        table->subsume(other);
      return;
    }
    if (other != Table::kNone)
      table->kill(other);
    table->append(key.data(), result, state);
  }

  Engine& engine_;
  std::vector<std::uint32_t> stale_;
  std::vector<Value> key_;
};

} // namespace

void rebuild(Engine& engine) {
  Rebuilder(engine).run();
}

void check_invariants(const Engine& engine) {
  for (std::uint32_t f = 0; f < engine.tables.size(); ++f) {
    const Function& function = engine.signature.function(FunctionId{f});
    const Table& table = engine.tables[f];
    table.check(function.name.c_str());
    for (std::uint32_t row = 0; row < table.rows(); ++row) {
      if (table.state(row) == RowState::Dead)
        continue;
      for (std::uint32_t c = 0; c <= function.inputs.size(); ++c) {
        SortId sort = c < function.inputs.size() ? function.inputs[c] : function.output;
        ensure(engine.canonical(sort, table.at(row, c)) == table.at(row, c),
               "{} row {} column {} is not canonical", function.name, row, c);
      }
    }
  }
  ensure(engine.classes.displaced().empty(), "{} joined classes wait for a rebuild",
         engine.classes.displaced().size());
}

} // namespace egret::egraph
