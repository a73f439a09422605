// The database of choices: what is put is there for every process, and nothing on the disk can make
// it fail.
#include "support/cache_folder.h"
#include "support/cpu_levels.h"
#include "support/tuning.h"

#include <sys/resource.h>

namespace egret::compiler {
namespace {

using namespace egret::testing;
using Mode = TuningDatabase::Mode;

TEST(TuningDatabase, GivesBackWhatWasPut) {
  const test::TempFolder folder;
  {
    TuningDatabase database(folder.path());
    EXPECT_FALSE(database.choice(tuning_key(1)));
    database.put(tuning_key(1), tuning_choice(1));
    database.put(tuning_key(1), tuning_trial(3));
    database.put(tuning_key(1), TuningTrial{"generic", "wrong", "element 3 is 4", 0, 0, 0});
  }
  TuningDatabase database(folder.path());
  const auto found = database.choice(tuning_key(1));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->schedule, "rows rows=2");
  EXPECT_EQ(found->seconds, 2e-6);
  EXPECT_EQ(found->greedy_seconds, 4e-6);
  EXPECT_EQ(found->candidates, 7);
  const auto trials = database.trials(tuning_key(1));
  ASSERT_EQ(trials.size(), 2u);
  EXPECT_EQ(trials[0].state, "wrong");
  EXPECT_EQ(trials[0].message, "element 3 is 4");
  EXPECT_EQ(trials[1].error, 0.25);
}

TEST(TuningDatabase, EveryPartOfTheKeyCounts) {
  const test::TempFolder folder;
  TuningDatabase database(folder.path());
  database.put(tuning_key(1), tuning_choice(1));
  for (TuningKey key : {TuningKey{0x1002, 77, 2, 99}, TuningKey{0x1001, 78, 2, 99},
                        TuningKey{0x1001, 77, 3, 99}, TuningKey{0x1001, 77, 2, 98}})
    EXPECT_FALSE(database.choice(key));
}

TEST(TuningDatabase, FrozenReadsAndWritesNothing) {
  const test::TempFolder folder;
  {
    TuningDatabase frozen(folder.path(), Mode::Frozen);
    frozen.put(tuning_key(1), tuning_choice(1));
    EXPECT_FALSE(frozen.choice(tuning_key(1)));
  }
  EXPECT_FALSE(std::filesystem::exists(TuningDatabase::file_in(folder.path())));
  { TuningDatabase(folder.path()).put(tuning_key(1), tuning_choice(1)); }
  const std::string before = test::read_file(TuningDatabase::file_in(folder.path()));
  {
    TuningDatabase frozen(folder.path(), Mode::Frozen);
    EXPECT_TRUE(frozen.choice(tuning_key(1)));
    frozen.put(tuning_key(1), tuning_choice(8));
    frozen.put(tuning_key(1), tuning_trial(8));
    EXPECT_EQ(frozen.choice(tuning_key(1))->schedule, "rows rows=2");
    EXPECT_TRUE(frozen.trials(tuning_key(1)).empty());
  }
  EXPECT_EQ(test::read_file(TuningDatabase::file_in(folder.path())), before);
}

TEST(TuningDatabase, IsBounded) {
  const test::TempFolder folder;
  TuningDatabase database(folder.path(), Mode::Normal, {.choices = 100, .trials = 100});
  for (std::uint64_t i = 0; i < 700; ++i)
    database.put(tuning_key(i), tuning_choice(i));
  EXPECT_LE(database.stats(99).choices, 100 + 256);
  EXPECT_GE(database.stats(99).choices, 100);
}

TEST(TuningDatabase, Prunes) {
  const test::TempFolder folder;
  TuningDatabase database(folder.path());
  for (std::uint64_t i = 0; i < 20; ++i)
    database.put(tuning_key(i), tuning_choice(i));
  database.put({1, 2, 3, 4}, tuning_choice(1));
  EXPECT_EQ(database.stats(99).stale, 1);
  EXPECT_EQ(database.prune({.keep_days = 1}, 99), 0);
  EXPECT_EQ(database.prune({.stale = true}, 99), 1);
  EXPECT_EQ(database.prune({.most = 5}, 99), 15);
  EXPECT_EQ(database.stats(99).choices, 5);
  EXPECT_EQ(database.prune({.all = true}, 99), 5);
}

TEST(TuningDatabase, ExportsAndImports) {
  const test::TempFolder from, to;
  TuningDatabase first(from.path()), second(to.path());
  for (std::uint64_t i = 0; i < 5; ++i)
    first.put(tuning_key(i), tuning_choice(i));
  const std::string text = first.export_json();
  EXPECT_EQ(second.import_json(text), 5);
  EXPECT_EQ(second.export_json(), text);
  ASSERT_TRUE(second.choice(tuning_key(3)));
}

TEST(TuningDatabase, ImportRefusesWhatIsNoExportAndKeepsWhatThereIs) {
  const test::TempFolder from, to;
  TuningDatabase first(from.path()), second(to.path());
  first.put(tuning_key(0), tuning_choice(0));
  first.put(tuning_key(1), tuning_choice(1));
  const std::string good = first.export_json();
  auto refused = [&](const std::string& what, const std::string& by, const std::string& says) {
    std::string bad = good;
    const auto at = bad.rfind(what);
    ASSERT_NE(at, std::string::npos) << what;
    bad.replace(at, what.size(), by);
    const std::string message = test::error_of(ErrorKind::Parse, [&] { second.import_json(bad); });
    EXPECT_NE(message.find(says), std::string::npos) << message;
  };
  refused("egret tuning 1", "egret tuning 7", "this is not what `egret cache export` writes");
  refused("\"rows rows=2\"", "\"rows rows=two\"", "choice 1: schedule:");
  refused("\"rows rows=2\"", "7", "choice 1: `schedule` is no text");
  refused("0000000000001001", "xyz", "choice 1: `region` is no 16 hexadecimal digits");
  refused("\"workers\": 2", "\"workers\": 0", "choice 1: `workers` is no integer from 1");
  refused("\"spread\": 0.0", "\"spread\": -1", "choice 1: `spread` is no number from 0 on");
  refused("\"name\"", "\"nome\"", "choice 1: it has no `name`");
  refused("}", "", "import: ");
  EXPECT_TRUE(second.choices().empty());
}

TEST(TuningDatabase, AFileThatIsNoDatabaseIsStartedAfreshWithOneWarning) {
  const test::TempFolder folder;
  test::write_file(TuningDatabase::file_in(folder.path()), std::string(5000, 'x'));
  const Warnings warnings;
  TuningDatabase database(folder.path());
  EXPECT_FALSE(database.choice(tuning_key(1)));
  database.put(tuning_key(1), tuning_choice(1));
  EXPECT_TRUE(database.choice(tuning_key(1)));
  ASSERT_EQ(warnings.all.size(), 1u);
  EXPECT_NE(warnings.all[0].find("is damaged"), std::string::npos) << warnings.all[0];
  EXPECT_NE(warnings.all[0].find(folder.path().string()), std::string::npos);
}

TEST(TuningDatabase, AFolderThatCannotBeMadeIsOneWarning) {
  const test::TempFolder folder;
  test::write_file(folder / "file", "no folder");
  const Warnings warnings;
  TuningDatabase database(folder / "file");
  for (std::uint64_t i = 0; i < 3; ++i) {
    database.put(tuning_key(i), tuning_choice(i));
    EXPECT_FALSE(database.choice(tuning_key(i)));
    EXPECT_TRUE(database.trials(tuning_key(i)).empty());
  }
  ASSERT_EQ(warnings.all.size(), 1u);
  EXPECT_NE(warnings.all[0].find("cannot be written to"), std::string::npos) << warnings.all[0];
}

TEST(TuningDatabase, AFullDiskIsOneWarningAndReadingGoesOn) {
  const test::TempFolder folder;
  const pid_t child = fork(); // the limit is the process's
  ASSERT_GE(child, 0);
  if (child == 0) {
    const Warnings warnings;
    signal(SIGXFSZ, SIG_IGN);
    rlimit limit{200 << 10, 200 << 10};
    setrlimit(RLIMIT_FSIZE, &limit);
    TuningDatabase database(folder.path());
    for (std::uint64_t i = 0; i < 5000; ++i)
      database.put(tuning_key(i), tuning_choice(i));
    _exit(warnings.all.size() == 1 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  TuningDatabase database(folder.path());
  EXPECT_TRUE(database.choice(tuning_key(0)));
  EXPECT_EQ(database.verify(), std::vector<std::string>());
}

TEST(TuningDatabase, WithoutAFolderThereIsNoMemoryAndNoWarning) {
  const Warnings warnings;
  TuningDatabase database(std::nullopt);
  database.put(tuning_key(1), tuning_choice(1));
  EXPECT_FALSE(database.choice(tuning_key(1)));
  EXPECT_FALSE(database.stats(1).readable);
  EXPECT_TRUE(warnings.all.empty());
}

TEST(TuningDatabase, LosesNothingWhenItsProcessIsKilled) {
  kill_while_writing(5);
}
TEST(TuningDatabase, SurvivesDamage) {
  read_damaged(40);
}
TEST(TuningDatabase, IsSharedByProcesses) {
  share(6, 30);
}

TEST(CacheFolder, IsWhatTheVariablesSay) {
  {
    ScopedEnvironment own("EGRET_CACHE", "/some/where");
    EXPECT_EQ(cache_folder(), "/some/where");
  }
  {
    ScopedEnvironment off("EGRET_CACHE", "off");
    EXPECT_FALSE(cache_folder());
  }
  ScopedEnvironment none("EGRET_CACHE", "");
  ScopedEnvironment xdg("XDG_CACHE_HOME", "/xdg");
  EXPECT_EQ(cache_folder(), "/xdg/egret");
}

} // namespace
} // namespace egret::compiler
