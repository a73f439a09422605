#include "text/tables.h"

#include <bit>
#include <functional>
#include <limits>

namespace egret::text {

KeyTable::KeyTable(std::size_t expected) {
  const std::size_t slots = std::bit_ceil(expected * 2 + 16);
  entries_.resize(slots);
  mask_ = slots - 1;
  shift_ = 64U - static_cast<unsigned>(std::countr_zero(slots));
}

void KeyTable::grow() {
  KeyTable larger(entries_.size());
  for (const Entry& entry : entries_)
    if (entry.key != kFree)
      larger.insert(entry.key, entry.value);
  *this = std::move(larger);
}

std::pair<std::uint64_t*, bool> KeyTable::insert(std::uint64_t key, std::uint64_t value) {
  if (2 * (size_ + 1) > entries_.size())
    grow();
  std::size_t at = slot(key);
  for (; entries_[at].key != kFree; at = (at + 1) & mask_)
    if (entries_[at].key == key)
      return {&entries_[at].value, false};
  entries_[at] = {key, value};
  ++size_;
  return {&entries_[at].value, true};
}

namespace {
std::size_t hash(std::string_view text) {
  return std::hash<std::string_view>{}(text);
}
} // namespace

void Vocabulary::rehash(std::size_t slots) {
  slots_.assign(slots, -1);
  for (std::size_t id = 0; id < places_.size(); ++id) {
    if (places_[id].bytes == Place::kNone)
      continue;
    std::size_t at = hash(text(places_[id])) & (slots - 1);
    while (slots_[at] >= 0)
      at = (at + 1) & (slots - 1);
    slots_[at] = static_cast<Id>(id);
  }
}

bool Vocabulary::add(std::string_view token, Id id) {
  const auto index = static_cast<std::size_t>(id);
  if (find(token) || (index < places_.size() && places_[index].bytes != Place::kNone) ||
      texts_.size() + token.size() >= std::numeric_limits<std::uint32_t>::max())
    return false;
  if (index >= places_.size())
    places_.resize(index + 1);
  places_[index] = {static_cast<std::uint32_t>(texts_.size()),
                    static_cast<std::uint32_t>(token.size())};
  texts_ += token;
  ++count_;
  if (2 * count_ > slots_.size()) {
    rehash(std::bit_ceil(4 * count_ + 16));
    return true;
  }
  std::size_t at = hash(token) & (slots_.size() - 1);
  while (slots_[at] >= 0)
    at = (at + 1) & (slots_.size() - 1);
  slots_[at] = id;
  return true;
}

std::optional<Id> Vocabulary::find(std::string_view token) const {
  if (slots_.empty())
    return std::nullopt;
  for (std::size_t at = hash(token) & (slots_.size() - 1); slots_[at] >= 0;
       at = (at + 1) & (slots_.size() - 1))
    if (text(places_[static_cast<std::size_t>(slots_[at])]) == token)
      return slots_[at];
  return std::nullopt;
}

std::optional<std::string_view> Vocabulary::token(Id id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= places_.size() ||
      places_[static_cast<std::size_t>(id)].bytes == Place::kNone)
    return std::nullopt;
  return text(places_[static_cast<std::size_t>(id)]);
}

void Trie::add(std::string_view key, std::uint32_t value) {
  if (key.empty())
    return;
  first_[static_cast<unsigned char>(key[0])] = true;
  std::uint64_t node = 0;
  for (const char c : key) {
    const auto [next, fresh] =
        edges_.insert(node << 8 | static_cast<unsigned char>(c), nodes_.size());
    node = *next;
    if (fresh)
      nodes_.push_back(kNone);
  }
  if (nodes_[node] == kNone)
    nodes_[node] = value;
}

} // namespace egret::text
