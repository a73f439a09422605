// Files of rules: groups with a tag, rules with a name and a comment. Those of src/rules are part
// of the library.
#pragma once

#include "egret/rule_tags.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace egret::saturate {

using Tag = RuleTag;
using Tags = RuleTags;
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
/// rule has no name, no comment or another group's ruleset, a command is neither a rule nor a
/// declaration (so that no other file is opened), or parentheses do not match. Types are checked
/// when the rules are loaded (Saturator).
Group parse_group(const RuleFile& file);

/// The files of src/rules, in the order in which their groups run.
std::span<const RuleFile> builtin_rules();

} // namespace egret::saturate
