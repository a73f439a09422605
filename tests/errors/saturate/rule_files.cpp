// Mistakes in files of rules and in options, told with their place.
#include "saturate/saturate.h"
#include "support/files.h"

#include <gtest/gtest.h>

namespace egret::saturate {
namespace {

ir::Graph graph() {
  return ir::parse_graph("%x: f32[2] = input \"x\"\n%y: f32[2] = exp(%x)\noutputs %y\n");
}

std::string message_of(const SaturateOptions& options) {
  try {
    Saturated saturated(graph(), options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string message_of(const std::string& rules) {
  return message_of({.files = {{"mine.egg", rules}}});
}

void expect_contains(const std::string& text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\n  lacks: " << part;
}

TEST(RuleFiles, BeginWithAGroup) {
  expect_contains(message_of("(ruleset mine)\n"),
                  "mine.egg:1:1: a file of rules begins with its group and tag: `; group NAME: "
                  "exact`");
}
TEST(RuleFiles, HaveATagThatExists) {
  expect_contains(message_of("; group mine: right\n(ruleset mine)\n"),
                  "mine.egg:1:15: there is no tag `right`; tags: exact, reassociates, "
                  "approximate, inference-only");
}
TEST(RuleFiles, NameTheirRules) {
  expect_contains(
      message_of("; group mine: exact\n(ruleset mine)\n; x\n(rewrite (Exp x) x :ruleset mine)\n"),
      "mine.egg:4:1: the rule has no name");
}
TEST(RuleFiles, SayWhatHolds) {
  expect_contains(message_of("; group mine: exact\n(ruleset mine)\n\n(rewrite (Exp x) x :ruleset "
                             "mine :name \"e\")\n"),
                  "mine.egg:4:1: rule \"e\" has no comment");
}
TEST(RuleFiles, KeepToTheirGroup) {
  expect_contains(
      message_of("; group mine: exact\n(ruleset mine)\n; x\n(rewrite (Exp x) x "
                 ":ruleset views :name \"e\")\n"),
      "mine.egg:4:1: rule \"e\" does not belong to the file's group; say :ruleset mine");
}
TEST(RuleFiles, HaveEachNameOnce) {
  const std::string rule = "; x\n(rewrite (Exp x) (Exp x) :ruleset mine :name \"e\")\n";
  expect_contains(message_of("; group mine: exact\n(ruleset mine)\n" + rule + rule),
                  "mine.egg:6:46: there are two rules \"e\"");
}
// A file of rules comes from anybody: it opens, reads and writes no other file.
TEST(RuleFiles, OpenNoOtherFile) {
  const test::TempFolder folder;
  const std::string secret = (folder / "secret").string(), made = (folder / "made").string();
  test::write_file(folder / "secret", "(ruleset stolen)\n");
  for (const std::string& command : std::initializer_list<std::string>{
           "(include \"" + secret + "\")", "(input Exp \"" + secret + "\")",
           "(output \"" + made + "\" 1)", "(print-function Exp 1 :file \"" + made + "\")",
           "(extract 1)", "(run 1)", "(check (= 1 1))", "(let $x 1)", "(push)",
           "(fail (include \"" + secret + "\"))"}) {
    const std::string message =
        message_of("; group mine: exact\n(ruleset mine)\n" + command + "\n");
    expect_contains(message, "mine.egg:3:1: `" +
                                 command.substr(1, command.find_first_of(" )") - 1) +
                                 "` does not belong into a file of rules");
    EXPECT_EQ(message.find("stolen"), std::string::npos) << message;
    EXPECT_FALSE(std::filesystem::exists(made)) << command;
  }
  expect_contains(message_of("; group mine: exact\n(ruleset mine)\n; x\n(rule ((= x (Exp y))) "
                             "((output \"" +
                             made + "\" 1)) :ruleset mine :name \"e\")\n"),
                  "mine.egg:4:");
  EXPECT_FALSE(std::filesystem::exists(made));
}
TEST(RuleFiles, CloseTheirParentheses) {
  expect_contains(message_of("; group mine: exact\n(ruleset mine)\n; x\n(rewrite (Exp x) x"),
                  "mine.egg:4:1:");
}
TEST(RuleFiles, TypeCheck) {
  const std::string message = message_of("; group mine: exact\n(ruleset mine)\n; x\n(rewrite (Exp "
                                         "x) (Sum x x) :ruleset mine :name \"e\")\n");
  expect_contains(message, "mine.egg:4:");
  expect_contains(message, "Sum");
}
TEST(RuleFiles, UseWhatExists) {
  expect_contains(message_of("; group mine: exact\n(ruleset mine)\n; x\n(rewrite (Expo x) x "
                             ":ruleset mine :name \"e\")\n"),
                  "mine.egg:4:11: unknown function Expo");
}
TEST(RuleFiles, AreAGroupOfTheirOwn) {
  expect_contains(message_of("; group views: exact\n(ruleset views)\n"),
                  "mine.egg: there is a group views already");
}
TEST(RuleFiles, GroupsMustExist) {
  expect_contains(message_of(SaturateOptions{.groups = {"view"}}),
                  "there is no group of rules `view`; groups: pull, fold, views, arithmetic");
}
// A rule that joins tensors of two types is no identity: the analyses find it out.
TEST(RuleFiles, MayNotJoinTypes) {
  const std::string message =
      message_of("; group mine: exact\n(ruleset mine)\n; x\n(rewrite (Exp x) (Cast \"f16\" x) "
                 ":ruleset mine :name \"e\")\n");
  expect_contains(message, "type");
  expect_contains(message, "f16[2]");
}

} // namespace
} // namespace egret::saturate
