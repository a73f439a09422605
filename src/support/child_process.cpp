#include "support/child_process.h"

#include "support/fail.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

namespace egret {

namespace {

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts)
    pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> environment_with(const std::vector<std::string>& added) {
  std::vector<std::string> all = added;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    if (std::ranges::none_of(added, [&](const std::string& one) { return one.starts_with(name); }))
      all.emplace_back(text);
  }
  return all;
}

} // namespace

std::string Ended::why_not_run() const {
  if (error != 0)
    return std::strerror(error);
  return signal != 0 ? fmt::format("signal {} stopped it", signal) : "";
}

Ended run_process(const std::vector<std::string>& command, const ProcessOptions& options) {
  const std::vector<char*> arguments = pointers_to(command);
  const std::vector<std::string> variables = environment_with(options.environment);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (!options.output.empty()) {
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, options.output.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  }
  pid_t process = 0;
  Ended ended;
  ended.error = posix_spawnp(&process, arguments[0], &actions, nullptr, arguments.data(),
                             pointers_to(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  if (ended.error != 0)
    return ended;
  int status = 0;
  while (::waitpid(process, &status, 0) < 0)
    if (errno != EINTR) {
      ended.error = errno;
      return ended;
    }
  if (WIFSIGNALED(status))
    ended.signal = WTERMSIG(status);
  else
    ended.code = WEXITSTATUS(status);
  return ended;
}

TemporaryFolder::TemporaryFolder(std::string_view who, std::string_view name) {
  std::error_code error;
  const std::filesystem::path place = std::filesystem::temp_directory_path(error);
  std::string pattern = (place / fmt::format("{}-XXXXXX", name)).string();
  if (error || !::mkdtemp(pattern.data()))
    fail(ErrorKind::File, "{}: no folder can be made below {} ({}); TMPDIR names another", who,
         place.string(), error ? error.message() : std::strerror(errno));
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

} // namespace egret
