// Files of rules: groups with a tag, rules with a name and a comment. Those of src/rules are part
// of the library.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace egret::saturate {

/// What a rule may change.
enum class Tag : std::uint8_t {
  Exact,        ///< nothing, to the last bit (a NaN being any NaN)
  Reassociates, ///< rounding, by another order of sums and products
  Approximate,  ///< rounding, signs of zeros, and what happens beyond finite numbers
  InferenceOnly ///< gradients
};
std::string_view name_of(Tag tag);
/// The inverse; throws Error(Value) naming the tags there are.
Tag tag_named(std::string_view name);

/// A set of tags.
class Tags {
public:
  Tags(std::initializer_list<Tag> tags = {}) {
    for (Tag tag : tags)
      add(tag);
  }
  void add(Tag tag) { bits_ |= 1u << static_cast<unsigned>(tag); }
  bool has(Tag tag) const { return (bits_ >> static_cast<unsigned>(tag) & 1u) != 0; }
  std::uint64_t bits() const { return bits_; } ///< for keys
  friend bool operator==(Tags, Tags) = default;

private:
  unsigned bits_ = 0;
};

struct RuleFile {
  std::string name; ///< "arithmetic.egg", for messages
  std::string text;
};

struct Rule {
  std::string name, comment, text;
};

/// One file: a ruleset whose rules have one tag. Its first line is "; group NAME: TAG".
struct Group {
  std::string name;
  Tag tag = Tag::Exact;
  RuleFile file;
  std::string declarations; ///< commands that are no rules
  std::vector<Rule> rules;
};

/// Reads a file. Throws Error(Parse) with file, line and column where the first line is no head, a
/// rule has no name, no comment or another group's ruleset, or parentheses do not match. Types are
/// checked when the rules are loaded (Saturator).
Group parse_group(const RuleFile& file);

/// The files of src/rules, in the order in which their groups run.
std::span<const RuleFile> builtin_rules();

} // namespace egret::saturate
