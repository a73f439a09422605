// The table of environment variables: what is documented is what is read and checked.
#include "runtime/environment.h"
#include "support/cpu_levels.h"
#include "support/files.h"

#include <gtest/gtest.h>
#include <regex>
#include <set>

namespace egret::runtime {
namespace {

const std::filesystem::path kRoot = std::filesystem::path(EGRET_TEST_SOURCE_DIR).parent_path();

TEST(Environment, IsDocumentedAsItIs) {
  const std::string page = test::read_file(kRoot / "docs/install.md");
  for (const EnvironmentVariable& v : environment_variables())
    EXPECT_NE(page.find(fmt::format("| `{}` | {} | {} |\n", v.name, v.values, v.meaning)),
              std::string::npos)
        << v.name;
}

TEST(Environment, HoldsEveryVariableThatTheSourcesName) {
  std::set<std::string> known;
  for (const EnvironmentVariable& v : environment_variables())
    known.insert(v.name);
  const std::regex name("\"(EGRET_[A-Z_]+)\"");
  for (const char* folder : {"src", "tools"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot / folder)) {
      if (entry.path().extension() != ".cpp" && entry.path().extension() != ".h")
        continue;
      const std::string text = test::read_file(entry.path());
      for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it)
        EXPECT_TRUE(known.contains((*it)[1])) << entry.path() << " " << (*it)[1];
    }
}

TEST(Environment, ChecksEveryVariableAndTakesEmptyOnesForUnset) {
  for (const EnvironmentVariable& v : environment_variables()) {
    const testing::ScopedEnvironment none(v.name, "");
    EXPECT_EQ(environment(v.name), std::nullopt);
    check_environment();
    const std::string_view values = v.values;
    if (values.starts_with("a f")) // a file, a folder
      continue;
    const testing::ScopedEnvironment wrong(v.name, "\x1bwrong");
    const std::string message = test::error_of(ErrorKind::Value, [] { check_environment(); });
    EXPECT_TRUE(message.starts_with(v.name)) << message;
  }
}

TEST(Environment, TakesTheWordsOfTheTable) {
  const std::regex word("`([a-z0-9-]+)`");
  for (const EnvironmentVariable& v : environment_variables()) {
    const std::string values = v.values;
    for (std::sregex_iterator it(values.begin(), values.end(), word), end; it != end; ++it)
      v.check((*it)[1].str(), v.name);
  }
  EXPECT_EQ(parse_debug_level("4", "x"), 4);
  EXPECT_EQ(parse_budget("0.5", "x"), 0.5);
  for (const char* bad : {"nan", "inf", "-1", "0", "1s", "1e999"})
    test::error_of(ErrorKind::Value, [&] { parse_budget(bad, "x"); });
}

} // namespace
} // namespace egret::runtime
