#include "kernel/schedule.h"

#include "support/fail.h"

#include <array>
#include <charconv>

namespace egret::kernel {

namespace {

// Words of the text form, in the order of the enumerations.
constexpr std::array<std::string_view, 10> kBinds = {
    "serial", "unroll", "vector", "core", "grid", "cluster", "warpgroup", "warp", "lane", "matrix"};
constexpr std::array<std::string_view, 2> kOrders = {"fixed", "drawn"};
constexpr std::array<std::string_view, 4> kPolicies = {"default", "streaming", "evict_first",
                                                       "evict_last"};

/// Characters of a loop tree's text.
constexpr std::size_t kMostTree = 1 << 16;

template <std::size_t N>
int word(const std::array<std::string_view, N>& words, std::string_view text,
         std::string_view all) {
  for (std::size_t i = 0; i < N; ++i)
    if (words[i] == text)
      return int(i);
  fail(ErrorKind::Parse, "schedule: '{}' is not a word of '{}'", text, all);
}

std::int64_t number(std::string_view text, std::string_view all) {
  std::int64_t v = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc{} || end != text.data() + text.size())
    fail(ErrorKind::Parse, "schedule: '{}' is not a number in '{}'", text, all);
  return v;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  if (text.empty())
    return parts;
  for (;;) {
    auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos)
      return parts;
    text.remove_prefix(at + 1);
  }
}

void parse_setting(Schedule& s, std::string_view key, std::string_view value,
                   std::string_view word_text) {
  auto as_int = [&] { return int(number(value, word_text)); };
  if (key == "tree") {
    if (value.empty() || value.size() > kMostTree)
      fail(ErrorKind::Parse, "schedule: a tree of {} characters", value.size());
    s.tree = std::string(value);
  } else if (key == "vector_bytes") {
    s.vector_bytes = number(value, word_text);
  } else if (key == "split_reduce") {
    s.split_reduce = number(value, word_text);
  } else if (key == "order") {
    auto f = split(value, '/');
    if (f.size() != 2)
      fail(ErrorKind::Parse, "schedule: an order is kind/group, not '{}'", value);
    s.order = WorkOrder(word(kOrders, f[0], word_text));
    s.order_group = number(f[1], word_text);
  } else if (key == "load") {
    s.load_policy = CachePolicy(word(kPolicies, value, word_text));
  } else if (key == "store") {
    s.store_policy = CachePolicy(word(kPolicies, value, word_text));
  } else if (key == "mma") {
    s.mma = std::string(value);
  } else if (key == "blocks_per_core") {
    s.blocks_per_core = as_int();
  } else if (key == "least_shared") {
    s.least_shared = number(value, word_text);
  } else {
    fail(ErrorKind::Parse, "schedule: unknown setting '@{}'", key);
  }
}

} // namespace

const char* name_of(Bind bind) noexcept {
  return kBinds[std::size_t(bind)].data();
}

std::optional<Bind> bind_named(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kBinds.size(); ++i)
    if (kBinds[i] == name)
      return Bind(i);
  return std::nullopt;
}

std::int64_t Schedule::knob(const std::string& name, std::int64_t otherwise) const {
  auto it = knobs.find(name);
  return it == knobs.end() ? otherwise : it->second;
}

std::string to_string(const Schedule& s) {
  const Schedule plain;
  std::string out = s.generator;
  for (const auto& [name, value] : s.knobs)
    out += fmt::format(" {}={}", name, value);
  auto differs = [&](std::string_view key, auto value, auto usual) {
    if (value != usual)
      out += fmt::format(" @{}={}", key, value);
  };
  differs("tree", s.tree, plain.tree);
  differs("vector_bytes", s.vector_bytes, plain.vector_bytes);
  differs("split_reduce", s.split_reduce, plain.split_reduce);
  if (s.order != plain.order || s.order_group != plain.order_group)
    out += fmt::format(" @order={}/{}", kOrders[std::size_t(s.order)], s.order_group);
  differs("load", kPolicies[std::size_t(s.load_policy)], kPolicies[0]);
  differs("store", kPolicies[std::size_t(s.store_policy)], kPolicies[0]);
  differs("mma", s.mma, plain.mma);
  differs("blocks_per_core", s.blocks_per_core, plain.blocks_per_core);
  differs("least_shared", s.least_shared, plain.least_shared);
  return out;
}

Schedule parse_schedule(std::string_view text) {
  Schedule s;
  auto words = split(text, ' ');
  if (words.empty() || words[0].empty() || words[0].find('=') != std::string_view::npos)
    fail(ErrorKind::Parse, "schedule: '{}' does not begin with the name of a generator", text);
  s.generator = std::string(words[0]);
  for (std::size_t i = 1; i < words.size(); ++i) {
    auto at = words[i].find('=');
    if (at == std::string_view::npos || at == 0)
      fail(ErrorKind::Parse, "schedule: '{}' is not of the form name=value", words[i]);
    std::string_view key = words[i].substr(0, at), value = words[i].substr(at + 1);
    if (key[0] == '@')
      parse_setting(s, key.substr(1), value, words[i]);
    else if (!s.knobs.emplace(std::string(key), number(value, words[i])).second)
      fail(ErrorKind::Parse, "schedule: knob '{}' is given twice", key);
  }
  return s;
}

} // namespace egret::kernel
