#include "text/grammar/syntax.h"

#include <algorithm>

namespace egret::text::grammar {

namespace {

template <class T>
NodePtr node(T is) {
  return std::make_shared<const Node>(Node{std::move(is)});
}

} // namespace

NodePtr literal(std::string_view bytes) {
  return node(Literal{std::string(bytes)});
}
NodePtr one_of(std::vector<CharRange> ranges) {
  return node(CharClass{normalized(std::move(ranges))});
}
NodePtr sequence(std::vector<NodePtr> parts) {
  return parts.size() == 1 ? parts[0] : node(Sequence{std::move(parts)});
}
NodePtr choice(std::vector<NodePtr> alternatives) {
  return alternatives.size() == 1 ? alternatives[0] : node(Choice{std::move(alternatives)});
}
NodePtr repeat(NodePtr body, std::uint32_t least, std::uint32_t most) {
  return node(Repeat{std::move(body), least, most});
}
NodePtr optional(NodePtr body) {
  return repeat(std::move(body), 0, 1);
}
NodePtr reference(std::size_t rule) {
  return node(Reference{rule});
}

std::vector<CharRange> normalized(std::vector<CharRange> ranges) {
  std::ranges::sort(ranges, {}, &CharRange::first);
  std::vector<CharRange> out;
  for (const CharRange& range : ranges)
    if (!out.empty() && range.first <= out.back().last + 1)
      out.back().last = std::max(out.back().last, range.last);
    else
      out.push_back(range);
  return out;
}

std::vector<CharRange> complement(std::vector<CharRange> ranges) {
  std::vector<CharRange> out;
  char32_t next = 0;
  for (const CharRange& range : normalized(std::move(ranges))) {
    if (range.first > next)
      out.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastChar)
    out.push_back({next, kLastChar});
  return out;
}

std::vector<CharRange> intersection(const std::vector<CharRange>& a,
                                    const std::vector<CharRange>& b) {
  std::vector<CharRange> out;
  for (const CharRange& x : a)
    for (const CharRange& y : b)
      if (std::max(x.first, y.first) <= std::min(x.last, y.last))
        out.push_back({std::max(x.first, y.first), std::min(x.last, y.last)});
  return normalized(std::move(out));
}

} // namespace egret::text::grammar
