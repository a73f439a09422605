// tests/gpu/run, with stand-ins for the programs that it runs.
#include "support/files.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <sys/wait.h>

#include <fstream>
#include <sstream>
#include <vector>

namespace egret {
namespace {

using Json = nlohmann::json;

void write_program(const std::filesystem::path& path, const std::string& body) {
  std::ofstream(path) << "#!/bin/sh\n" << body;
  chmod(path.c_str(), 0755);
}

struct Outcome {
  int code = -1;
  std::vector<Json> lines;
};

/// `verified`: of the workload "two"; `tests`: the exit code of cuda_tests.
Outcome run(const std::string& verified, int tests, const std::string& options = "") {
  test::TempFolder folder;
  write_program(folder / "cuda_tests",
                "echo '[==========] 3 tests from 2 test suites ran. (5 ms total)'\n"
                "[ \"$EGRET_STRICT\" = 1 ] || exit 9\nexit " +
                    std::to_string(tests) + "\n");
  write_program(
      folder / "egret",
      "if [ \"$2\" = --list ]; then\n"
      "  echo 'ceiling cpu   a rate'; echo 'one   both  a thing'; echo 'two   cuda  a \"b\"'\n"
      "  exit 0\nfi\n"
      "case $2 in\n"
      "ceiling) echo '{\"name\":\"ceiling\",\"verified\":null}' ;;\n"
      "one) echo '{\"name\":\"one\",\"verified\":true}' ;;\n"
      "two) echo 'a \"quoted\" warning' >&2\n"
      "  echo '{\"name\":\"two\",\"verified\":" +
          verified + "}'; [ " + verified + " = true ] ;;\nesac\n");
  const std::string out = (folder / "results.jsonl").string();
  const int status =
      std::system((std::string(EGRET_TEST_SOURCE_DIR) + "/gpu/run --bin " + folder.path().string() +
                   " --out " + out + " " + options + " >/dev/null 2>&1")
                      .c_str());
  Outcome outcome;
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::istringstream text(test::read_file(out));
  for (std::string line; std::getline(text, line);)
    outcome.lines.push_back(Json::parse(line));
  return outcome;
}

TEST(GpuRun, TellsOfEverythingThatRan) {
  const Outcome all = run("true", 0);
  EXPECT_EQ(all.code, 0);
  ASSERT_EQ(all.lines.size(), 6u);
  for (const char* key : {"commit", "date", "machine", "command"})
    EXPECT_TRUE(all.lines[0].at(key).is_string()) << key;
  EXPECT_EQ(all.lines[1].at("verdict"), "passed");
  EXPECT_NE(all.lines[1].at("ran").get<std::string>().find("3 tests"), std::string::npos);
  EXPECT_EQ(all.lines[4].at("name"), "two");
  EXPECT_EQ(all.lines[5].at("workloads"), 3);
  EXPECT_EQ(all.lines[5].at("failed"), Json::array());
}

TEST(GpuRun, FailsForWhatIsNotVerifiedAndForTestsThatFail) {
  const Outcome wrong = run("false", 0);
  EXPECT_EQ(wrong.code, 1);
  ASSERT_EQ(wrong.lines.size(), 6u);
  EXPECT_EQ(wrong.lines[4].at("result").at("verified"), false);
  EXPECT_EQ(wrong.lines[4].at("message"), "a \"quoted\" warning");
  EXPECT_EQ(wrong.lines[5].at("failed"), Json::array({"two"}));
  const Outcome failing = run("true", 1);
  EXPECT_EQ(failing.code, 1);
  EXPECT_EQ(failing.lines.at(1).at("verdict"), "failed");
  EXPECT_EQ(failing.lines.back().at("failed"), Json::array({"cuda_tests"}));
}

TEST(GpuRun, TakesAPartOfTheWorkloads) {
  const Outcome judged = run("true", 0, "--judged --skip-tests");
  EXPECT_EQ(judged.code, 0);
  EXPECT_EQ(judged.lines.back().at("workloads"), 2);
  const Outcome only = run("true", 0, "--only 't*' --skip-tests");
  EXPECT_EQ(only.lines.back().at("workloads"), 1);
  EXPECT_EQ(run("true", 0, "--only none").code, 2);
  EXPECT_EQ(run("true", 0, "--frob").code, 2);
}

} // namespace
} // namespace egret
