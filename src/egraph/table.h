// A function's rows, column by column, with a hash index on the key. Rows are appended, never
// changed: an update kills the old row and appends the new one, so the rows since a moment are a
// suffix, which is what semi-naive evaluation asks for.
#pragma once

#include "egraph/flat_map.h"
#include "egraph/words.h"

#include "egret/egraph.h"

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

namespace egret::egraph {

/// A row that is leaving is dead but for matchers, which see the table as it was when the iteration
/// began.
enum class RowState : std::uint8_t { Live, Subsumed, Leaving, Dead };

/// Rows by the value of one column, or by a hash of several: the newest row of each key, and for
/// every row the one before it.
class ColumnIndex {
public:
  static constexpr std::uint32_t kEnd = 0xFFFFFFFFu;
  explicit ColumnIndex(std::vector<std::uint32_t> columns) : columns_(std::move(columns)) {}
  const std::vector<std::uint32_t>& columns() const { return columns_; }
  std::uint32_t first(std::uint32_t key) const { return heads_.find(key); }
  std::uint32_t next(std::uint32_t row) const { return next_[row]; }
  void prefetch_next(std::uint32_t row) const { __builtin_prefetch(&next_[row]); }
  std::size_t keys() const { return heads_.size(); }
  std::size_t bytes() const { return heads_.bytes() + next_.bytes(); }
  /// Brings what first() and then the row's readers will touch into the cache.
  void prefetch(std::uint32_t key) const { heads_.prefetch(key); }

private:
  friend class Table;
  std::vector<std::uint32_t> columns_;
  FlatMap32 heads_;
  Words<std::uint32_t> next_;
};

class Table {
public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;

  explicit Table(std::uint32_t key_columns) : columns_(key_columns + 1) {}
  Table(const Table& other);
  Table& operator=(const Table& other);
  Table(Table&&) = default;
  Table& operator=(Table&&) = default;

  std::uint32_t key_columns() const { return static_cast<std::uint32_t>(columns_.size() - 1); }
  /// Rows that were ever appended and not yet compacted away; dead ones included.
  std::uint32_t rows() const { return static_cast<std::uint32_t>(states_.size()); }
  std::uint32_t live() const { return live_; }
  const std::uint32_t* column(std::size_t c) const { return columns_[c].data(); }
  const Words<Value>& words(std::size_t c) const { return columns_[c]; }
  Value at(std::uint32_t row, std::size_t c) const { return columns_[c][row]; }
  Value output(std::uint32_t row) const { return columns_.back()[row]; }
  RowState state(std::uint32_t row) const { return states_[row]; }
  const RowState* states() const { return states_.data(); }

  /// The row with this key (live or subsumed), or kNone.
  std::uint32_t find(const Value* key) const { return find(key, hash_key(key)); }
  std::uint32_t find(const Value* key, std::uint32_t hash) const;
  /// Hash of a key, also for the two hints below: they bring what find() will read into the cache.
  std::uint32_t hash_key(const Value* key) const {
    std::uint32_t h = kKeySeed;
    for (std::size_t i = 0; i + 1 < columns_.size(); ++i)
      h = mix32(h, key[i]);
    return h;
  }
  std::uint32_t hash_row(std::uint32_t row) const {
    std::uint32_t h = kKeySeed;
    for (std::size_t i = 0; i + 1 < columns_.size(); ++i)
      h = mix32(h, columns_[i][row]);
    return h;
  }
  void prefetch_slot(std::uint32_t hash) const {
    if (!slots_.empty())
      __builtin_prefetch(&slots_[hash & mask_]);
  }
  void prefetch_row(std::uint32_t hash) const {
    if (slots_.empty())
      return;
    Slot slot = slots_[hash & mask_];
    if (slot.row == kNone)
      return;
    if (slot.hash != hash)
      slot = slots_[(hash + 1) & mask_];
    if (slot.hash != hash || slot.row == kNone)
      return;
    for (const auto& column : columns_)
      __builtin_prefetch(&column[slot.row]);
  }
  void prefetch_columns(std::uint32_t row) const {
    for (const auto& column : columns_)
      __builtin_prefetch(&column[row]);
    __builtin_prefetch(&states_[row]);
  }
  /// Appends a row whose key is absent.
  std::uint32_t append(const Value* key, Value output, RowState state = RowState::Live) {
    return append(key, hash_key(key), output, state);
  }
  std::uint32_t append(const Value* key, std::uint32_t hash, Value output, RowState state);
  void kill(std::uint32_t row) { kill(row, hash_row(row)); }
  void kill(std::uint32_t row, std::uint32_t hash);
  /// Kills a row and appends it anew with another output; returns the new one.
  std::uint32_t replace(std::uint32_t row, std::uint32_t hash, Value output, RowState state);
  void subsume(std::uint32_t row);

  /// Between these two, rows that are there now stay as they are for find_before() and for whoever
  /// reads row by row: a matcher, while matches that it found already are acted on.
  void begin_snapshot() { snapshot_ = rows(); }
  void end_snapshot();
  /// The row among the first `high` that had this key at the snapshot, or kNone.
  std::uint32_t find_before(const Value* key, std::uint32_t high) const {
    const std::uint32_t hash = hash_key(key);
    const std::uint32_t row = find(key, hash);
    if (row < high)
      return row;
    return leaving_.empty() ? kNone : find_leaving(key, hash, high);
  }

  /// Marks that rows from now on belong to time `now` or later.
  void stamp(std::uint32_t now);
  /// The first row that is newer than time `seen`.
  std::uint32_t since(std::uint32_t seen) const;

  /// An index on the columns, up to date with every row. Pointers stay valid until the table is
  /// compacted or destroyed.
  const ColumnIndex& index(const std::vector<std::uint32_t>& columns);
  /// The two halves of index(): the index as it is, made if need be, and the rows that it lacks.
  /// Different indexes may be extended at the same time.
  ColumnIndex& find_index(const std::vector<std::uint32_t>& columns);
  void extend(ColumnIndex& index) const;
  /// How many rows index() would have to add.
  std::uint32_t unindexed(const std::vector<std::uint32_t>& columns) const;
  /// Key of a row for an index on `columns`.
  std::uint32_t index_key(std::uint32_t row, const std::vector<std::uint32_t>& columns) const;
  /// Drops dead rows when they are many. True if rows were renumbered.
  bool compact();
  /// The cost of the scans that stood in for an index since one was last used. An index is built
  /// once they have cost as much.
  std::uint64_t scanned() const { return scanned_; }
  void note_scan(std::uint64_t cost) { scanned_ += cost; }
  void note_index() { scanned_ = 0; }
  std::size_t bytes() const;
  void drop_indexes() { indexes_.clear(); }
  /// Counts every change of content, so that a caller can tell whether anything happened.
  std::uint64_t changes() const { return changes_; }
  /// Throws InternalError if the key index and the columns disagree.
  void check(const char* name) const;

private:
  struct Slot {
    std::uint32_t hash;
    std::uint32_t row;
  };
  static constexpr std::uint32_t kKeySeed = 0x2545F491u;
  bool key_equals(std::uint32_t row, const Value* key) const;
  std::uint32_t find_leaving(const Value* key, std::uint32_t hash, std::uint32_t high) const;
  void grow();
  std::uint32_t slot_of(std::uint32_t row, std::uint32_t hash) const;

  std::vector<Words<Value>> columns_;
  Words<RowState> states_;
  Words<Slot> slots_;
  std::uint32_t mask_ = 0;
  std::uint32_t live_ = 0;
  std::uint64_t changes_ = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> stamps_; ///< (time, first row of that time)
  std::vector<std::unique_ptr<ColumnIndex>> indexes_;
  std::uint64_t scanned_ = 0;
  /// Rows at the last begin_snapshot(); 0 outside of one.
  std::uint32_t snapshot_ = 0;
  std::unordered_multimap<std::uint32_t, std::uint32_t> leaving_; ///< by the hash of the key
  std::vector<std::uint32_t> to_subsume_;                         ///< at the end of the snapshot
};

} // namespace egret::egraph
