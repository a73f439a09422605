// Objects on disk: what is kept is found; what is damaged, foreign or open to others is not.
#include "support/cache_folder.h"
#include "support/object_cache.h"
#include "support/temporary_file.h"

#include "support/cpu_levels.h"
#include "support/files.h"
#include "support/tuning.h"

#include <gtest/gtest.h>

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace egret {
namespace {

namespace fs = std::filesystem;
using egret::testing::ScopedEnvironment;
using egret::testing::Warnings;

Hash128 key(int number) {
  return hash128(std::to_string(number));
}

class ObjectCacheTest : public ::testing::Test {
protected:
  test::TempFolder folder;
  ObjectCache cache{folder.path(), "test", "version 1"};
  Warnings warnings;

  fs::path file(int number) const { return cache.path_of(key(number)); }
  // Nothing is found, with a warning that has the words; what is kept then is found.
  void expect_refused(int number, const std::string& words) {
    EXPECT_EQ(cache.find(key(number)), std::nullopt);
    ASSERT_EQ(warnings.all.size(), 1u);
    EXPECT_NE(warnings.all[0].find(words), std::string::npos) << warnings.all[0];
    EXPECT_NE(warnings.all[0].find(file(number).string()), std::string::npos) << warnings.all[0];
    cache.keep(key(number), "again");
    EXPECT_EQ(cache.find(key(number)), "again");
  }
};

TEST_F(ObjectCacheTest, WhatIsKeptIsFoundByAnotherProcess) {
  EXPECT_EQ(cache.find(key(1)), std::nullopt);
  cache.keep(key(1), std::string("code\0more", 9));
  cache.keep(key(2), "");
  ObjectCache other(folder.path(), "test", "version 1");
  EXPECT_EQ(other.find(key(1)), std::string("code\0more", 9));
  EXPECT_EQ(other.find(key(2)), "");
  EXPECT_EQ(other.find(key(3)), std::nullopt);
  EXPECT_EQ(ObjectCache(folder.path(), "other", "version 1").find(key(1)), std::nullopt);
  EXPECT_TRUE(warnings.all.empty());
}

TEST_F(ObjectCacheTest, EveryDamageIsSeenWithOneWarning) {
  cache.keep(key(1), "machine code");
  const std::string whole = test::read_file(file(1));
  for (std::size_t i = 0; i < whole.size(); ++i)
    for (const int bit : {0, 5, 7}) {
      std::string bad = whole;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      test::write_file(file(1), bad);
      ASSERT_EQ(cache.find(key(1)), std::nullopt) << "byte " << i;
    }
  for (std::size_t cut = 0; cut < whole.size(); ++cut) {
    test::write_file(file(1), whole.substr(0, cut));
    ASSERT_EQ(cache.find(key(1)), std::nullopt) << "cut at " << cut;
  }
  test::write_file(file(1), whole + "x");
  EXPECT_EQ(cache.find(key(1)), std::nullopt);
  EXPECT_EQ(cache.verify().size(), 1u);
  ASSERT_EQ(warnings.all.size(), 1u);
  cache.keep(key(1), "machine code");
  EXPECT_EQ(cache.find(key(1)), "machine code");
  EXPECT_EQ(cache.verify(), std::vector<std::string>());
}

TEST_F(ObjectCacheTest, AnObjectUnderAnothersNameIsNotTaken) {
  cache.keep(key(1), "one");
  fs::copy_file(file(1), file(2));
  expect_refused(2, "another object's");
}

TEST_F(ObjectCacheTest, AFileThatOthersMayWriteToIsNotTaken) {
  cache.keep(key(1), "one");
  struct stat status {};
  ASSERT_EQ(stat(file(1).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ASSERT_EQ(chmod(file(1).c_str(), 0620), 0);
  expect_refused(1, "others may write to it");
}

TEST_F(ObjectCacheTest, AFileOfAnotherUserIsNotTaken) {
  if (geteuid() != 0)
    GTEST_SKIP() << "only root can give files away";
  cache.keep(key(1), "one");
  ASSERT_EQ(chown(file(1).c_str(), 12345, 12345), 0);
  EXPECT_EQ(cache.verify().size(), 1u);
  expect_refused(1, "another user");
}

TEST_F(ObjectCacheTest, LinksAndWhatIsNoFileAreNotFollowed) {
  cache.keep(key(1), "one");
  fs::rename(file(1), folder / "elsewhere");
  fs::create_symlink(folder / "elsewhere", file(1));
  EXPECT_EQ(cache.find(key(1)), std::nullopt);
  ASSERT_EQ(mkfifo(file(2).c_str(), 0600), 0);
  EXPECT_EQ(cache.find(key(2)), std::nullopt); // and does not wait for a writer
  ASSERT_EQ(warnings.all.size(), 1u);
  cache.keep(key(1), "two");
  EXPECT_EQ(cache.find(key(1)), "two");
  EXPECT_NE(test::read_file(folder / "elsewhere").find("one"), std::string::npos);
}

TEST_F(ObjectCacheTest, WhatIsRejectedGoes) {
  cache.keep(key(1), "no machine code");
  cache.reject(key(1), "it cannot be linked");
  EXPECT_FALSE(fs::exists(file(1)));
  expect_refused(1, "it cannot be linked");
}

TEST_F(ObjectCacheTest, ThoseUsedLongestAgoLeaveAndSoDoUnfinishedFiles) {
  for (const int number : {1, 2, 3})
    cache.keep(key(number), "code");
  auto used = fs::file_time_type::clock::now() - std::chrono::hours(5);
  for (const int number : {1, 2, 3})
    fs::last_write_time(file(number), used += std::chrono::minutes(1));
  EXPECT_TRUE(cache.find(key(1)));                            // used now
  const fs::path left = file(1).string() + ".egret-77-1.tmp"; // its writer was killed
  test::write_file(left, "half");
  const TemporaryFile going_on(file(1), 0600);
  EXPECT_EQ(cache.stats().objects, 3);
  EXPECT_EQ(cache.prune(cache.stats().bytes - 1), 1);
  EXPECT_TRUE(fs::exists(file(1)) && !fs::exists(file(2)) && fs::exists(file(3)));
  EXPECT_FALSE(fs::exists(left));
  EXPECT_EQ(std::distance(fs::directory_iterator(cache.folder()), {}), 3)
      << "two objects and one unfinished";
  EXPECT_EQ(cache.prune(0), 2);
  EXPECT_EQ(cache.stats().objects, 0);
}

TEST_F(ObjectCacheTest, WritersKeepTheFolderWithinItsLimit) {
  ObjectCache small(folder.path(), "small", "v", 20000);
  for (int number = 0; number < 200; ++number)
    small.keep(key(number), std::string(1000, 'x'));
  // Looked at every 64 objects.
  EXPECT_LE(small.stats().bytes, 20000u + 64u * 1100u);
  EXPECT_GE(small.stats().objects, 10);
  EXPECT_TRUE(small.find(key(199)));
}

TEST_F(ObjectCacheTest, OtherVersionsAreCountedAndRemoved) {
  cache.keep(key(1), "old");
  ObjectCache next(folder.path(), "test", "version 2");
  next.keep(key(2), "new");
  EXPECT_EQ(next.stats().objects, 2);
  EXPECT_EQ(next.stats().stale, 1);
  EXPECT_EQ(next.prune_stale(), 1);
  EXPECT_EQ(next.find(key(1)), std::nullopt);
  EXPECT_TRUE(next.find(key(2)));
}

TEST_F(ObjectCacheTest, AFolderThatCannotBeWrittenIsOneWarningForAll) {
  test::write_file(folder / "file", "a file stands where the folder would be");
  ObjectCache first(folder / "file", "a", "v"), second(folder / "file", "b", "v");
  for (int number = 0; number < 3; ++number)
    for (ObjectCache* cache : {&first, &second}) {
      cache->keep(key(number), "code");
      EXPECT_EQ(cache->find(key(number)), std::nullopt);
    }
  ASSERT_EQ(warnings.all.size(), 1u);
  EXPECT_NE(warnings.all[0].find("cannot be written to"), std::string::npos) << warnings.all[0];
}

TEST_F(ObjectCacheTest, AFullDiskIsOneWarningAndLeavesNothingHalfWritten) {
  const pid_t child = fork(); // the limit is the process's
  ASSERT_GE(child, 0);
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int number = 0; number < 5; ++number)
      cache.keep(key(number), std::string(10000, 'x'));
    _exit(warnings.all.size() == 1 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(fs::is_empty(cache.folder()));
}

TEST_F(ObjectCacheTest, WithoutAFolderOrRoomNothingIsKept) {
  ObjectCache none(std::nullopt, "test", "v"), empty(folder.path(), "empty", "v", 0);
  for (ObjectCache* cache : {&none, &empty}) {
    cache->keep(key(1), "code");
    EXPECT_EQ(cache->find(key(1)), std::nullopt);
  }
  EXPECT_FALSE(fs::exists(empty.folder()));
  EXPECT_TRUE(warnings.all.empty());
}

TEST_F(ObjectCacheTest, ManyThreadsShareAFolder) {
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 100; ++i) {
          const std::string object = "object " + std::to_string(i % 5);
          if (const auto found = cache.find(key(i % 5))) {
            EXPECT_EQ(*found, object);
          } else {
            cache.keep(key(i % 5), object);
          }
        }
      });
  }
  EXPECT_EQ(cache.stats().objects, 5);
  EXPECT_EQ(cache.verify(), std::vector<std::string>());
  for (const auto& entry : fs::directory_iterator(cache.folder()))
    EXPECT_EQ(entry.path().extension(), ".object") << entry.path(); // no half-written files
}

TEST(ObjectLimit, ComesFromTheEnvironment) {
  {
    ScopedEnvironment none("EGRET_OBJECTS_MB", "");
    EXPECT_EQ(object_limit_of_environment(), ObjectCache::kDefaultLimit);
  }
  {
    ScopedEnvironment some("EGRET_OBJECTS_MB", "3");
    EXPECT_EQ(object_limit_of_environment(), 3u << 20);
  }
  for (const char* bad : {"many", "-1", "3 ", "1000001", "99999999999999999999"}) {
    ScopedEnvironment set("EGRET_OBJECTS_MB", bad);
    try {
      object_limit_of_environment();
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Value);
      EXPECT_NE(std::string(error.what()).find(bad), std::string::npos) << error.what();
    }
  }
}

} // namespace
} // namespace egret
