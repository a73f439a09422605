// egret train text and egret generate: from a text to a text, and runs that are killed on the way.
#include "egret/io.h"
#include "support/files.h"

#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace egret {
namespace {

using Arguments = std::vector<std::string>;

struct Ran {
  int code = -1;
  std::string out, err;
};

/// The command as a process, with its output in files.
class Command {
public:
  Command(const test::TempFolder& folder, const Arguments& arguments)
      : out_(folder / "stdout"), err_(folder / "stderr") {
    std::vector<char*> argv = {const_cast<char*>(EGRET_TEST_TOOL)};
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0)
      return;
    dup2(open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDOUT_FILENO);
    dup2(open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO);
    execv(EGRET_TEST_TOOL, argv.data());
    _exit(127);
  }
  /// Kills it after a time; false when it had ended before.
  bool kill_after(std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
      if (waitpid(pid_, &status_, WNOHANG) == pid_) {
        ended_ = true;
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    kill(pid_, SIGKILL);
    wait();
    return WIFSIGNALED(status_);
  }
  Ran wait() {
    if (!ended_)
      waitpid(pid_, &status_, 0);
    ended_ = true;
    return {WIFEXITED(status_) ? WEXITSTATUS(status_) : -1, test::read_file(out_),
            test::read_file(err_)};
  }

private:
  std::filesystem::path out_, err_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

/// A language of one rule: a number and its double.
std::string small_text() {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += fmt::format("{} twice is {}\n", i * 7 % 100, i * 7 % 100 * 2);
  return text;
}

struct Small {
  test::TempFolder folder;
  Small() { test::write_file(folder / "text", small_text()); }
  std::string path(const std::string& name) const { return (folder / name).string(); }
  Ran run(const Arguments& arguments) const { return Command(folder, arguments).wait(); }
  Arguments train(const std::string& out, const Arguments& more = {}) const {
    Arguments all = {"train",     "text", "--data",   path("text"), "--out",   path(out),
                     "--context", "16",   "--layers", "1",          "--width", "16",
                     "--heads",   "2",    "--batch",  "8"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

void expect_contains(const std::string& text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\n  lacks: " << part;
}

TEST(TrainText, LearnsAndGenerateWritesOn) {
  Small s;
  Ran trained =
      s.run(s.train("model", {"--steps", "300", "--lr", "0.01", "--evaluate-every", "100", "--log",
                              s.path("log.csv"), "--best", s.path("best"), "--json"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  auto result = nlohmann::json::parse(trained.out);
  EXPECT_EQ(result["steps"], 300);
  EXPECT_LT(result["validation"].get<double>(), 1.2) << "the logarithm of 19 characters is 2.9";
  EXPECT_GT(result["tokens_per_second"].get<double>(), 0);
  expect_contains(trained.err, "validation");
  expect_contains(test::read_file(s.folder / "log.csv"), "\n300,");
  EXPECT_TRUE(std::filesystem::exists(s.folder / "best"));

  const Arguments generate = {"generate", "--model", s.path("model"), "--prompt", "14 tw",
                              "--length", "40",      "--seed",        "3"};
  Ran a = s.run(generate);
  ASSERT_EQ(a.code, 0) << a.err;
  EXPECT_EQ(a.out.substr(0, 11), "14 twice is");
  EXPECT_EQ(a.out.size(), 5U + 40 + 1);
  EXPECT_EQ(s.run(generate).out, a.out);
  Ran json = s.run({"generate", "--model", s.path("best"), "--prompt", "1", "--length", "9",
                    "--temperature", "0", "--json"});
  EXPECT_EQ(nlohmann::json::parse(json.out)["text"].get<std::string>().size(), 9U);

  Ran unknown = s.run({"generate", "--model", s.path("model"), "--prompt", "What?"});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_EQ(unknown.out, "");
  expect_contains(unknown.err, "'W' is not in the alphabet");
}

TEST(TrainText, TrainsWithProductsOfFewerBits) {
  Small s;
  Ran ran = s.run(s.train("model", {"--steps", "40", "--lr", "0.01", "--precision", "bf16", "--log",
                                    s.path("runs"), "--json"}));
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_LT(nlohmann::json::parse(ran.out)["validation"].get<double>(), 2.7);
  EXPECT_FALSE(std::filesystem::is_empty(s.folder / "runs")) << "an event file";
}

TEST(TrainText, RefusesTextsThatCannotBeTrainedOn) {
  Small s;
  test::write_file(s.folder / "text", "");
  Ran empty = s.run(s.train("model"));
  EXPECT_EQ(empty.code, 1);
  expect_contains(empty.err, "the file is empty");
  test::write_file(s.folder / "text", std::string(150, 'a'));
  Ran brief = s.run(s.train("model"));
  EXPECT_EQ(brief.code, 1);
  expect_contains(
      brief.err,
      "150 characters, 15 of them held out: both parts must be longer than --context 16");
  EXPECT_EQ(s.run(s.train("model", {"--heads", "3"})).code, 2);
  EXPECT_FALSE(std::filesystem::exists(s.folder / "model"));
}

TEST(TrainText, ResumesOnlyWhatFits) {
  Small s;
  ASSERT_EQ(s.run(s.train("model", {"--steps", "4"})).code, 0);
  const std::string before = test::read_file(s.folder / "model");
  auto refused = [&](Arguments more) {
    more.insert(more.end(), {"--steps", "8", "--resume"});
    Ran ran = s.run(s.train("model", more));
    EXPECT_EQ(ran.code, 1);
    EXPECT_EQ(test::read_file(s.folder / "model"), before);
    return ran.err;
  };
  expect_contains(refused({"--lr", "0.5"}),
                  "cannot resume: --lr is 0.5 now, the checkpoint has 0.001");
  expect_contains(refused({"--seed", "2"}), "--seed is 2 now, the checkpoint has 1");
  test::write_file(s.folder / "text", small_text() + "0");
  expect_contains(refused({}), "cannot resume: --data is");
  test::write_file(s.folder / "text", small_text());

  test::write_file(s.folder / "model", before.substr(0, before.size() / 2));
  EXPECT_EQ(s.run(s.train("model", {"--steps", "8", "--resume"})).code, 1);
  Ran damaged = s.run({"generate", "--model", s.path("model")});
  EXPECT_EQ(damaged.code, 1);
  expect_contains(damaged.err, s.path("model"));

  test::write_file(s.folder / "model", before);
  Ran more = s.run(s.train("model", {"--steps", "8", "--resume"}));
  EXPECT_EQ(more.code, 0) << more.err;
  expect_contains(more.err, "continues after step 4");
}

TEST(TrainText, KilledAtRandomMomentsAndResumedItWritesTheSameBytes) {
  Small s;
  auto arguments = [&](const std::string& name) {
    return s.train(name, {"--steps", "300", "--checkpoint-every", "9", "--evaluate-every", "50",
                          "--dropout", "0.1", "--resume", "--log", s.path(name + ".csv"), "--best",
                          s.path(name + ".best")});
  };
  const auto start = std::chrono::steady_clock::now();
  Ran whole = s.run(arguments("whole"));
  const auto time = std::chrono::steady_clock::now() - start;
  ASSERT_EQ(whole.code, 0) << whole.err;

  std::mt19937 random(std::random_device{}());
  std::uniform_int_distribution<std::int64_t> moment(
      1, std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
  // Histories of a run, each from its first start through its kills to its end, until there were
  // enough kills.
  constexpr int kKills = 6;
  int kills = 0, continued = 0;
  while (kills < kKills) {
    for (const char* name : {"parts", "parts.best", "parts.csv"})
      std::filesystem::remove(s.folder / name);
    for (bool done = false; !done;) {
      Command part(s.folder, arguments("parts"));
      if (kills < kKills && part.kill_after(std::chrono::milliseconds(moment(random)))) {
        ++kills;
        continue;
      }
      const Ran ran = part.wait();
      ASSERT_EQ(ran.code, 0) << ran.err;
      continued += ran.err.find("continues after step") != std::string::npos ? 1 : 0;
      done = true;
    }
    for (const char* end : {"", ".best", ".csv"})
      EXPECT_EQ(test::read_file(s.path("parts") + end), test::read_file(s.path("whole") + end))
          << end << " after " << kills << " kills";
  }
  RecordProperty("continued", continued);
}

} // namespace
} // namespace egret
