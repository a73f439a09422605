#include "egraph/table.h"

#include "support/fail.h"

#include <algorithm>
#include <utility>

namespace egret::egraph {
namespace {
constexpr std::uint32_t kEmpty = 0xFFFFFFFFu;
}

Table::Table(const Table& other)
    : columns_(other.columns_), states_(other.states_), slots_(other.slots_), mask_(other.mask_),
      live_(other.live_), changes_(other.changes_), stamps_(other.stamps_) {}

Table& Table::operator=(const Table& other) {
  if (this != &other)
    *this = Table(other);
  return *this;
}

bool Table::key_equals(std::uint32_t row, const Value* key) const {
  for (std::size_t i = 0; i + 1 < columns_.size(); ++i) {
    if (columns_[i][row] != key[i])
      return false;
  }
  return true;
}

std::uint32_t Table::find(const Value* key, std::uint32_t hash) const {
  if (slots_.empty())
    return kNone;
  for (std::uint32_t i = hash & mask_; slots_[i].row != kEmpty; i = (i + 1) & mask_) {
    if (slots_[i].hash == hash && key_equals(slots_[i].row, key))
      return slots_[i].row;
  }
  return kNone;
}

void Table::grow() {
  Words<Slot> old = std::move(slots_);
  slots_.assign(old.empty() ? 8 : old.size() * 2, Slot{0, kEmpty});
  mask_ = static_cast<std::uint32_t>(slots_.size() - 1);
  for (const Slot& slot : old) {
    if (slot.row == kEmpty)
      continue;
    std::uint32_t i = slot.hash & mask_;
    while (slots_[i].row != kEmpty)
      i = (i + 1) & mask_;
    slots_[i] = slot;
  }
}

std::uint32_t Table::append(const Value* key, std::uint32_t hash, Value output, RowState state) {
  if ((std::size_t{live_} + 1) * 4 > slots_.size() * 3)
    grow();
  std::uint32_t row = rows();
  ensure(row < kNone - 1, "a table has more than 2^32 rows");
  for (std::size_t i = 0; i + 1 < columns_.size(); ++i)
    columns_[i].push_back(key[i]);
  columns_.back().push_back(output);
  states_.push_back(state);
  std::uint32_t i = hash & mask_;
  while (slots_[i].row != kEmpty)
    i = (i + 1) & mask_;
  slots_[i] = {hash, row};
  ++live_;
  ++changes_;
  return row;
}

std::uint32_t Table::slot_of(std::uint32_t row, std::uint32_t hash) const {
  std::uint32_t i = hash & mask_;
  while (slots_[i].row != row)
    i = (i + 1) & mask_;
  return i;
}

void Table::kill(std::uint32_t row, std::uint32_t hash) {
  // Removal by shifting back keeps probe sequences free of tombstones.
  std::uint32_t hole = slot_of(row, hash);
  for (std::uint32_t i = (hole + 1) & mask_; slots_[i].row != kEmpty; i = (i + 1) & mask_) {
    std::uint32_t home = slots_[i].hash & mask_;
    if (((i - home) & mask_) >= ((i - hole) & mask_)) {
      slots_[hole] = slots_[i];
      hole = i;
    }
  }
  slots_[hole].row = kEmpty;
  if (row < snapshot_) {
    states_[row] = RowState::Leaving;
    leaving_.emplace(hash, row);
  } else {
    states_[row] = RowState::Dead;
  }
  --live_;
  ++changes_;
}

std::uint32_t Table::replace(std::uint32_t old, std::uint32_t hash, Value output, RowState state) {
  std::uint32_t row = rows();
  ensure(row < kNone - 1, "a table has more than 2^32 rows");
  slots_[slot_of(old, hash)].row = row;
  for (std::size_t i = 0; i + 1 < columns_.size(); ++i)
    columns_[i].push_back(Value{columns_[i][old]});
  columns_.back().push_back(output);
  states_.push_back(state);
  states_[old] = RowState::Dead;
  changes_ += 2;
  return row;
}

std::uint32_t Table::find_leaving(const Value* key, std::uint32_t hash, std::uint32_t high) const {
  auto [at, end] = leaving_.equal_range(hash);
  for (; at != end; ++at) {
    if (at->second < high && key_equals(at->second, key))
      return at->second;
  }
  return kNone;
}

void Table::end_snapshot() {
  snapshot_ = 0;
  for (auto [hash, row] : leaving_)
    states_[row] = RowState::Dead;
  leaving_.clear();
  for (std::uint32_t row : std::exchange(to_subsume_, {}))
    subsume(row);
}

void Table::subsume(std::uint32_t row) {
  if (row < snapshot_) {
    to_subsume_.push_back(row);
    return;
  }
  if (states_[row] == RowState::Live) {
    states_[row] = RowState::Subsumed;
    ++changes_;
  }
}

void Table::stamp(std::uint32_t now) {
  if (!stamps_.empty() && stamps_.back().second == rows())
    stamps_.back().first = now; // nothing came at the last time
  else
    stamps_.emplace_back(now, rows());
}

std::uint32_t Table::since(std::uint32_t seen) const {
  auto at =
      std::upper_bound(stamps_.begin(), stamps_.end(), seen,
                       [](std::uint32_t time, const auto& stamp) { return time < stamp.first; });
  return at == stamps_.end() ? rows() : at->second;
}

std::uint32_t Table::index_key(std::uint32_t row, const std::vector<std::uint32_t>& columns) const {
  if (columns.size() == 1)
    return columns_[columns[0]][row];
  std::uint32_t h = kIndexSeed;
  for (std::uint32_t c : columns)
    h = mix32(h, columns_[c][row]);
  return h;
}

ColumnIndex& Table::find_index(const std::vector<std::uint32_t>& columns) {
  for (auto& candidate : indexes_) {
    if (candidate->columns_ == columns)
      return *candidate;
  }
  indexes_.push_back(std::make_unique<ColumnIndex>(columns));
  return *indexes_.back();
}

const ColumnIndex& Table::index(const std::vector<std::uint32_t>& columns) {
  ColumnIndex& found = find_index(columns);
  extend(found);
  return found;
}

void Table::extend(ColumnIndex& index) const {
  std::uint32_t from = static_cast<std::uint32_t>(index.next_.size());
  if (from == rows())
    return;
  index.next_.reserve(rows());
  constexpr std::uint32_t kAhead = 16;
  for (std::uint32_t row = from; row < rows(); ++row) {
    if (row + kAhead < rows())
      index.heads_.prefetch(index_key(row + kAhead, index.columns_));
    if (states_[row] == RowState::Dead) {
      index.next_.push_back(ColumnIndex::kEnd);
      continue;
    }
    std::uint32_t& head = index.heads_.at(index_key(row, index.columns_));
    index.next_.push_back(head);
    head = row;
  }
}

std::uint32_t Table::unindexed(const std::vector<std::uint32_t>& columns) const {
  for (const auto& candidate : indexes_) {
    if (candidate->columns_ == columns)
      return rows() - static_cast<std::uint32_t>(candidate->next_.size());
  }
  return rows();
}

bool Table::compact() {
  std::uint32_t dead = rows() - live_;
  if (dead < 64 || dead < rows() / 3)
    return false;
  std::vector<std::uint32_t> moved(rows() + 1);
  std::uint32_t to = 0;
  for (std::uint32_t row = 0; row < rows(); ++row) {
    moved[row] = to;
    if (states_[row] == RowState::Dead)
      continue;
    for (auto& column : columns_)
      column[to] = column[row];
    states_[to] = states_[row];
    ++to;
  }
  moved[rows()] = to;
  for (auto& [time, row] : stamps_)
    row = moved[row];
  // Of stamps that fell together the last one holds.
  std::size_t kept = 0;
  for (std::size_t i = 0; i < stamps_.size(); ++i) {
    if (i + 1 < stamps_.size() && stamps_[i + 1].second == stamps_[i].second)
      continue;
    stamps_[kept++] = stamps_[i];
  }
  stamps_.resize(kept);
  for (Slot& slot : slots_) {
    if (slot.row != kEmpty)
      slot.row = moved[slot.row];
  }
  for (auto& column : columns_)
    column.resize(to);
  states_.resize(to);
  indexes_.clear();
  return true;
}

std::size_t Table::bytes() const {
  std::size_t total = states_.bytes() + slots_.bytes() + stamps_.capacity() * 8;
  for (const auto& column : columns_)
    total += column.bytes();
  for (const auto& index : indexes_)
    total += index->bytes();
  return total;
}

void Table::check(const char* name) const {
  std::uint32_t live = 0;
  std::vector<Value> key(columns_.size() - 1);
  for (std::uint32_t row = 0; row < rows(); ++row) {
    if (states_[row] == RowState::Dead)
      continue;
    ++live;
    for (std::size_t c = 0; c + 1 < columns_.size(); ++c)
      key[c] = columns_[c][row];
    ensure(find(key.data()) == row, "table {}: the key index misses row {}", name, row);
  }
  ensure(live == live_, "table {}: {} rows live, {} counted", name, live, live_);
}

} // namespace egret::egraph
