#include "io/file.h"
#include "support/files.h"

#include <chrono>
#include <csignal>
#include <gtest/gtest.h>
#include <random>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace egret::io {
namespace {

using test::read_file;
using test::TempFolder;
using test::write_file;

std::size_t files_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder),
                                                std::filesystem::directory_iterator()));
}

TEST(AtomicFile, ReplacesTheOldFileOnCommitOnly) {
  TempFolder folder;
  write_file(folder / "a", "old");
  AtomicFile file("test", folder / "a");
  file.write("new content");
  EXPECT_EQ(read_file(folder / "a"), "old");
  file.commit();
  EXPECT_EQ(read_file(folder / "a"), "new content");
  EXPECT_EQ(files_in(folder.path()), 1U);
}

TEST(AtomicFile, LeavesNothingBehindWithoutCommit) {
  TempFolder folder;
  {
    AtomicFile file("test", folder / "a");
    file.write("half");
  }
  EXPECT_EQ(files_in(folder.path()), 0U);
}

TEST(AtomicFile, WritesThroughALink) {
  TempFolder folder;
  write_file(folder / "real", "old");
  std::filesystem::create_symlink(folder / "real", folder / "link");
  AtomicFile file("test", folder / "link");
  file.write("new");
  file.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "real"), "new");
}

TEST(AtomicFile, NamesAFolderThatDoesNotExist) {
  TempFolder folder;
  auto path = folder / "none" / "a";
  test::expect_refused(
      path, [&] { AtomicFile("test", path); }, "No such file or directory");
}

TEST(AtomicFile, KeepsTheOldFileWhenTheDiskIsFull) {
  TempFolder folder;
  write_file(folder / "a", "old");
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 1000;
  setrlimit(RLIMIT_FSIZE, &small);
  std::string message = test::error_of(ErrorKind::File, [&] {
    AtomicFile file("test", folder / "a");
    file.write(std::string(800, 'x'));
    file.write(std::string(800, 'y'));
  });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find("at byte 1000: cannot write"), std::string::npos) << message;
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_EQ(files_in(folder.path()), 1U);
}

// A child writes generation after generation, each one full of one letter, and is killed at a
// random moment.
TEST(AtomicFile, AKillAtAnyMomentLeavesAWholeFile) {
  TempFolder folder;
  constexpr std::size_t kBytes = 1 << 20;
  write_file(folder / "a", std::string(kBytes, '-'));
  std::mt19937 random(7);
  int changed = 0;
  std::string last(kBytes, '-');
  for (int round = 0; round < 25; ++round) {
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int generation = 0;; ++generation) {
        AtomicFile file("test", folder / "a");
        std::string piece(1 << 14, static_cast<char>('a' + (generation + round) % 26));
        for (std::size_t at = 0; at < kBytes; at += piece.size())
          file.write(piece);
        file.commit();
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(500 + random() % 8000));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    std::string content = read_file(folder / "a");
    ASSERT_EQ(content.size(), kBytes);
    ASSERT_EQ(content, std::string(kBytes, content[0])) << "a torn file";
    changed += content != last ? 1 : 0;
    last = content;
  }
  EXPECT_GT(changed, 0) << "no kill came after a commit: the test did not test";
}

} // namespace
} // namespace egret::io
