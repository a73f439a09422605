// egret worker: the process in which the compiler tries kernels (not for people).
#include "commands.h"
#include "console.h"

#include "compiler/measurement_process.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <unistd.h>

namespace egret::tool {

void add_worker_command(CLI::App& app) {
  auto* command = app.add_subcommand("worker", "Try kernels that come over standard input");
  command->group(""); // in no list
  command->callback([] {
    ::unsetenv("EGRET_RECORD"); // of the process that started this one
    if (isatty(STDIN_FILENO))
      throw UsageError("worker: the compiler starts this command; it is of no use by hand");
    if (compiler::serve_measurements(STDIN_FILENO) != 0)
      throw UsageError("worker: the caller went away");
  });
}

} // namespace egret::tool
