// Where results go: regular files appear whole or not at all, and what is no regular file is never
// replaced.
#include "support/output_file.h"

#include "support/files.h"

#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <random>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace egret {
namespace {

using test::read_file;
using test::TempFolder;
using test::write_file;

std::size_t files_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder),
                                                std::filesystem::directory_iterator()));
}

TEST(OutputFile, ReplacesTheOldFileOnCommitOnly) {
  TempFolder folder;
  write_file(folder / "a", "old");
  OutputFile file("test", folder / "a");
  file.write("new content");
  EXPECT_EQ(read_file(folder / "a"), "old");
  file.commit();
  EXPECT_EQ(read_file(folder / "a"), "new content");
  EXPECT_EQ(files_in(folder.path()), 1U);
}

TEST(OutputFile, LeavesNothingBehindWithoutCommit) {
  TempFolder folder;
  {
    OutputFile file("test", folder / "a");
    file.write("half");
  }
  EXPECT_EQ(files_in(folder.path()), 0U);
}

TEST(OutputFile, WritesThroughALink) {
  TempFolder folder;
  write_file(folder / "real", "old");
  std::filesystem::create_symlink(folder / "real", folder / "link");
  OutputFile file("test", folder / "link");
  file.write("new");
  file.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "real"), "new");
}

TEST(OutputFile, NamesAFolderThatDoesNotExist) {
  TempFolder folder;
  auto path = folder / "none" / "a";
  test::expect_refused(
      path, [&] { OutputFile("test", path); }, "No such file or directory");
}

TEST(OutputFile, KeepsTheOldFileWhenTheDiskIsFull) {
  TempFolder folder;
  write_file(folder / "a", "old");
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 1000;
  setrlimit(RLIMIT_FSIZE, &small);
  std::string message = test::error_of(ErrorKind::File, [&] {
    OutputFile file("test", folder / "a");
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
TEST(OutputFile, AKillAtAnyMomentLeavesAWholeFile) {
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
        OutputFile file("test", folder / "a");
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
  write_output("test", folder / "b", "another file of the folder");
  EXPECT_EQ(files_in(folder.path()), 2U)
      << "what killed processes left is removed by the next save";
}

TEST(OutputFile, LeavesTheTemporariesOfOthersThatAreAlive) {
  TempFolder folder;
  const TemporaryFile going_on(folder / "a", 0600);
  ASSERT_GE(going_on.fd(), 0);
  write_file(folder / "b.egret-1-0.tmp", "left");
  write_file(folder / "c.egret-x-0.tmp", "of somebody else");
  write_output("test", folder / "d", "new");
  EXPECT_FALSE(std::filesystem::exists(folder / "b.egret-1-0.tmp"));
  EXPECT_EQ(files_in(folder.path()), 3U);
}

TEST(OutputFile, KeepsPermissions) {
  TempFolder folder;
  write_file(folder / "a", "old");
  ASSERT_EQ(chmod((folder / "a").c_str(), 0640), 0);
  write_output("test", folder / "a", "new");
  struct stat status {};
  ASSERT_EQ(stat((folder / "a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0640U);
}

/// What is at a path and must be there afterwards.
std::uint64_t inode_of(const std::filesystem::path& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

TEST(OutputFile, WritesIntoPipes) {
  TempFolder folder;
  const auto path = folder / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const std::uint64_t before = inode_of(path);
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  write_output("test", path, "through");
  char read_back[16] = {};
  EXPECT_EQ(read(reader, read_back, sizeof read_back), 7);
  EXPECT_STREQ(read_back, "through");
  close(reader);
  EXPECT_EQ(inode_of(path), before);
  EXPECT_EQ(files_in(folder.path()), 1U);
}

TEST(OutputFile, WritesIntoDevicesAndLinksToThem) {
  TempFolder folder;
  std::filesystem::create_symlink("/dev/null", folder / "link");
  write_output("test", folder / "link", "gone");
  write_output("test", "/dev/null", "gone");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  const auto node = folder / "node";
  if (mknod(node.c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0)
    GTEST_SKIP() << "only root may make device nodes";
  const int opens = open(node.c_str(), O_WRONLY);
  if (opens < 0)
    GTEST_SKIP() << "this file system has no devices";
  close(opens);
  const std::uint64_t before = inode_of(node);
  write_output("test", node, "gone");
  EXPECT_EQ(inode_of(node), before);
  EXPECT_TRUE(std::filesystem::is_character_file(node));
}

TEST(OutputFile, ADeviceThatIsFullIsNamed) {
  if (!std::filesystem::exists("/dev/full"))
    GTEST_SKIP();
  test::expect_refused(
      "/dev/full", [] { write_output("test", "/dev/full", "lost"); },
      "at byte 0: cannot write: No space left on device");
}

TEST(OutputFile, RefusesFoldersAndNamesThem) {
  TempFolder folder;
  test::expect_refused(
      folder.path(), [&] { output_target("test", folder.path()); }, "this is a folder");
  test::expect_refused(
      folder / "none/a", [&] { output_target("test", folder / "none/a"); },
      "cannot create a file here: No such file or directory");
  write_file(folder / "file", "x");
  test::expect_refused(
      folder / "file/a", [&] { output_target("test", folder / "file/a"); }, "Not a directory");
  std::filesystem::create_symlink(folder / "loop", folder / "loop");
  test::expect_refused(
      folder / "loop", [&] { output_target("test", folder / "loop"); }, "symbolic links");
  EXPECT_EQ(files_in(folder.path()), 2U);
}

// What stdout leads to is written through it: replacing the file would lose what is printed later.
TEST(OutputFile, WritesThroughDescriptorsOfThisProcess) {
  TempFolder folder;
  const auto path = folder / "shared";
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(write(fd, "before ", 7), 7);
  std::filesystem::create_symlink("/dev/fd/" + std::to_string(fd), folder / "link");
  write_output("test", "/dev/fd/" + std::to_string(fd), "first ");
  write_output("test", folder / "link", "second ");
  ASSERT_EQ(write(fd, "after", 5), 5);
  close(fd);
  EXPECT_EQ(read_file(path), "before first second after");
  EXPECT_EQ(output_target("test", "/dev/stdout").kind, OutputKind::Descriptor);
}

} // namespace
} // namespace egret
