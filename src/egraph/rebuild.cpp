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
      moved_ = rebuild_containers(engine_, displaced);
      for (std::uint32_t f : engine_.ordinary)
        rebuild_table(FunctionId{f}, displaced);
      rebuild_globals(displaced);
      if (marked_) {
        for (Value id : displaced)
          displaced_bits_[id / 64] = 0;
      }
      marked_ = false;
      moved = true;
    }
    if (!moved)
      return;
    for (std::uint32_t f : engine_.ordinary)
      engine_.tables[f].compact();
  }

private:
  /// Bits for scans: what was displaced when the round began, and what tables joined since. A round
  /// that asks indexes alone needs none.
  void mark(const std::vector<Value>& displaced) {
    displaced_bits_.resize(engine_.classes.size() / 64 + 1, 0);
    auto set = [&](const std::vector<Value>& ids) {
      for (Value id : ids)
        displaced_bits_[id / 64] |= std::uint64_t{1} << id % 64;
    };
    if (!marked_)
      set(displaced);
    marked_ = true;
    set(engine_.classes.displaced());
  }
  bool is_displaced(Value id) const { return (displaced_bits_[id / 64] >> id % 64 & 1) != 0; }

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
    if (indexes_pay(table, function, columns, displaced)) {
      find_by_index(table, function, columns, displaced);
      table.note_index();
    } else {
      mark(displaced);
      find_by_scan(table, function, columns);
      table.note_scan(columns.size() * std::uint64_t{table.rows()});
    }
    // As in Actor::run_all: what the rewrites will look up is asked for some rows ahead.
    constexpr std::size_t kAhead = 16;
    const std::size_t count = stale_.size();
    for (std::size_t i = 0; i < count + kAhead; ++i) {
      if (i < count)
        prefetch(table, function, stale_[i]);
      if (i >= kAhead)
        rewrite(id, function, stale_[i - kAhead]);
    }
  }

  /// What ceased to be canonical among the values of a sort.
  const std::vector<Value>& gone(SortId sort, const std::vector<Value>& displaced) const {
    return engine_.signature.sort(sort).is_eq() ? displaced : moved_[Signature::index(sort)];
  }

  /// Few displaced ids: ask the indexes. Many: look at every row. Indexes that lack many rows are
  /// brought up to date once the scans that they would have spared have cost as much, so that a
  /// series of small rebuilds costs at most a constant times the better way.
  bool indexes_pay(const Table& table, const Function& function,
                   const std::vector<std::uint32_t>& columns,
                   const std::vector<Value>& displaced) const {
    constexpr std::size_t kLookup = 24, kInsert = 12; // in the time that a row's column takes
    std::size_t lookups = 0, inserts = 0;
    for (std::uint32_t c : columns) {
      std::size_t ids = gone(column_sort(function, c), displaced).size();
      lookups += ids * kLookup;
      inserts += ids == 0 ? 0 : table.unindexed({c}) * kInsert;
    }
    const std::size_t scan = columns.size() * std::size_t{table.rows()};
    return lookups < scan && lookups + inserts < scan + table.scanned();
  }

  void rebuild_globals(const std::vector<Value>& displaced) {
    auto& of_class = engine_.globals_of_class;
    std::vector<std::uint32_t> stale;
    if (displaced.size() > engine_.globals.size()) {
      for (auto at = of_class.begin(); at != of_class.end();) {
        const bool moved = !engine_.classes.is_canonical(at->first);
        if (moved)
          stale.push_back(at->second);
        at = moved ? of_class.erase(at) : std::next(at);
      }
      std::sort(stale.begin(), stale.end());
    } else {
      for (Value id : displaced) {
        auto [at, end] = of_class.equal_range(id);
        for (; at != end; ++at)
          stale.push_back(at->second);
        of_class.erase(id);
      }
    }
    stale.insert(stale.end(), engine_.container_globals.begin(), engine_.container_globals.end());
    engine_.rebuild_steps += stale.size() + displaced.size();
    for (std::uint32_t global : stale)
      rebuild_global(global);
  }

  void rebuild_global(std::uint32_t global) {
    auto& [id, value] = engine_.globals[global];
    const SortId sort = engine_.signature.function(id).output;
    const Value current = engine_.canonical(sort, value);
    if (engine_.signature.sort(sort).is_eq())
      engine_.globals_of_class.emplace(current, global);
    if (current == value)
      return;
    Table& table = engine_.table(id);
    table.stamp(engine_.now);
    table.kill(table.find(nullptr));
    table.append(nullptr, current);
    value = current;
  }

  void find_by_index(Table& table, const Function& function,
                     const std::vector<std::uint32_t>& columns,
                     const std::vector<Value>& displaced) {
    for (std::uint32_t c : columns) {
      const std::vector<Value>& ids = gone(column_sort(function, c), displaced);
      if (ids.empty())
        continue;
      engine_.rebuild_steps += table.unindexed({c}) + ids.size();
      const ColumnIndex& index = table.index({c});
      for (Value id : ids) {
        for (std::uint32_t row = index.first(id); row != ColumnIndex::kEnd; row = index.next(row)) {
          ++engine_.rebuild_steps;
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
    const std::uint32_t rows = table.rows();
    engine_.rebuild_steps += rows;
    const RowState* states = table.states();
    bool only_classes = true;
    for (std::uint32_t c : columns)
      only_classes &= engine_.signature.sort(column_sort(function, c)).is_eq();
    for (std::uint32_t row = 0; row < rows; ++row) {
      bool stale = false;
      if (only_classes) {
        for (std::uint32_t c : columns)
          stale |= is_displaced(table.column(c)[row]);
      } else {
        for (std::uint32_t c : columns) {
          SortId sort = column_sort(function, c);
          Value v = table.at(row, c);
          stale |= engine_.signature.sort(sort).is_eq() ? is_displaced(v)
                                                        : engine_.canonical(sort, v) != v;
        }
      }
      if (stale && states[row] != RowState::Dead)
        stale_.push_back(row);
    }
  }

  /// Asks for the hash slots of a row's present and future key.
  void prefetch(const Table& table, const Function& function, std::uint32_t row) {
    table.prefetch_slot(table.hash_row(row));
    canonical_key(table, function, row);
    table.prefetch_slot(table.hash_key(key_.data()));
  }

  /// Leaves the canonical key of a row in key_; true if it differs from the row's.
  bool canonical_key(const Table& table, const Function& function, std::uint32_t row) {
    bool moved = false;
    key_.resize(function.inputs.size());
    for (std::size_t c = 0; c < key_.size(); ++c) {
      Value v = table.at(row, c);
      key_[c] = engine_.canonical(function.inputs[c], v);
      moved |= key_[c] != v;
    }
    return moved;
  }

  /// Replaces a row by its canonical form, merging it with the row that has that form already.
  void rewrite(FunctionId id, const Function& function, std::uint32_t row) {
    Table* table = &engine_.table(id);
    RowState state = table->state(row);
    if (state == RowState::Dead)
      return; // merged away meanwhile
    bool moved = canonical_key(*table, function, row);
    Value output = engine_.canonical(function.output, table->output(row));
    std::uint32_t hash = table->hash_key(key_.data());
    if (!moved) {
      if (output != table->output(row))
        table->replace(row, hash, output, state);
      return;
    }
    table->kill(row);
    std::uint32_t other = table->find(key_.data(), hash);
    if (other == Table::kNone) {
      table->append(key_.data(), hash, output, state);
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
        std::vector<Value> key = key_; // what a merge runs may come back here
        result = merged(engine_, id, key.data(), older ? output : other_output,
                        older ? other_output : output, {});
        table = &engine_.table(id);
        key_ = std::move(key);
        other = table->find(key_.data(), hash);
      }
    }
    if (other == Table::kNone) {
      table->append(key_.data(), hash, result, state);
    } else if (table->output(other) != result) {
      table->replace(other, hash, result, state);
    } else if (state == RowState::Subsumed) {
      table->subsume(other);
    }
  }

  Engine& engine_;
  std::vector<std::uint64_t> displaced_bits_; ///< per class id: in the round's queue
  bool marked_ = false;                       ///< the bits are those of this round
  std::vector<std::vector<Value>> moved_;     ///< by sort: containers that moved in this round
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
  for (std::uint32_t s = 0; s < engine.signature.sorts().size(); ++s) {
    const Sort& sort = engine.signature.sorts()[s];
    if (!sort.is_container() || !sort.holds_ids || !engine.pools.has_containers(s))
      continue;
    const ContainerPool& pool = engine.pools.containers(s);
    for (Value id = 0; id < pool.size(); ++id) {
      for (std::size_t i = 0; i < pool[id].size() && pool.is_current(id); ++i)
        ensure(!is_element(sort, i) || engine.canonical(element_sort(engine, sort, pool[id], i),
                                                        pool[id][i]) == pool[id][i],
               "container {} of {} holds something that is not canonical", id, sort.name);
    }
  }
  ensure(engine.classes.displaced().empty(), "{} joined classes wait for a rebuild",
         engine.classes.displaced().size());
}

} // namespace egret::egraph
