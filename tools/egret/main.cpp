// The egret command: one file a subcommand; here is what they share: parsing, errors and exit
// codes.
#include "chat_command.h"
#include "commands.h"
#include "console.h"
#include "egraph_command.h"

#include "egret/error.h"
#include "egret/log.h"
#include "runtime/environment.h"
#include "support/printable.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <memory>
#include <new>
#include <numeric>
#include <string_view>
#include <unistd.h>
#include <utility>

namespace {

constexpr const char* kFooter = R"(Try:
  egret train addition               train a small transformer to add, then ask it
  egret ask 123+456                  what it learned
  egret train text --data FILE       train one on any text, then: egret generate --prompt "The "
  egret chat --model FOLDER          talk with a language model that was downloaded
  egret serve --model FOLDER         answer clients of OpenAI's interface with it
  egret bench --list                 the workloads that speed is judged on
  egret egraph run FILE.egg          equality saturation by itself; egret egraph --help has an example
  egret info                         this machine, as the compiler sees it

Results go to stdout, everything else to stderr; --json gives results as JSON. NO_COLOR=1 turns colours off.
Exit code: 0 done, 1 failed, 2 wrong usage.)";

using namespace egret::tool;

int failed(const std::string& message, int code = kFailed) {
  std::fprintf(stderr, "%s %s\n", styled(Style::Bad, "egret:").c_str(),
               egret::terminal_text(message).c_str());
  return code;
}

/// Says how to use all commands, those below others too.
class HelpOfAll final : public CLI::Formatter {
  std::string make_subcommands(const CLI::App* app, CLI::AppFormatMode mode) const override {
    return Formatter::make_subcommands(
        app, mode == CLI::AppFormatMode::Sub ? CLI::AppFormatMode::All : mode);
  }
};

/// A standard stream that the caller has closed stays unusable: without this the first file that is
/// opened would take its number, and what is printed would end up in that file.
void occupy_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF)
      ::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/// Options and arguments name files, devices, schedules: an empty text, as of a variable that is
/// not set, names nothing, and must not count as an option that is not there. Only what is text
/// itself may be empty.
void refuse_empty_texts(CLI::App& app) {
  constexpr std::string_view kTexts[] = {"--prompt", "--system", "sums", "text"};
  const CLI::Validator named(
      [](const std::string& text) { return text.empty() ? "an empty text names nothing" : ""; },
      "");
  for (CLI::Option* option : app.get_options())
    if (option->get_items_expected_max() > 0 &&
        std::ranges::find(kTexts, option->get_name()) == std::end(kTexts))
      option->check(named);
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; }))
    refuse_empty_texts(*command);
}

/// How many letters must change to make one word of the other (Levenshtein).
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j)
      diagonal = std::exchange(
          row[j + 1], std::min({row[j] + 1, row[j + 1] + 1, diagonal + (a[i] == b[j] ? 0 : 1)}));
  }
  return row.back();
}

/// " (did you mean NAME?)" for the one of `names` that `word` is nearly; else empty.
std::string nearly(const std::string& word, const std::vector<std::string>& names) {
  const auto nearest = std::ranges::min_element(
      names, {}, [&](const std::string& name) { return distance(word, name); });
  if (nearest == names.end() || 3 * distance(word, *nearest) > nearest->size() + 1)
    return "";
  return fmt::format(" (did you mean {}?)", *nearest);
}

/// The command that was reached, such as `train addition`.
struct Reached {
  const CLI::App* app;
  std::string line; ///< "egret train addition"
};

Reached reached_command(const CLI::App& whole) {
  Reached reached{&whole, whole.get_name()};
  while (!reached.app->get_subcommands().empty()) {
    reached.app = reached.app->get_subcommands().front();
    reached.line += " " + reached.app->get_name();
  }
  return reached;
}

/// What is wrong with a command line, with the command and what would be right.
std::string wrong_usage(const CLI::App& whole, const CLI::ParseError& error) {
  const auto [app, line] = reached_command(whole);
  std::vector<std::string> commands;
  for (const CLI::App* c :
       app->get_subcommands([](const CLI::App* c) { return !c->get_group().empty(); }))
    commands.push_back(c->get_name());
  const std::vector<std::string> rest = app->remaining();
  const auto option =
      std::ranges::find_if(rest, [](const std::string& s) { return s.starts_with('-'); });
  if (!commands.empty() && !rest.empty() && option != rest.begin())
    return fmt::format("there is no command '{} {}'{}; {} --help lists them", line, rest.front(),
                       nearly(rest.front(), commands), line);
  if (!commands.empty() && rest.empty())
    return app == &whole ? "a command is missing; egret --help lists them"
                         : fmt::format("{} is followed by one of {}; {} --help says what they do",
                                       line, fmt::join(commands, ", "), line);
  std::string why = error.what();
  const bool extra =
      error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) || !commands.empty();
  if (extra && option != rest.end()) {
    const std::string name = option->substr(0, option->find('='));
    std::vector<std::string> options;
    for (const CLI::Option* o : app->get_options())
      for (const std::string& known : o->get_lnames())
        options.push_back("--" + known);
    why = fmt::format("there is no option {}{}", name, nearly(name, options));
  } else if (extra && !rest.empty()) {
    why = fmt::format("'{}' is one argument too many", rest.front());
  }
  const std::string name = app == &whole ? "" : line.substr(whole.get_name().size() + 1) + ": ";
  return fmt::format("{}{}; {} --help says how to use it", name, why, line);
}

/// Parses the command line, which runs the command; the exit code.
int run(CLI::App& app, int argc, char** argv) {
  try {
    egret::runtime::check_environment();
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& error) { // a command that has said what failed
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0)
      return app.exit(error); // prints help or the version
    return failed(wrong_usage(app, error), kUsage);
  } catch (const UsageError& error) {
    return failed(error.what(), kUsage);
  } catch (const egret::InternalError& error) {
    return failed(
        fmt::format("{}\nThis is a mistake in egret, not yours; please report it.", error.what()));
  } catch (const std::bad_alloc&) {
    return failed("out of memory");
  } catch (const std::exception& error) {
    return failed(error.what());
  }
  return kDone;
}

} // namespace

int main(int argc, char** argv) {
  occupy_standard_streams();
  egret::on_warning(
      [](const std::string& text) { log_line("egret: " + egret::terminal_text(text)); });
  std::signal(SIGPIPE, SIG_IGN); // a closed pipe is a failed write, not a death
  CLI::App app("egret trains and runs tensor programs with kernels that it generates.", "egret");
  app.formatter(std::make_shared<HelpOfAll>()); // which commands take from here
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("egret ") + EGRET_VERSION);
  app.set_help_flag("-h,--help", "Say how to use a command");
  app.set_help_all_flag("--help-all", "Say how to use all commands");
  app.require_subcommand(1);
  add_train_command(app);
  add_ask_command(app);
  add_generate_command(app);
  add_chat_command(app);
  add_embed_command(app);
  add_transcribe_command(app);
  add_classify_command(app);
  add_serve_command(app);
  add_quantize_command(app);
  add_dequantize_command(app);
  add_finetune_command(app);
  add_merge_command(app);
  add_eval_command(app);
  add_run_command(app);
  add_compile_command(app);
  add_view_command(app);
  add_profile_command(app);
  add_bisect_command(app);
  add_diff_command(app);
  add_bench_command(app);
  add_cache_command(app);
  add_info_command(app);
  add_tokenize_command(app);
  add_egraph_command(app);
  add_worker_command(app);
  refuse_empty_texts(app);
  const int code = run(app, argc, argv);
  try {
    flush_stdout();
  } catch (const egret::Error& error) {
    return failed(error.what());
  }
  return code;
}
