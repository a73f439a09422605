// The egret command, run as scripts run it.
#pragma once

#include "support/files.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <sys/wait.h>

namespace egret::test {

struct Ran {
  int code = -1;
  std::string out, err;
};

/// Runs the command through a shell; arguments are given as a shell reads them.
inline Ran egret_command(const std::string& arguments, const std::string& before = "") {
  TempFolder folder;
  std::string line = before + " " + EGRET_TEST_TOOL + " " + arguments + " >" +
                     (folder / "out").string() + " 2>" + (folder / "err").string();
  int status = std::system(line.c_str());
  Ran ran;
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  ran.out = read_file(folder / "out");
  ran.err = read_file(folder / "err");
  return ran;
}

inline void expect_contains(const std::string& text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\n  lacks: " << part;
}

} // namespace egret::test
