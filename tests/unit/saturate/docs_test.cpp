// The page on the rules says what the code does.
#include "saturate/saturate.h"
#include "support/docs.h"

#include <fmt/format.h>
#include <sstream>

namespace egret::saturate {
namespace {

/// One row a rule: its group and tag, name, and what its comment says.
std::string rule_list() {
  std::string result = "| group | rule | what holds |\n|---|---|---|\n";
  for (const RuleFile& file : builtin_rules()) {
    const Group group = parse_group(file);
    for (const Rule& rule : group.rules) {
      std::string comment;
      for (char c : rule.comment)
        comment += c == '|' ? "\\|" : c == '\n' ? " " : std::string(1, c);
      result += fmt::format("| {}: {} | `{}` | {} |\n", group.name, name_of(group.tag), rule.name,
                            comment);
    }
  }
  return result;
}

TEST(Docs, TheListOfRulesIsThatOfTheFiles) {
  testing::expect_generated("search.md", "rules", rule_list());
}

TEST(Docs, TheExampleOfARuleLoadsAndFires) {
  const std::string page = testing::read(testing::kDocs + "search.md");
  const std::string open = "```egg mine.egg\n";
  const std::size_t begin = page.find(open) + open.size();
  const std::string text = page.substr(begin, page.find("```", begin) - begin);
  Saturated saturated(
      ir::parse_graph("%x: f32[4] = input \"x\"\n%a: f32[4] = sqrt(%x)\n"
                      "%b: f32[4] = recip(%a)\n%c: f32[4] = mul(%b, %b)\n"
                      "outputs %c\n"),
      {.allowed = {Tag::Exact, Tag::Approximate}, .seconds = 60, .files = {{"mine.egg", text}}});
  bool fired = false;
  for (const RuleUse& use : saturated.report().rules)
    fired = fired || use.rule == "rsqrt-squared";
  EXPECT_TRUE(fired);
  const ir::Graph best = saturated.extract().at(0);
  EXPECT_EQ(best[best.outputs[0]].op, Op::Recip) << print(best);
  EXPECT_EQ(best.size(), 2u) << print(best);
}

} // namespace
} // namespace egret::saturate
