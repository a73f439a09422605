// Every option that names a file to write: what is no regular file is never replaced, and what
// cannot be written is a failure that names it.
#include "egret/functional.h"
#include "egret/io.h"
#include "support/run_tool.h"
#include "support/scale.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <functional>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace egret {
namespace {

using test::egret_command;
using test::expect_contains;
using test::Ran;

class Outputs : public ::testing::Test {
protected:
  void SetUp() override {
    test::write_file(folder_ / "g.txt",
                     "%x: f32[2] = input \"x\"\n%y: f32[2] = exp(%x)\noutputs %y\n");
    io::save_npy(folder_ / "x.npy", tensor({1., 2.}));
    std::string text;
    for (int i = 0; i < 600; ++i)
      text += "abcdefgh "[i % 9];
    test::write_file(folder_ / "text", text);
    test::write_file(folder_ / "p.egg", "(datatype M (N i64)) (N 1)\n");
    const std::string f = folder_.path().string();
    ASSERT_EQ(run("compile " + f + "/g.txt --record {}", f + "/g.jsonl").code, 0);
  }
  /// Command lines with {} where the name of the output goes.
  std::vector<std::string> commands() const {
    const std::string f = folder_.path().string();
    const std::string text = "train text --data " + f +
                             "/text --steps 1 --batch 1 --context 4 --layers 1 --width 8 --heads 1";
    return {
        "run " + f + "/g.txt -i x=" + f + "/x.npy -o y={}",
        "compile " + f + "/g.txt --plan {}",
        "compile " + f + "/g.txt --graph-out {}",
        "compile " + f + "/g.txt --program {}",
        "compile " + f + "/g.txt --loops-program {}",
        "compile " + f + "/g.txt --record {}",
        "run " + f + "/g.txt -i x=" + f + "/x.npy --record {}",
        "run " + f + "/g.txt -i x=" + f + "/x.npy --trace {}",
        "profile " + f + "/g.txt --trace {}",
        "view " + f + "/g.jsonl --out {}",
        "cache export {}",
        text + " --out {}",
        text + " --out " + f + "/text.safetensors --best {}",
        "train addition --steps 1 --batch 2 --held-out 1 --layers 1 --width 8 --heads 1 --out {}",
        "egraph run " + f + "/p.egg --json {}",
        "egraph run " + f + "/p.egg --dot {}",
        "egraph run " + f + "/p.egg --save-report {}"};
  }
  Ran run(const std::string& command, const std::string& output) const {
    return egret_command(fmt::format(fmt::runtime(command), output), own_cache());
  }
  std::string own_cache() const { return "EGRET_CACHE=" + (folder_ / "cache").string(); }
  test::TempFolder folder_;
};

TEST_F(Outputs, GoIntoADeviceAndLeaveIt) {
  const auto node = folder_ / "node";
  if (mknod(node.c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0 || access(node.c_str(), W_OK) != 0)
    GTEST_SKIP() << "only root may make device nodes";
  for (const std::string& command : commands()) {
    const Ran ran = run(command, node.string());
    EXPECT_EQ(ran.code, 0) << command << "\n" << ran.err;
    ASSERT_TRUE(std::filesystem::is_character_file(node)) << command;
  }
}

TEST_F(Outputs, GoIntoAPipeAndLeaveIt) {
  const auto pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& command : commands()) {
    // A command that fails may not have opened the pipe, for which its reader waits.
    const std::string line =
        fmt::format("cat {0} >{0}.read & reader=$!; {1} {2} {3} >/dev/null 2>&1; code=$?; "
                    "[ $code = 0 ] || kill $reader; wait; exit $code",
                    pipe.string(), own_cache(), EGRET_TEST_TOOL,
                    fmt::format(fmt::runtime(command), pipe.string()));
    const int status = std::system(line.c_str());
    EXPECT_EQ(WEXITSTATUS(status), 0) << command;
    EXPECT_FALSE(test::read_file(pipe.string() + ".read").empty()) << command;
    ASSERT_TRUE(std::filesystem::is_fifo(pipe)) << command;
  }
}

TEST_F(Outputs, ThatAreLostAreAFailureThatNamesThem) {
  if (!std::filesystem::exists("/dev/full"))
    GTEST_SKIP();
  for (const std::string& command : commands()) {
    const Ran ran = run(command, "/dev/full");
    EXPECT_EQ(ran.code, 1) << command;
    expect_contains(ran.err, "/dev/full");
  }
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST_F(Outputs, IntoAMissingFolderFailBeforeTheWork) {
  const std::string none = (folder_ / "none/a").string();
  for (const std::string& command : commands()) {
    const Ran ran = run(command, none);
    EXPECT_EQ(ran.code, 1) << command;
    expect_contains(ran.err, none);
    EXPECT_EQ(ran.err.find("parameters"), std::string::npos) << "it trained first: " << ran.err;
  }
}

TEST_F(Outputs, ToStdoutStandBesideWhatIsPrinted) {
  const std::string f = folder_.path().string();
  const Ran ran = egret_command("compile " + f + "/g.txt --graph-out /dev/stdout");
  EXPECT_EQ(ran.code, 0) << ran.err;
  expect_contains(ran.out, "outputs %");
  expect_contains(ran.out, "kernels\n");
  const int status =
      std::system(fmt::format("{0} run {1}/g.txt -i x={1}/x.npy -o y=/dev/stdout | cat >{1}/y.npy",
                              EGRET_TEST_TOOL, f)
                      .c_str());
  EXPECT_EQ(status, 0);
  EXPECT_EQ(io::load_npy(folder_ / "y.npy").sizes(), (std::vector<std::int64_t>{2}));
}

TEST_F(Outputs, MetricsGoIntoPipesAndDevices) {
  const std::string f = folder_.path().string();
  const std::string text =
      "train text --data " + f +
      "/text --steps 1 --batch 1 --context 4 --layers 1 --width 8 --heads 1 --out " + f +
      "/m --log ";
  const auto pipe = folder_ / "log.csv";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int status =
      std::system(fmt::format("timeout {4} cat {0} >{1}/read & {2} {3} {0} >/dev/null 2>&1",
                              pipe.string(), f, EGRET_TEST_TOOL, text, 100 * test::scale())
                      .c_str());
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  const Ran missing = egret_command(text + f + "/none/log.jsonl");
  EXPECT_EQ(missing.code, 1);
  expect_contains(missing.err, "/none/log.jsonl");
  std::filesystem::create_symlink("/dev/full", folder_ / "full.jsonl");
  const Ran full = egret_command(text + f + "/full.jsonl");
  EXPECT_EQ(full.code, 1);
  expect_contains(full.err, "full.jsonl");
}

// A learning rate that is finite and of no use.
TEST_F(Outputs, ATrainingThatDivergesFailsAndKeepsTheLastGoodCheckpoint) {
  const std::string f = folder_.path().string();
  const std::string text = "train text --data " + f +
                           "/text --batch 1 --context 4 --layers 1 --width 8 --heads 1 "
                           "--checkpoint-every 1 --out " +
                           f + "/m ";
  const Ran ran = egret_command(text + "--steps 300 --lr 1e38");
  EXPECT_EQ(ran.code, 1);
  expect_contains(ran.err, "egret: training: ");
  EXPECT_EQ(ran.err.find("Saved"), std::string::npos) << ran.err;
  for (const auto& [name, value] : io::load_safetensors(folder_ / "m"))
    if (value.dtype() == DType::F32) {
      for (const float x : value.to_vector<float>())
        ASSERT_TRUE(std::isfinite(x)) << name;
    }
  const Ran addition = egret_command(
      "train addition --steps 300 --batch 2 --held-out 1 --layers 1 --width 8 --heads 1 --lr 1e38 "
      "--out " +
      f + "/a");
  EXPECT_EQ(addition.code, 1);
  expect_contains(addition.err, "egret: training: ");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a"));
}

// As where a variable of a script is not set.
TEST_F(Outputs, AnEmptyNameIsWrongUse) {
  for (const std::string& command : commands()) {
    const Ran ran = run(command, command.find("y={}") != std::string::npos ? "" : "''");
    EXPECT_NE(ran.code, 0) << command;
  }
  const Ran plan = run("compile " + folder_.path().string() + "/g.txt --plan {}", "''");
  EXPECT_EQ(plan.code, 2);
  expect_contains(plan.err, "--plan: an empty text names nothing");
  const Ran open = run("serve --model m --api-key-file {}", "''");
  EXPECT_EQ(open.code, 2); // never a server without a key
  expect_contains(open.err, "--api-key-file: an empty text names nothing");
  const Ran prompt = run("generate --model " + folder_.path().string() + " --prompt {}", "''");
  EXPECT_EQ(prompt.code, 1) << prompt.err; // which has no model
}

} // namespace
} // namespace egret
