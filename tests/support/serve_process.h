// egret serve as a process of its own.
#pragma once

#include "support/files.h"

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace egret::test {

/// Runs while it lives; listens on a free port when the constructor returns.
class ServeProcess {
public:
  /// std::runtime_error, with what the command said, where it ends instead.
  ServeProcess(const std::string& tool, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {tool, "serve", "--port", "0"});
    const std::string err = (folder_ / "err").string();
    std::vector<char*> words;
    for (std::string& word : arguments)
      words.push_back(word.data());
    words.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO);
      execv(words[0], words.data());
      _exit(127);
    }
    while ((port_ = port_said()) == 0) {
      if (int status = 0; waitpid(pid_, &status, WNOHANG) != 0) {
        pid_ = -1;
        throw std::runtime_error("egret serve ended: " + said());
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  ~ServeProcess() {
    if (pid_ > 0)
      kill(pid_, SIGKILL);
    (void)wait();
  }
  ServeProcess(const ServeProcess&) = delete;
  ServeProcess& operator=(const ServeProcess&) = delete;

  std::uint16_t port() const { return port_; }
  std::string said() const { return read_file(folder_ / "err"); } ///< on standard error

  /// As Ctrl-C; whether it then ends with status 0.
  bool interrupt() {
    kill(pid_, SIGINT);
    return wait();
  }

  /// Resident memory in MiB; 0 where the system does not say.
  double resident_mib() const {
    const std::string status = read_file("/proc/" + std::to_string(pid_) + "/status");
    const std::size_t at = status.find("VmRSS:");
    return at == std::string::npos ? 0 : std::strtod(status.c_str() + at + 6, nullptr) / 1024;
  }

private:
  /// Of "... at http://127.0.0.1:PORT/v1 ..."; 0 before that is said.
  std::uint16_t port_said() const {
    const std::string text = said(), before = "http://127.0.0.1:";
    const std::size_t at = text.find(before);
    if (at == std::string::npos || text.find("/v1", at) == std::string::npos)
      return 0;
    return static_cast<std::uint16_t>(std::stoi(text.substr(at + before.size())));
  }
  bool wait() {
    int status = -1;
    if (pid_ > 0)
      waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

  TempFolder folder_;
  pid_t pid_ = -1;
  std::uint16_t port_ = 0;
};

} // namespace egret::test
