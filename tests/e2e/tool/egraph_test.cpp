// egret egraph: limits, interrupts, standard input, files that cannot be written, and help.
#include "support/files.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

namespace egret {
namespace {

class EgraphTool : public ::testing::Test {
protected:
  test::TempFolder folder_;
  std::string out_, err_;

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& text) {
    test::write_file(folder_ / name, text);
  }
  /// Runs a line of the shell in which `egret` is the command; its exit code.
  int shell(const std::string& line) {
    const std::string script = "tool='" EGRET_TEST_TOOL "'\negret() { \"$tool\" \"$@\"; }\ncd '" +
                               path("") + "'\n" + line + "\n";
    write("script", script);
    int status = std::system(
        ("sh '" + path("script") + "' >'" + path("out") + "' 2>'" + path("err") + "'").c_str());
    out_ = test::read_file(folder_ / "out");
    err_ = test::read_file(folder_ / "err");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  static void expect_contains(const std::string& text, std::string_view part) {
    EXPECT_NE(text.find(part), std::string::npos) << text << "\n  lacks: " << part;
  }
};

const char* const kPairs = "(relation r (i64)) (relation s (i64 i64)) (ruleset fill) (r 0)\n"
                           "(rule ((r x) (< x 999)) ((r (+ x 1))) :ruleset fill)\n"
                           "(rule ((r x) (r y)) ((s x y)) :name \"pairs\")\n"
                           "(run-schedule (saturate (run fill)))\n";

TEST_F(EgraphTool, FilesThatNeverEndAreRefused) {
  EXPECT_EQ(shell("timeout 60 \"$tool\" egraph run /dev/zero"), 1);
  expect_contains(err_, "/dev/zero: it has more than 268435456 bytes");
  write("p.egg", "(relation r (i64))\n(input r \"/dev/zero\")\n");
  EXPECT_EQ(shell("timeout 60 \"$tool\" egraph run p.egg"), 1);
  expect_contains(err_, "/dev/zero: it has more than 268435456 bytes");
  write("q.egg", "(relation r (i64))\n(input r \"/dev/stdin\")\n(print-size r)\n");
  EXPECT_EQ(shell("printf '1\\n2\\n' | \"$tool\" egraph run q.egg"), 0) << err_;
  EXPECT_EQ(out_, "2\n");
}

TEST_F(EgraphTool, LimitsHoldAndAreExitCode3) {
  write("p.egg", std::string(kPairs) + "(run 1) (print-size s)");
  const std::pair<const char*, const char*> limits[] = {
      {"--row-limit 5000", "the budget of rows is used up"},
      {"--match-limit 5000", "the budget of matches is used up"},
      {"--memory-limit 4MB", "the budget of memory is used up"},
      {"--iteration-limit 5", "the budget of iterations is used up"}};
  for (const auto& [option, message] : limits) {
    EXPECT_EQ(shell(std::string("egret egraph run p.egg ") + option), 3) << option << err_;
    expect_contains(out_, message);
  }
  EXPECT_EQ(shell("egret egraph run p.egg --time-limit 0"), 3);
  EXPECT_EQ(shell("egret egraph run p.egg --memory-limit many"), 2);
  EXPECT_EQ(shell("egret egraph run p.egg --row-limit 20000000"), 0) << err_;
  EXPECT_EQ(out_, "1000000\n");
}

/// A program that prints, and then grows until it is stopped.
const char* const kEndless = "(datatype N (Z) (S N)) (rule ((= e (S n))) ((S e)) :name \"grow\") "
                             "(S (Z)) (extract \"begun\") (run 1000000000000) (extract \"after\")";

TEST_F(EgraphTool, AnInterruptEndsTheRunAndWritesWhatWasAskedFor) {
  write("p.egg", kEndless);
  const int code =
      shell("\"$tool\" egraph run --stats --save-report r.json --dot o.dot --max-functions "
            "1 --max-calls-per-function 5 p.egg >shown 2>said &\n"
            "while kill -0 $! && ! grep -q begun shown; do sleep 0.02; done\n"
            "kill -INT $!\nwait $!");
  EXPECT_EQ(code, 130);
  const std::string shown = test::read_file(folder_ / "shown");
  expect_contains(shown, "\"begun\"\nstopped: interrupted;");
  expect_contains(shown, "grow");
  EXPECT_EQ(shown.find("after"), std::string::npos);
  const std::string said = test::read_file(folder_ / "said");
  expect_contains(said, "interrupted");
  expect_contains(said, "rows, ");
  expect_contains(said, "grow");
  EXPECT_GT(nlohmann::json::parse(test::read_file(folder_ / "r.json")).at("rows"), 1);
  expect_contains(test::read_file(folder_ / "o.dot"), "digraph");
}

TEST_F(EgraphTool, ProgramsAboutTensorsTakeTheSameOptions) {
  write("p.egg", std::string(kPairs) + "(run 1)(print-size s)");
  EXPECT_EQ(shell("egret egraph run --tensors --stats --save-report r.json --json o.json "
                  "--max-functions 2 --max-calls-per-function 3 --row-limit 5000 --naive p.egg"),
            3)
      << err_;
  expect_contains(err_, "pairs");
  EXPECT_GT(nlohmann::json::parse(test::read_file(folder_ / "r.json")).at("rules").size(), 0u);
  std::size_t rows = 0;
  const auto graph = nlohmann::json::parse(test::read_file(folder_ / "o.json"));
  for (const auto& [id, node] : graph.at("nodes").items())
    rows += node["op"] == "s" || node["op"] == "r";
  EXPECT_EQ(rows, 6u);
  EXPECT_EQ(shell("egret egraph run --tensors --mode no-messages -j 2 p.egg"), 0) << err_;
  EXPECT_EQ(out_, "");
}

TEST_F(EgraphTool, StandardInputIsAProgramOrASession) {
  EXPECT_EQ(shell("printf '(extract 1)\\n(extract\\n x)\\n' | egret egraph run -"), 1);
  EXPECT_EQ(out_, "1\n");
  expect_contains(err_, "(stdin):3:2: ");
  EXPECT_EQ(shell("printf '(extract 1)\\n\\n(extract\\n x)\\n(extract 2)\\n' | egret egraph run"),
            1);
  EXPECT_EQ(out_, "1\n2\n");
  expect_contains(err_, "(input):4:2: ");
  EXPECT_EQ(shell("printf '(relation r (i64)) (r 1)\\n' | egret egraph run --json o.json"), 0);
  EXPECT_FALSE(nlohmann::json::parse(test::read_file(folder_ / "o.json")).at("nodes").empty());
}

TEST_F(EgraphTool, OutputThatCannotBeWrittenIsAnError) {
  if (!std::filesystem::exists("/dev/full"))
    GTEST_SKIP() << "there is no /dev/full";
  write("p.egg", "(relation r (i64)) (r 1)");
  for (const char* option : {"--json", "--dot", "--save-report"}) {
    EXPECT_EQ(shell(std::string("egret egraph run p.egg ") + option + " /dev/full"), 1) << option;
    expect_contains(err_, "/dev/full: at byte 0: cannot write: No space left on device");
  }
  write("q.egg", "(relation r (i64)) (r 1) (print-function r :file \"/dev/full\")");
  EXPECT_EQ(shell("egret egraph run q.egg"), 1);
  expect_contains(err_, "/dev/full: cannot be written");
  write("e.egg", "(extract 1)");
  EXPECT_EQ(shell("egret egraph run e.egg >/dev/full"), 1);
}

TEST_F(EgraphTool, HelpAndMistypedSubcommands) {
  EXPECT_EQ(shell("egret egraph --help"), 0);
  expect_contains(out_, "(rewrite (Add a b) (Add b a))");
  EXPECT_EQ(shell("egret egraph run --help"), 0);
  for (const char* part : {"--memory-limit", "--match-limit", "Exit code", "Example"})
    expect_contains(out_, part);
  EXPECT_EQ(shell("egret egraph rn x"), 2);
  expect_contains(err_, "there is no subcommand rn (did you mean run?)");
  EXPECT_EQ(shell("egret egraph"), 2);
}

TEST_F(EgraphTool, GlobalsWithoutADollarAreWarnedOf) {
  write("p.egg", "(relation r (i64))\n(let x 1) (let $y 2)");
  EXPECT_EQ(shell("egret egraph run p.egg"), 0);
  expect_contains(err_, "p.egg:2:6: the global x should be named $x");
  EXPECT_EQ(err_.find("$y"), std::string::npos);
}

} // namespace
} // namespace egret
