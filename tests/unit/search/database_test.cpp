// The database of choices: what is put is there for every process, and nothing on the disk can make
// it fail.
#include "compiler/search/database_rows.h"
#include "support/cache_folder.h"
#include "support/cpu_levels.h"
#include "support/tuning.h"

#include <map>
#include <sys/resource.h>
#include <sys/stat.h>

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

TEST(TuningDatabase, KnowsWhetherASearchWrote) {
  const test::TempFolder folder;
  TuningDatabase database(folder.path());
  EXPECT_FALSE(database.has_measured_choices());
  TuningChoice choice = tuning_choice(1);
  choice.effort = "quick"; // ranked
  database.put(tuning_key(1), choice);
  EXPECT_FALSE(database.has_measured_choices());
  choice.effort = "search";
  database.put(tuning_key(2), choice);
  EXPECT_TRUE(database.has_measured_choices());
  EXPECT_FALSE(TuningDatabase(std::nullopt).has_measured_choices());
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
  refused("\"spread\": 0.0", "\"spread\": 1e999", "this is no JSON: a number is beyond f64");
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

TEST(TuningDatabase, AFileThatIsNoRegularOneIsNotWaitedFor) {
  const test::TempFolder folder;
  ASSERT_EQ(::mkfifo(TuningDatabase::file_in(folder.path()).c_str(), 0600), 0); // without a writer
  const Warnings warnings;
  for (const Mode mode : {Mode::Normal, Mode::Frozen, Mode::Inspect}) {
    TuningDatabase database(folder.path(), mode);
    database.put(tuning_key(1), tuning_choice(1));
    EXPECT_FALSE(database.choice(tuning_key(1)));
  }
  for (const std::string& warning : warnings.all)
    EXPECT_NE(warning.find("it is not a regular file"), std::string::npos) << warning;
  EXPECT_FALSE(warnings.all.empty());
  const auto wrong = TuningDatabase(folder.path(), Mode::Inspect).verify();
  ASSERT_EQ(wrong.size(), 1u);
  EXPECT_NE(wrong[0].find("it is not a regular file"), std::string::npos) << wrong[0];
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

/// Every file of a folder with its bytes and time of change.
std::map<std::string, std::pair<std::string, std::filesystem::file_time_type>>
files_of(const std::filesystem::path& folder) {
  std::map<std::string, std::pair<std::string, std::filesystem::file_time_type>> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files[entry.path().filename().string()] = {test::read_file(entry.path()),
                                               entry.last_write_time()};
  return files;
}

void damage(std::string& bytes, std::mt19937& random) {
  const std::size_t size = bytes.size();
  switch (random() % 4) {
  case 0:
    bytes.resize(random() % size);
    break;
  case 1: // a few bits
    for (std::uint32_t i = 1 + random() % 4; i > 0; --i)
      bytes[random() % size] ^= static_cast<char>(1U << random() % 8);
    break;
  case 2: { // a page of zeros
    const std::size_t page = 4096 * (random() % (size / 4096));
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(page), 4096, '\0');
    break;
  }
  default: { // a run of noise
    const std::size_t at = random() % size;
    for (std::size_t b = at; b < size && b < at + 100; ++b)
      bytes[b] = static_cast<char>(random());
  }
  }
}

// What verify() does not find has changed nothing that can be read.
TEST(TuningDatabase, VerifyFindsAllDamageAndChangesNothing) {
  constexpr std::uint64_t kChoices = 8;
  const test::TempFolder good;
  {
    TuningDatabase database(good.path());
    for (std::uint64_t i = 0; i < kChoices; ++i) {
      database.put(tuning_key(i), tuning_choice(i));
      database.put(tuning_key(i), tuning_trial(i));
    }
  }
  const std::string bytes = test::read_file(TuningDatabase::file_in(good.path()));
  std::mt19937 random(5);
  int found = 0;
  for (int round = 0; round < 150; ++round) {
    const test::TempFolder folder;
    std::string damaged = bytes;
    damage(damaged, random);
    test::write_file(TuningDatabase::file_in(folder.path()), damaged);
    const auto before = files_of(folder.path());
    const Warnings warnings;
    TuningDatabase database(folder.path(), Mode::Inspect);
    const auto problems = database.verify();
    database.stats(99);
    EXPECT_TRUE(files_of(folder.path()) == before) << "round " << round;
    found += !problems.empty();
    if (!problems.empty())
      continue;
    for (std::uint64_t i = 0; i < kChoices; ++i) {
      const auto choice = database.choice(tuning_key(i));
      ASSERT_TRUE(choice) << "round " << round;
      EXPECT_EQ(choice->schedule, tuning_choice(i).schedule) << "round " << round;
      EXPECT_EQ(choice->seconds, tuning_choice(i).seconds) << "round " << round;
      EXPECT_EQ(database.trials(tuning_key(i)).size(), 1u) << "round " << round;
    }
  }
  EXPECT_GT(found, 75);
}

TEST(TuningDatabase, VerifyFindsRowsThatAreMissingOrWereAdded) {
  const test::TempFolder folder;
  const auto file = TuningDatabase::file_in(folder.path());
  {
    TuningDatabase database(folder.path());
    for (std::uint64_t i = 0; i < 4; ++i)
      database.put(tuning_key(i), tuning_choice(i));
    database.put(tuning_key(1), tuning_choice(3)); // replaced
    database.prune({.most = 3}, 99);
  }
  EXPECT_EQ(TuningDatabase(folder.path(), Mode::Inspect).verify(), std::vector<std::string>());
  {
    Sqlite other(file, Sqlite::Mode::ReadWrite, 1000);
    other.run("DROP TRIGGER choices_out; DELETE FROM choices WHERE region = (SELECT min(region) "
              "FROM choices)");
  }
  EXPECT_EQ(TuningDatabase(folder.path(), Mode::Inspect).verify().size(), 1u) << "the schema";
  {
    Sqlite other(file, Sqlite::Mode::ReadWrite, 1000);
    other.run(kTuningSchema);
  }
  const auto problems = TuningDatabase(folder.path(), Mode::Inspect).verify();
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("2 entries are there, and they are not those that were written"),
            std::string::npos)
      << problems[0];
}

TEST(TuningDatabase, VerifyReadsWhileOthersWrite) {
  const test::TempFolder folder;
  TuningDatabase database(folder.path());
  for (std::uint64_t i = 0; i < 4; ++i) {
    database.put(tuning_key(i), tuning_choice(i));
    TuningDatabase looking(folder.path(), Mode::Inspect);
    EXPECT_EQ(looking.verify(), std::vector<std::string>());
    EXPECT_EQ(looking.stats(99).choices, static_cast<std::int64_t>(i + 1));
  }
}

TEST(TuningDatabase, AnEmptyFileIsDamage) {
  const test::TempFolder folder;
  test::write_file(TuningDatabase::file_in(folder.path()), "");
  const auto problems = TuningDatabase(folder.path(), Mode::Inspect).verify();
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("it was cut to nothing, or the disk was full"), std::string::npos)
      << problems[0];
  EXPECT_TRUE(TuningDatabase(folder.path()).put(tuning_key(1), tuning_choice(1)));
  EXPECT_EQ(TuningDatabase(folder.path(), Mode::Inspect).verify(), std::vector<std::string>());
}

// What is left where the disk was full when the tables were to be made.
TEST(TuningDatabase, AFileWithoutTablesIsAFreshOne) {
  const test::TempFolder folder;
  const auto file = TuningDatabase::file_in(folder.path());
  Sqlite(file, Sqlite::Mode::ReadWrite, 1000).run("PRAGMA journal_mode = WAL");
  ASSERT_EQ(std::filesystem::file_size(file), 4096u);
  const Warnings warnings;
  {
    TuningDatabase looking(folder.path(), Mode::Inspect);
    EXPECT_EQ(looking.verify(), std::vector<std::string>());
    EXPECT_TRUE(looking.stats(99).readable);
    EXPECT_EQ(looking.stats(99).choices, 0);
  }
  EXPECT_FALSE(TuningDatabase(folder.path(), Mode::Frozen).choice(tuning_key(1)));
  EXPECT_TRUE(TuningDatabase(folder.path(), Mode::Frozen).choices().empty());
  TuningDatabase database(folder.path());
  EXPECT_TRUE(database.put(tuning_key(1), tuning_choice(1)));
  EXPECT_TRUE(database.choice(tuning_key(1)));
  EXPECT_EQ(database.verify(), std::vector<std::string>());
  EXPECT_TRUE(warnings.all.empty());
}

TEST(TuningDatabase, TablesOfAnotherProgramAreNoFreshFile) {
  const test::TempFolder folder;
  Sqlite(TuningDatabase::file_in(folder.path()), Sqlite::Mode::ReadWrite, 1000)
      .run("CREATE TABLE other(x)");
  EXPECT_EQ(TuningDatabase(folder.path(), Mode::Inspect).verify().size(), 1u);
}

TEST(TuningDatabase, KeepsWhatIsDamagedAndRecoversWhatCanBeRead) {
  constexpr std::uint64_t kChoices = 200;
  const test::TempFolder folder;
  const auto file = TuningDatabase::file_in(folder.path());
  {
    TuningDatabase database(folder.path());
    for (std::uint64_t i = 0; i < kChoices; ++i)
      database.put(tuning_key(i), tuning_choice(i));
  }
  std::string bytes = test::read_file(file);
  const std::size_t page = 4096 * (bytes.size() / 4096 / 2); // a leaf in the middle
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(page), 4096, '\xff');
  test::write_file(file, bytes);
  const Warnings warnings;
  TuningDatabase database(folder.path());
  std::size_t recovered = 0;
  for (std::uint64_t i = 0; i < kChoices; ++i)
    if (const auto found = database.choice(tuning_key(i))) {
      EXPECT_EQ(found->schedule, tuning_choice(i).schedule);
      ++recovered;
    }
  EXPECT_EQ(test::read_file(file.string() + ".bad"), bytes);
  EXPECT_GT(recovered, kChoices / 2);
  EXPECT_LT(recovered, kChoices);
  ASSERT_EQ(warnings.all.size(), 1u);
  EXPECT_NE(warnings.all[0].find(".bad"), std::string::npos) << warnings.all[0];
  EXPECT_EQ(database.verify(), std::vector<std::string>());
}

// What is in a cache is run as code: it is nobody else's.
TEST(TuningDatabase, IsForThisUserAlone) {
  const test::TempFolder above;
  const auto folder = above / "new";
  const mode_t mask = umask(0);
  {
    TuningDatabase database(folder);
    database.put(tuning_key(1), tuning_choice(1));
    auto mode_of = [](const std::filesystem::path& path) {
      struct stat status {};
      return stat(path.c_str(), &status) == 0 ? status.st_mode & 0777U : 0U;
    };
    EXPECT_EQ(mode_of(folder), 0700U);
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      EXPECT_EQ(mode_of(entry.path()), 0600U) << entry.path();
    EXPECT_EQ(mode_of(TuningDatabase::file_in(folder).string() + "-wal"), 0600U);
    chmod(TuningDatabase::file_in(folder).c_str(), 0644);
    TuningDatabase again(folder);
    again.put(tuning_key(2), tuning_choice(2));
    EXPECT_EQ(mode_of(TuningDatabase::file_in(folder)), 0600U);
  }
  umask(mask);
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
