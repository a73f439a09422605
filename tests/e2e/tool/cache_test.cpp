// egret cache on databases that are damaged: it says so and changes nothing.
#include "support/run_tool.h"
#include "support/tuning.h"

#include <sys/stat.h>

namespace egret {
namespace {

using compiler::TuningDatabase;
using test::egret_command;
using test::expect_contains;
using test::Ran;

TEST(ToolCache, SaysThatADatabaseIsDamagedAndLeavesIt) {
  const test::TempFolder folder;
  const auto file = TuningDatabase::file_in(folder.path());
  {
    TuningDatabase database(folder.path());
    for (std::uint64_t i = 0; i < 8; ++i)
      database.put(testing::tuning_key(i), testing::tuning_choice(i));
  }
  const std::string cache = "EGRET_CACHE=" + folder.path().string();
  EXPECT_EQ(egret_command("cache verify", cache).code, 0);
  EXPECT_EQ(egret_command("cache stats", cache).code, 0);
  const std::string whole = test::read_file(file);
  for (const std::size_t left : {std::size_t{0}, std::size_t{100}, whole.size() / 2}) {
    test::write_file(file, whole.substr(0, left));
    for (const char* command : {"cache verify", "cache stats", "cache verify --json"}) {
      const Ran ran = egret_command(command, cache);
      EXPECT_EQ(ran.code, 1) << command << " " << left;
      expect_contains(ran.err, folder.path().string());
    }
    EXPECT_EQ(test::read_file(file).size(), left);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  }
}

TEST(ToolCache, NamesTheFileThatIsNoExport) {
  const test::TempFolder folder;
  const std::string cache = "EGRET_CACHE=" + (folder / "cache").string();
  test::write_file(folder / "bad.json", "{\"format\": \"egret tuning 1\", ");
  const Ran ran = egret_command("cache import " + (folder / "bad.json").string(), cache);
  EXPECT_EQ(ran.code, 1);
  EXPECT_EQ(ran.err, "egret: " + (folder / "bad.json").string() +
                         ": import: this is no JSON: it ends or goes wrong at byte 30\n");
}

} // namespace
} // namespace egret
