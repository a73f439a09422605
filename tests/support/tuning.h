// Databases of choices for tests, and what they must survive.
#pragma once

#include "compiler/search/database.h"
#include "egret/log.h"
#include "support/files.h"

#include <atomic>
#include <gtest/gtest.h>
#include <random>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace egret::testing {

/// Collects warnings while it lives.
class Warnings {
public:
  Warnings() {
    on_warning([this](const std::string& text) { all.push_back(text); });
  }
  ~Warnings() { on_warning({}); }
  std::vector<std::string> all;
};

inline compiler::TuningKey tuning_key(std::uint64_t number) {
  return {0x1000 + number, 77, 2, 99};
}
inline compiler::TuningChoice tuning_choice(std::uint64_t number) {
  compiler::TuningChoice c;
  c.schedule = "rows rows=" + std::to_string(1 + number);
  c.name = "kernel" + std::to_string(number);
  c.device = "cpu";
  c.effort = "search";
  c.seconds = 1e-6 * static_cast<double>(1 + number);
  c.greedy_seconds = 2 * c.seconds;
  c.candidates = 7;
  c.made = 1000000;
  return c;
}
inline compiler::TuningTrial tuning_trial(std::uint64_t number) {
  return {"rows rows=" + std::to_string(1 + number), "timed", "", 1e-6, 1, 0.25};
}

/// A process is killed while it puts trials: all of which it had told are there.
inline void kill_while_writing(int rounds) {
  std::mt19937 random(7);
  for (int round = 0; round < rounds; ++round) {
    const test::TempFolder folder;
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      compiler::TuningDatabase database(folder.path());
      for (std::uint32_t i = 0;; ++i) {
        database.put(tuning_key(0), tuning_trial(i));
        if (write(ends[1], &i, sizeof i) != sizeof i)
          _exit(1);
      }
    }
    close(ends[1]);
    std::uint32_t last = 0;
    const std::uint32_t wanted = 1 + random() % 40;
    while (last < wanted && ::read(ends[0], &last, sizeof last) == sizeof last) {
    }
    usleep(random() % 3000);
    kill(child, SIGKILL);
    while (::read(ends[0], &last, sizeof last) == sizeof last) { // told before its end
    }
    close(ends[0]);
    waitpid(child, nullptr, 0);
    const Warnings warnings;
    compiler::TuningDatabase database(folder.path());
    const auto trials = database.trials(tuning_key(0));
    EXPECT_GE(trials.size(), last + 1u) << "round " << round;
    EXPECT_EQ(database.verify(), std::vector<std::string>());
    EXPECT_EQ(warnings.all, std::vector<std::string>());
  }
}

/// Bytes of a database are changed or cut off: what is read is right or missing, there is one
/// warning at most, and it can be written again.
inline void read_damaged(int rounds) {
  constexpr std::uint64_t kChoices = 60;
  const test::TempFolder good;
  {
    compiler::TuningDatabase database(good.path());
    for (std::uint64_t i = 0; i < kChoices; ++i) {
      database.put(tuning_key(i), tuning_choice(i));
      database.put(tuning_key(i), tuning_trial(i));
    }
  }
  const std::string bytes = test::read_file(compiler::TuningDatabase::file_in(good.path()));
  ASSERT_GT(bytes.size(), 8192u);
  std::mt19937 random(11);
  int warned = 0;
  for (int round = 0; round < rounds; ++round) {
    const test::TempFolder folder;
    std::string damaged = bytes;
    if (random() % 4 == 0)
      damaged.resize(random() % damaged.size());
    else
      for (int i = static_cast<int>(1 + random() % 64), run = static_cast<int>(random() % 200);
           i > 0; --i) {
        const std::size_t at = random() % damaged.size();
        for (std::size_t b = at; b < damaged.size() && b <= at + static_cast<std::size_t>(run); ++b)
          damaged[b] = static_cast<char>(random());
      }
    test::write_file(compiler::TuningDatabase::file_in(folder.path()), damaged);
    const Warnings warnings;
    {
      compiler::TuningDatabase database(folder.path());
      for (std::uint64_t i = 0; i < kChoices; ++i) {
        if (const auto found = database.choice(tuning_key(i))) {
          ASSERT_EQ(found->schedule, tuning_choice(i).schedule) << "round " << round;
          ASSERT_EQ(found->seconds, tuning_choice(i).seconds) << "round " << round;
        }
        for (const auto& trial : database.trials(tuning_key(i)))
          ASSERT_EQ(trial.schedule, tuning_trial(i).schedule) << "round " << round;
      }
      database.put(tuning_key(500), tuning_choice(5));
      database.choice(tuning_key(500)); // may have been lost with a page found damaged just now
      database.put(tuning_key(500), tuning_choice(5));
    }
    EXPECT_LE(warnings.all.size(), 1u) << "round " << round;
    warned += !warnings.all.empty();
    compiler::TuningDatabase again(folder.path());
    again.put(tuning_key(501), tuning_choice(6));
    const auto found = again.choice(tuning_key(501));
    ASSERT_TRUE(found) << "round " << round;
    EXPECT_EQ(found->schedule, tuning_choice(6).schedule);
  }
  EXPECT_GT(warned, 0);
}

/// Several processes write and read one database that none of them has made.
inline void share(int processes, std::uint64_t entries) {
  const test::TempFolder folder;
  std::vector<pid_t> children;
  for (int p = 0; p < processes; ++p) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const Warnings warnings;
      bool good = true;
      {
        compiler::TuningDatabase database(folder.path());
        for (std::uint64_t i = 0; i < entries; ++i) {
          const std::uint64_t number = static_cast<std::uint64_t>(p) * entries + i;
          database.put(tuning_key(number), tuning_choice(number));
          database.put(tuning_key(0), tuning_trial(number));
          const auto found = database.choice(tuning_key(number));
          good = good && found && found->schedule == tuning_choice(number).schedule;
        }
      }
      _exit(good && warnings.all.empty() ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  compiler::TuningDatabase database(folder.path());
  const auto all = static_cast<std::size_t>(processes) * entries;
  EXPECT_EQ(database.choices().size(), all);
  EXPECT_EQ(database.trials(tuning_key(0)).size(), all);
  EXPECT_EQ(database.verify(), std::vector<std::string>());
}

} // namespace egret::testing
