// Grammars as trees of expressions, before they are compiled.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace egret::text::grammar {

struct CharRange {
  char32_t first, last; ///< both belong to it
};

struct Node;
using NodePtr = std::shared_ptr<const Node>;

struct Literal {
  std::string bytes;
};
struct CharClass {
  std::vector<CharRange> ranges; ///< in order, apart from each other
};
struct Sequence {
  std::vector<NodePtr> parts;
};
struct Choice {
  std::vector<NodePtr> alternatives;
};
struct Repeat {
  static constexpr std::uint32_t kUnbounded = std::numeric_limits<std::uint32_t>::max();
  NodePtr body;
  std::uint32_t least, most;
};
struct Reference {
  std::size_t rule;
};
struct Node {
  std::variant<Literal, CharClass, Sequence, Choice, Repeat, Reference> is;
};

struct Rule {
  std::string name;
  NodePtr body;
};
struct Rules {
  std::vector<Rule> rules;
  std::size_t root = 0;
};

inline constexpr char32_t kLastChar = 0x10ffff;

NodePtr literal(std::string_view bytes);
NodePtr one_of(std::vector<CharRange> ranges); ///< in any order
NodePtr sequence(std::vector<NodePtr> parts);
NodePtr choice(std::vector<NodePtr> alternatives);
NodePtr repeat(NodePtr body, std::uint32_t least, std::uint32_t most = Repeat::kUnbounded);
NodePtr optional(NodePtr body);
NodePtr reference(std::size_t rule);

/// In order and apart from each other.
std::vector<CharRange> normalized(std::vector<CharRange> ranges);
/// All other characters.
std::vector<CharRange> complement(std::vector<CharRange> ranges);
std::vector<CharRange> intersection(const std::vector<CharRange>& a,
                                    const std::vector<CharRange>& b);

/// From GBNF; errors as Grammar::parse().
Rules parse_gbnf(std::string_view text, const std::string& name);
/// From a JSON schema; errors as Grammar::of_schema().
Rules rules_of_schema(std::string_view json, const std::string& name);

} // namespace egret::text::grammar
