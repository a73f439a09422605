// The egret command: one file a subcommand; here is what they share: parsing, errors and exit
// codes.
#include "commands.h"
#include "console.h"
#include "egraph_command.h"

#include "egret/error.h"
#include "egret/log.h"

#include <CLI/CLI.hpp>
#include <csignal>
#include <new>

namespace {

constexpr const char* kFooter = R"(Try:
  egret train addition               train a small transformer to add, then ask it
  egret ask 123+456                  what it learned
  egret train text --data FILE       train one on any text, then: egret generate --prompt "The "
  egret bench --list                 the workloads that speed is judged on
  egret egraph run FILE.egg          equality saturation by itself; egret egraph --help has an example
  egret info                         this machine, as the compiler sees it

Results go to stdout, everything else to stderr; --json gives results as JSON. NO_COLOR=1 turns colours off.
Exit code: 0 done, 1 failed, 2 wrong usage.)";

int failed(const std::string& message) {
  using namespace egret::tool;
  std::fprintf(stderr, "%s %s\n", styled(Style::Bad, "egret:").c_str(), message.c_str());
  return kFailed;
}

} // namespace

int main(int argc, char** argv) {
  using namespace egret::tool;
  egret::on_warning([](const std::string& text) { log_line("egret: " + text); });
  std::signal(SIGPIPE, SIG_IGN); // a closed pipe is a failed write, not a death
  CLI::App app("egret trains and runs tensor programs with kernels that it generates.", "egret");
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("egret ") + EGRET_VERSION);
  app.set_help_flag("-h,--help", "Say how to use a command");
  app.set_help_all_flag("--help-all", "Say how to use all commands");
  app.require_subcommand(1);
  add_train_command(app);
  add_ask_command(app);
  add_generate_command(app);
  add_run_command(app);
  add_compile_command(app);
  add_bisect_command(app);
  add_bench_command(app);
  add_cache_command(app);
  add_info_command(app);
  add_egraph_command(app);
  add_worker_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& error) { // a command that has said what failed
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kUsage;
  } catch (const UsageError& error) {
    failed(error.what());
    return kUsage;
  } catch (const egret::Error& error) {
    return failed(error.what());
  } catch (const egret::InternalError& error) {
    return failed(
        fmt::format("{}\nThis is a mistake in egret, not yours; please report it.", error.what()));
  } catch (const std::bad_alloc&) {
    return failed("out of memory");
  } catch (const std::exception& error) {
    return failed(error.what());
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    return failed("cannot write the results to stdout");
  return kDone;
}
