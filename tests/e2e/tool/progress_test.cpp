// What a search shows while it goes on: on a terminal, and elsewhere.
#include "support/run_tool.h"
#include "support/scale.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <pty.h>
#include <regex>
#include <sys/wait.h>
#include <unistd.h>

namespace egret {
namespace {

/// What the command writes to a terminal of 60 columns.
std::string on_terminal(const std::string& arguments, int* code,
                        const std::string& environment = "TERM=xterm") {
  int terminal = -1;
  winsize size = {24, 60, 0, 0};
  const pid_t process = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (process == 0) {
    ::execl(
        "/bin/sh", "sh", "-c",
        fmt::format("EGRET_CACHE=off NO_COLOR= {} {} {}", environment, EGRET_TEST_TOOL, arguments)
            .c_str(),
        nullptr);
    ::_exit(127);
  }
  std::string text;
  char part[4096];
  for (ssize_t got = 0; (got = ::read(terminal, part, sizeof part)) > 0;)
    text.append(part, static_cast<std::size_t>(got));
  ::close(terminal);
  int status = 0;
  ::waitpid(process, &status, 0);
  *code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return text;
}

TEST(ToolProgress, OfASearchShowsKernelCandidatesTimeLeftAndTheBestScheduleOnATerminal) {
  const test::TempFolder folder;
  test::write_file(folder / "g.txt", "%x: f32[256,512] = input \"x\"\n%e: f32[256,512] = exp(%x)\n"
                                     "%s: f32[256] = sum(%e) axes=[1]\noutputs %s\n");
  int code = -1;
  std::string text = on_terminal(fmt::format("compile {} --effort search --budget {}",
                                             (folder / "g.txt").string(), 3 * test::scale()),
                                 &code);
  EXPECT_EQ(code, 0) << text;
  EXPECT_TRUE(std::regex_search(text, std::regex("search: kernel 1 of 1 \\([a-z_]+\\), candidate "
                                                 "[0-9]+ of [0-9]+")))
      << text;
  test::expect_contains(text, "  best: "); // a second line, over which the next view is written
  EXPECT_TRUE(std::regex_search(text, std::regex("\033\\[[1-9]A"))) << text;
  // Counts are right: no candidate is beyond their number.
  const std::regex count("candidate ([0-9]+) of ([0-9]+)");
  for (std::sregex_iterator at(text.begin(), text.end(), count), end; at != end; ++at)
    EXPECT_LE(std::stoi((*at)[1]), std::stoi((*at)[2]));
  // No line is wider than the terminal, which would break it; behind the last view stands what the
  // command prints.
  text.erase(text.rfind("\033[J"));
  std::string line;
  for (std::size_t i = 0; i <= text.size(); ++i)
    if (i == text.size() || text[i] == '\n' || text[i] == '\r') {
      EXPECT_LE(std::regex_replace(line, std::regex("\033\\[[0-9]*[A-Z]"), "").size(), 60u) << line;
      line.clear();
    } else
      line += text[i];
}

TEST(ToolColours, AreOnTerminalsThatHaveThemUnlessNoColorIsSet) {
  const test::TempFolder folder;
  test::write_file(folder / "g.txt", "no graph\n");
  const std::string wrong = "run " + (folder / "g.txt").string(), red = "\033[31m";
  int code = 0;
  EXPECT_NE(on_terminal(wrong, &code).find(red), std::string::npos);
  EXPECT_NE(code, 0);
  for (const char* environment : {"TERM=xterm NO_COLOR=1", "TERM=dumb"}) {
    const std::string text = on_terminal(wrong, &code, environment);
    EXPECT_NE(text.find("egret:"), std::string::npos) << text;
    EXPECT_EQ(text.find('\033'), std::string::npos) << environment << ": " << text;
  }
  EXPECT_EQ(test::egret_command(wrong, "TERM=xterm").err.find('\033'), std::string::npos);
}

TEST(ToolProgress, IsPlainLinesElsewhere) {
  const test::TempFolder folder;
  test::write_file(folder / "g.txt", "%x: f32[64,64] = input \"x\"\n%e: f32[64,64] = exp(%x)\n"
                                     "outputs %e\n");
  const test::Ran ran = test::egret_command(
      "compile " + (folder / "g.txt").string() + " --effort search --budget 1", "EGRET_CACHE=off");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.err.find('\033'), std::string::npos) << ran.err;
  EXPECT_EQ(ran.err.find('\r'), std::string::npos) << ran.err;
}

} // namespace
} // namespace egret
