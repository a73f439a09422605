// Commands that need no LLVM do not load it.
#include "support/run_tool.h"

namespace egret {
namespace {

using test::egret_command;
using test::Ran;

TEST(ToolStart, LoadsLlvmOnlyForTheCpu) {
  const test::TempFolder folder;
  test::write_file(folder / "p.egg",
                   "(datatype M (N i64))\n(let $a (N 1))\n(check (= $a (N 1)))\n");
  const std::string none = "EGRET_LLVM=/nowhere/libegret_llvm.so";
  for (const std::string& command :
       {std::string("--help"), std::string("--version"),
        "egraph run " + (folder / "p.egg").string(), std::string("compile --list-passes"),
        std::string("bench --list")}) {
    const Ran ran = egret_command(command, none);
    EXPECT_EQ(ran.code, 0) << command << "\n" << ran.err;
  }
#ifndef EGRET_LLVM_LINKED
  const Ran ran = egret_command("train addition --steps 1", none);
  EXPECT_EQ(ran.code, 1) << ran.err;
  test::expect_contains(ran.err, "cpu code generator: there is no /nowhere/libegret_llvm.so; "
                                 "install it there, or set EGRET_LLVM to its path");
  const Ran wrong = egret_command("train addition --steps 1", "EGRET_LLVM=/");
  EXPECT_EQ(wrong.code, 1) << wrong.err;
  test::expect_contains(wrong.err, "cpu code generator: EGRET_LLVM: / is no regular file");
#endif
}

} // namespace
} // namespace egret
