#include "compiler/measurement_process.h"

#include "compiler/measurement_bytes.h"
#include "support/fail.h"
#include "support/own_folder.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace egret::compiler {

namespace fs = std::filesystem;

std::string find_worker() {
  const auto runs = [](const fs::path& file) {
    return access(file.c_str(), X_OK) == 0 && !fs::is_directory(file);
  };
  if (const char* named = std::getenv("EGRET_WORKER"); named && *named) {
    if (runs(named))
      return named;
    fail(ErrorKind::File, "worker: EGRET_WORKER names {}, which cannot be run", named);
  }
  const fs::path folder = own_folder();
  for (const fs::path& file : {folder / "egret", folder / ".." / "bin" / "egret"})
    if (runs(file))
      return file.string();
  fail(ErrorKind::File,
       "worker: there is no egret command in {0} or {0}/../bin; set EGRET_WORKER to its path",
       folder.string());
}

MeasurementProcess::MeasurementProcess(MeasurementProcessOptions options)
    : options_(std::move(options)) {}

MeasurementProcess::~MeasurementProcess() {
  stop();
}

void MeasurementProcess::start() {
  if (options_.binary.empty())
    options_.binary = find_worker();
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    fail(ErrorKind::File, "worker: no sockets: {}", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string command = "worker";
  char* arguments[] = {options_.binary.data(), command.data(), nullptr};
  const int failed =
      posix_spawn(&process_, options_.binary.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (failed != 0) {
    close(ends[0]);
    process_ = -1;
    fail(ErrorKind::File, "worker: {} cannot be started: {}", options_.binary,
         std::strerror(failed));
  }
  socket_ = ends[0];
  ++started_;
}

void MeasurementProcess::stop() noexcept {
  if (process_ < 0)
    return;
  close(socket_);
  kill(process_, SIGKILL);
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
  socket_ = process_ = -1;
}

std::string MeasurementProcess::lost() {
  int status = 0;
  close(socket_);
  while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
  }
  socket_ = process_ = -1;
  return WIFSIGNALED(status)
             ? fmt::format("it ended the process that ran it: signal {} ({})", WTERMSIG(status),
                           strsignal(WTERMSIG(status)))
             : fmt::format("the process that ran it ended with code {}", WEXITSTATUS(status));
}

MeasurementResult MeasurementProcess::run(const CandidateMeasurement& measurement) {
  return run(measurement, options_.timeout_seconds);
}

MeasurementResult MeasurementProcess::run(const CandidateMeasurement& measurement,
                                          double timeout_seconds) {
  auto rejected = [](MeasurementResult::Reason reason, std::string message) {
    MeasurementResult outcome;
    outcome.state = MeasurementResult::State::Rejected;
    outcome.reason = reason;
    outcome.message = std::move(message);
    return outcome;
  };
  const std::string name = measurement.program.name;
  if (process_ < 0)
    start();
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(timeout_seconds));
  std::string answer;
  switch (exchange(socket_, to_bytes(measurement, options_.device), answer, deadline)) {
  case Exchange::Done: {
    MeasurementResult outcome;
    try {
      outcome = result_of_bytes(answer);
    } catch (const Error&) { // its memory was written to
      stop();
      return rejected(MeasurementResult::Reason::Crash,
                      fmt::format("kernel {}: the process that ran it answers nonsense", name));
    }
    if (outcome.reason == MeasurementResult::Reason::Crash ||
        outcome.reason == MeasurementResult::Reason::Wrong)
      stop(); // its device is lost, or its memory may have been written to
    return outcome;
  }
  case Exchange::Late:
    stop();
    return rejected(
        MeasurementResult::Reason::Hang,
        fmt::format("kernel {}: it did not end within {:.3g} s", name, timeout_seconds));
  case Exchange::Closed:
    break;
  }
  return rejected(MeasurementResult::Reason::Crash, fmt::format("kernel {}: {}", name, lost()));
}

} // namespace egret::compiler
